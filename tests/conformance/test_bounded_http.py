"""One request to somebody else's service: its time and its size are bounded, whatever the service does."""

import gzip
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from holdproof import errors
from holdproof.evidence import bounded_http
from tests.conformance.test_witness import raw_server

_WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@contextmanager
def dripping(start: bytes, drop: bytes) -> Iterator[str]:
    """Answers with a start, then with a drop every now and then for a minute."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.recv(1 << 16)
                connection.sendall(start)
                for _ in range(600):
                    if done.wait(0.1):
                        return
                    connection.sendall(drop)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


def _send(url: str, timeout_s: float = 30.0) -> bounded_http.Reply:
    return bounded_http.send("POST", url, "the service", timeout_s=timeout_s, body=b"x")


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\nx-padding: ", b"x"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
    ids=["headers", "body", "body without a length", "chunks"],
)
def test_a_service_that_sends_a_byte_now_and_then_is_left_when_the_time_is_over(start: bytes, drop: bytes) -> None:
    with dripping(start, drop) as url:
        began = time.monotonic()
        with pytest.raises(errors.UnreachableError, match="too slowly"):
            _send(url, 1.0)
        assert time.monotonic() - began < 20


def test_an_answer_that_was_compressed_unasked_is_not_unpacked() -> None:
    packed = gzip.compress(bytes(64 << 20))
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    with raw_server(head + packed) as url:
        assert _send(url).body == packed


def test_an_answer_in_time_is_read_and_one_without_end_is_not() -> None:
    with raw_server(_WHOLE) as url:
        assert _send(url) == bounded_http.Reply(200, "", b"ok")
    with dripping(b"HTTP/1.1 200 OK\r\n\r\n", bytes(1 << 18)) as url, pytest.raises(errors.FormatError):
        _send(url)
