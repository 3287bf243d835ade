"""A client of a server and what it is told: no token in an error, none sent on, and no redirect taken for an answer."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from holdproof import connect, errors, sync
from holdproof.cli.app import app
from tests.conformance.test_witness import raw_server

_SECRET = "hp_very-secret"


@pytest.fixture
def redirecting() -> Iterator[str]:
    # The server hangs up after each answer: without `close` a client may send the next request before it sees that.
    answer = b"HTTP/1.1 308 On\r\nlocation: https://user:word@elsewhere.example/x\r\ncontent-length: 0\r\n"
    with raw_server(answer + b"connection: close\r\n\r\n") as url:
        yield url


def test_a_redirect_without_a_body_is_no_answer(redirecting: str) -> None:
    calls: list[Any] = [
        lambda store: store.idempotency.get("order-17"),  # None would mean that there is none
        lambda store: store.flows.list(),
        lambda store: store.locks.release("a", "b"),
        lambda store: list(store.flows.export()),
    ]
    with sync.connect(redirecting, _SECRET) as store:
        for call in calls:
            with pytest.raises(errors.UnreachableError, match=r"elsewhere\.example") as refused:
                call(store)
            assert "word" not in refused.value.message
            assert _SECRET not in str(refused.value)


@pytest.mark.parametrize("token", [f"{_SECRET}\n", f"{_SECRET}\r\nX-Other: 1", f"{_SECRET}é", f"a {_SECRET}"])
def test_a_token_that_cannot_be_one_is_refused_and_not_repeated(token: str) -> None:
    with raw_server(b"HTTP/1.1 500 No\r\n\r\n") as url:
        with pytest.raises(errors.InvalidInputError, match="a token has no") as refused:
            sync.connect(url, token)
        assert _SECRET not in str(refused.value)
        done = CliRunner().invoke(app, ["--server", url, "--token", token, "flows", "list"])
        assert done.exit_code == 2
        assert _SECRET not in done.output


async def _connected(url: str) -> None:
    async with connect(url, _SECRET):
        pass


@pytest.mark.parametrize("url", ["localhost:8420", "http://[::1", "http://", "http://h:abc", "http://a b", "ftp://a"])
def test_what_is_no_address_of_a_server_is_refused_at_once(url: str) -> None:
    with pytest.raises(errors.InvalidInputError, match=r"no address of a server|begins with"):
        asyncio.run(_connected(url))
    done = CliRunner().invoke(app, ["--server", url, "--token", _SECRET, "flows", "list"])
    assert done.exit_code == 2, done.output
    assert _SECRET not in done.output


def test_a_password_in_an_address_that_cannot_be_read_is_not_shown() -> None:
    with pytest.raises(errors.InvalidInputError) as refused:
        sync.connect("http://ann:pass-word@[::1")
    assert "pass-word" not in str(refused.value)
