"""Too much and too slow: what the server does not wait for and does not take, on a real port."""

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from holdproof.server import ServerSettings
from holdproof.server.protocol import TimeoutHttpProtocol
from holdproof.server.serve import ListenAddress
from tests.e2e.test_door import refused, secret
from tests.web import Web, problem, running


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A server without patience."""
    settings = ServerSettings(body_bytes=1000, stall_s=0.2, least_bytes_s=1e6)
    patience, TimeoutHttpProtocol.head_s = TimeoutHttpProtocol.head_s, 0.3
    with running(tmp_path_factory.mktemp("strict") / "home", settings) as web:
        yield web
    TimeoutHttpProtocol.head_s = patience


def test_a_body_that_is_too_large_is_refused_before_it_came(strict: Web) -> None:
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999\r\n\r\n"
    assert strict.raw(head).startswith(b"HTTP/1.1 413 ")
    refused(strict, "request.too_large", "/login")

    def endless() -> Iterator[bytes]:
        for _ in range(20):
            yield b"a" * 100

    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = strict.client().post("/login", content=endless(), headers=kind)
    problem(answer, 413, "request.too_large")


def _head(path: str, length: int, token: str | None = None) -> bytes:
    """The head of a call whose body never comes."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {length}"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@pytest.mark.parametrize("path", ["/v1/contexts/put", "/v1/flows/run", "/v1/relational/transaction", "/v1/traces"])
def test_a_caller_without_a_token_is_refused_before_the_body_is_read(strict: Web, path: str) -> None:
    assert strict.raw(_head(path, 999)).startswith(b"HTTP/1.1 401 ")


def test_a_caller_who_may_not_call_is_refused_before_the_body_is_read(strict: Web) -> None:
    strict.store.agents.register("trader", version="1.0.0")
    agent_token = secret(strict, role="agent", agent_id="trader")
    assert strict.raw(_head("/v1/tokens/create", 999, agent_token)).startswith(b"HTTP/1.1 403 ")


def test_a_body_has_only_so_many_values_however_short_they_are(tmp_path: Path) -> None:
    with running(tmp_path / "home", ServerSettings(most_values=1000)) as web:
        client = web.client(secret(web))
        json_type = {"Content-Type": "application/json"}
        for values in (b"[]," * 2000 + b"[]", b'"",' * 1001 + b'""', b'{"a":1},' * 1001 + b"1"):
            body = b'{"flow_id":"f","content":{"x":[' + values + b"]}}"
            problem(client.post("/v1/contexts/put", content=body, headers=json_type), 413, "request.too_large")
        # Commas inside of texts are no values.
        texts = b'{"agent_id":"a","version":"1.0.0","description":"' + b"," * 100_000 + b'[{"}'
        assert client.post("/v1/agents/register", content=texts, headers=json_type).status_code != 413


def test_one_address_holds_only_so_many_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimeoutHttpProtocol, "most_connections", 3)
    with running(tmp_path / "home") as web, ExitStack() as stack:
        address = ("127.0.0.1", web.port)
        held = [stack.enter_context(socket.create_connection(address, timeout=60)) for _ in range(3)]
        for each in held:  # answered, so that the server has counted it
            each.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert each.recv(1000).startswith(b"HTTP/1.1 200 ")
        with socket.create_connection(address, timeout=60) as another:
            assert another.recv(1000).startswith(b"HTTP/1.1 429 ")


def test_a_trusted_proxy_holds_more_since_all_callers_come_from_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimeoutHttpProtocol, "most_connections", 3)
    place = ListenAddress(port=0, proxies="127.0.0.1")
    with running(tmp_path / "home", place=place) as web, ExitStack() as stack:
        for _ in range(5):
            wire = stack.enter_context(socket.create_connection(("127.0.0.1", web.port), timeout=10))
            wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert wire.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_a_body_that_does_not_come_is_not_waited_for(strict: Web) -> None:
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    answer = strict.raw(head + b"Content-Length: 100\r\n\r\ncode=")
    assert answer.startswith(b"HTTP/1.1 408 "), answer
    assert b"connection: close" in answer.lower()
    refused(strict, "request.slow", "/login")


def test_a_head_that_does_not_end_is_not_waited_for(strict: Web) -> None:
    for begun in (b"", b"GET /healthz HTTP/1.1\r\nHost: localh"):
        with socket.create_connection(("127.0.0.1", strict.port), timeout=60) as wire:
            wire.sendall(begun)
            assert wire.recv(1000).startswith(b"HTTP/1.1 408 ")
            assert wire.recv(1000) == b""


CHUNKED = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
CHUNKED += b"Transfer-Encoding: chunked\r\n\r\n"


def test_what_leads_to_nothing_is_not_taken_without_end(tmp_path: Path) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: "
    with running(tmp_path / "home") as web:
        for begun in (head, CHUNKED + b"1\r\na\r\n0\r\nX: ", CHUNKED + b"1;x="):
            with socket.create_connection(("127.0.0.1", web.port), timeout=60) as wire:
                wire.sendall(begun)
                assert _flood(wire) < 100 * TimeoutHttpProtocol.most, begun


def _flood(wire: socket.socket) -> int:
    """How much can be sent until the server has had enough."""
    sent = 0
    with suppress(ConnectionError):  # what it has not read when it hangs up resets the connection
        while not select.select([wire], [], [], 0)[0] and sent < 100 * TimeoutHttpProtocol.most:
            sent += wire.send(b"a" * 4096)
        assert wire.recv(1000).startswith(b"HTTP/1.1 431 ")
    return sent


def test_requests_that_come_together_are_answered_one_after_another(strict: Web) -> None:
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    with socket.create_connection(("127.0.0.1", strict.port), timeout=60) as wire:
        wire.sendall((one + b"\r\n") * 2 + one + b"Connection: close\r\n\r\n")
        answers = b""
        while part := wire.recv(65_536):
            answers += part
    assert answers.count(b"HTTP/1.1 200 OK\r\n") == 3


def test_a_caller_who_asks_first_is_told_to_go_on(strict: Web) -> None:
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    with socket.create_connection(("127.0.0.1", strict.port), timeout=60) as wire:
        wire.sendall(head + b"Content-Length: 6\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
        assert wire.recv(1000).startswith(b"HTTP/1.1 100 ")
        wire.sendall(b"code=x")
        assert wire.recv(1000).startswith(b"HTTP/1.1 4")


def test_whoever_asks_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    # A rate that no machine is too slow to exceed.
    with running(tmp_path / "home", ServerSettings(rate_s=0.01, burst=10, denied_cost=0)) as web:
        answers = [web.client().get("/healthz") for _ in range(20)]
        late = [answer for answer in answers if answer.status_code == 429]
        assert late
        problem(late[0], 429, "access.rate_limited")
        assert int(late[0].headers["retry-after"]) >= 1
        refused(web, "access.rate_limited", "/healthz")
        rows = [each for each in web.denied() if each.code == "access.rate_limited"]
        assert len(rows) == 1, "a flood is counted, not written"


def test_tokens_have_buckets_of_their_own(tmp_path: Path) -> None:
    with running(tmp_path / "home", ServerSettings(rate_s=0.001, burst=5, denied_cost=0)) as web:
        first, second = (web.client(secret(web)) for _ in range(2))
        assert [first.get("/healthz").status_code for _ in range(3)] == [200] * 3
        assert {second.get("/healthz").status_code for _ in range(3)} == {200, 429}, "the address has one too"
