"""Database URLs: no password in clear over a network, none in an error."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from holdproof import errors
from holdproof.db.postgres import conninfo
from holdproof.db.postgres.catalogue import connect
from holdproof.db.postgres.connector import Connector

_WORD = "hunter2"
# AuthenticationCleartextPassword: the answer of a server that wants the password itself.
_ASKS_FOR_CLEAR_TEXT = b"R" + (8).to_bytes(4, "big") + (3).to_bytes(4, "big")


@contextmanager
def _listener(received: list[bytes]) -> Iterator[int]:
    """A server that asks whoever connects for the password in clear."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client, suppress(OSError):
                        client.settimeout(5)
                        client.recv(4096)  # a request for encryption, refused, or the first message
                        client.sendall(b"N")
                        client.recv(4096)
                        client.sendall(_ASKS_FOR_CLEAR_TEXT)
                        received.append(client.recv(4096))

        threading.Thread(target=serve, daemon=True).start()
        yield int(server.getsockname()[1])


def test_a_server_that_asks_for_the_password_in_clear_does_not_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conninfo, "is_local", lambda parts: False)
    received: list[bytes] = []
    with _listener(received) as port:
        url = f"postgresql://ada:{_WORD}@127.0.0.1:{port}/store"
        connector = Connector(url, "kernel", connect_s=0, lock_s=1, read_s=1)
        for attempt in (lambda: connector.wire("test", patience_s=0), lambda: connect(url)):
            with pytest.raises(errors.UnavailableError):
                attempt()
    assert not any(_WORD.encode() in each for each in received)


@pytest.mark.parametrize(
    ("url", "refused"),
    [
        ("postgresql://ada:x@db.example/store", True),
        ("postgresql://ada:x@db.example/store?sslmode=prefer", True),
        ("postgresql://ada:x@localhost,db.example/store", True),
        ("postgresql://ada:x@db.example/store?sslmode=require", False),
        ("postgresql://ada:x@db.example/store?sslmode=verify-full", False),
        ("postgresql://ada:x@127.0.0.1/store", False),
        ("postgresql://ada:x@[::1]:5432/store", False),
        ("postgresql:///store?host=/run/postgresql", False),
        ("postgresql:///store", False),
    ],
)
def test_clear_text_is_refused_where_others_could_listen(url: str, refused: bool) -> None:
    assert (conninfo.parse(url).get("require_auth") == "!password") is refused


@pytest.mark.parametrize("url", ["ada:hun/ter2@db", "ada:12/ter2@db", "ada:a/b@ter2@db:1"])
def test_a_password_that_ends_its_url_early_is_told_by_no_error(url: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        conninfo.parse(f"postgresql://{url}/store")
    assert "ter2" not in str(caught.value)
    assert "%2F" in str(caught.value)
