"""The client of an IPFS node among nodes that misbehave: a typed error, in time, every time."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from holdproof.content.kubo import Kubo
from holdproof.errors import UnreachableError

CID = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
IDLE_S = 0.5


def _answer(status: str, body: str) -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()


@contextmanager
def node(answer: bytes, *, then_s: float = 0) -> Iterator[Kubo]:
    """A server that gives every caller these bytes, and closes after a while."""
    server = socket.create_server(("127.0.0.1", 0))
    stopped = threading.Event()

    def serve() -> None:
        while True:
            try:
                line, _ = server.accept()
            except OSError:
                return
            with line:
                line.recv(1 << 20)
                line.sendall(answer)
                stopped.wait(then_s)

    threading.Thread(target=serve, daemon=True).start()
    kubo = Kubo(f"http://127.0.0.1:{server.getsockname()[1]}", idle_s=IDLE_S)
    try:
        yield kubo
    finally:
        stopped.set()
        kubo.close()
        server.shutdown(socket.SHUT_RDWR)
        server.close()


@contextmanager
def dripping(head: bytes, piece: bytes, *, every_s: float) -> Iterator[str]:
    """A server that never stops, and never lets anybody wait for long."""
    server = socket.create_server(("127.0.0.1", 0))
    stopped = threading.Event()

    def serve() -> None:
        with suppress(OSError):
            line, _ = server.accept()
            with line:
                line.recv(1 << 20)
                line.sendall(head)
                while not stopped.wait(every_s):
                    line.sendall(piece)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        stopped.set()
        server.close()


CALLS: dict[str, Callable[[Kubo], object]] = {
    "version": lambda kubo: kubo.version(),
    "add": lambda kubo: kubo.add(b"x", pin=False),
    "cat": lambda kubo: kubo.cat(CID).read(1 << 20),
    "pin": lambda kubo: kubo.pin(CID),
    "dag import": lambda kubo: kubo.dag_import(b"x"),
    "dag export": lambda kubo: kubo.dag_export(CID).read(1 << 20),
    "unpin": lambda kubo: kubo.unpin(CID),
}
ANSWERS = {
    "an error": _answer("500 Internal Server Error", '{"Message": "disk on fire", "Code": 0}'),
    "an error that is no JSON": _answer("502 Bad Gateway", "<html>"),
    "a refusal": _answer("403 Forbidden", ""),
    "nothing": b"",
    "garbage": b"\x00\x01\x02 not HTTP at all\r\n\r\n",
    "half": b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{",
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_wrong_answer_is_a_typed_error(answer: bytes, call: Callable[[Kubo], object]) -> None:
    with node(answer) as kubo, pytest.raises(UnreachableError) as caught:
        call(kubo)
    assert caught.value.fields["url"] == kubo.url


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_node_that_hangs_is_a_typed_error_in_time(call: Callable[[Kubo], object]) -> None:
    began = time.monotonic()
    with node(b"", then_s=60) as kubo, pytest.raises(UnreachableError):
        call(kubo)
    assert time.monotonic() - began < 20 * IDLE_S


@pytest.mark.parametrize("name", ["version", "add", "pin"])
@pytest.mark.parametrize("body", ["", "[]", "7", '"x"', "{", "not JSON"])
def test_an_answer_that_is_no_object_is_a_typed_error(name: str, body: str) -> None:
    with node(_answer("200 OK", body)) as kubo, pytest.raises(UnreachableError):
        CALLS[name](kubo)


@pytest.mark.parametrize("name", ["version", "add", "pin"])
def test_an_object_without_the_answer_is_a_typed_error(name: str) -> None:
    with node(_answer("200 OK", "{}")) as kubo, pytest.raises(UnreachableError):
        CALLS[name](kubo)


def test_what_the_node_knows_it_has_not_is_not_found() -> None:
    gone = _answer("500 Internal Server Error", '{"Message": "block was not found locally (offline)"}')
    with node(gone) as kubo, pytest.raises(FileNotFoundError):
        kubo.cat(CID)


def test_taking_away_a_pin_that_is_not_there_is_fine() -> None:
    with node(_answer("500 Internal Server Error", '{"Message": "not pinned or pinned indirectly"}')) as kubo:
        kubo.unpin(CID)


def test_nobody_listening_is_a_typed_error() -> None:
    with pytest.raises(UnreachableError):
        Kubo("http://127.0.0.1:9").version()


def test_a_file_is_read_in_pieces_of_the_size_that_is_asked_for() -> None:
    with node(_answer("200 OK", "x" * 1000)) as kubo:
        cat = kubo.cat(CID)
        assert [len(cat.read(300)) for _ in range(5)] == [300, 300, 300, 100, 0]
        cat.close()
        cat.close()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("status", ["200 OK", "500 Internal Server Error"])
@pytest.mark.timeout(20)
def test_a_node_that_drips_for_ever_is_a_typed_error_in_time(call: Callable[[Kubo], object], status: str) -> None:
    """Each byte comes within the patience for one; all of them together never end."""
    head = f"HTTP/1.1 {status}\r\nconnection: close\r\n\r\n".encode()
    with (
        dripping(head, b" ", every_s=0.02) as url,
        closing(Kubo(url, idle_s=IDLE_S, budget_s=0.2)) as kubo,
        pytest.raises(UnreachableError, match="longer"),
    ):
        call(kubo)


@pytest.mark.parametrize("name", ["version", "add", "pin", "dag import", "unpin"])
@pytest.mark.timeout(30)
def test_an_answer_without_end_is_a_typed_error_not_all_of_memory(name: str) -> None:
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
    with (
        dripping(head, b" " * (1 << 20), every_s=0) as url,
        closing(Kubo(url, idle_s=IDLE_S)) as kubo,
        pytest.raises(UnreachableError, match="too long"),
    ):
        CALLS[name](kubo)


@pytest.mark.parametrize("url", ["http://[::1", "http://a b", "nonsense", "http://127.0.0.1:99999", "ftp://host"])
@pytest.mark.parametrize("name", ["version", "cat"])
def test_an_address_that_is_none_is_a_typed_error(url: str, name: str) -> None:
    with pytest.raises(UnreachableError), closing(Kubo(url, idle_s=IDLE_S)) as kubo:
        CALLS[name](kubo)
