"""One HTTP request to somebody else's service: the answer is bounded in time and size, redirects are not followed."""

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdproof.content.credentials import Credentials
from holdproof.errors import FormatError, UnreachableError
from holdproof.lazy import lazy_module

if TYPE_CHECKING:
    import httpx
else:  # loaded at the first request: it costs more than all the rest at start
    httpx = lazy_module("httpx")

MOST_BYTES: Final = 1 << 20


class Reply(NamedTuple):
    """The response of a service."""

    status: int
    kind: str
    body: bytes


def send(
    method: str,
    url: str,
    who: str,
    *,
    timeout_s: float,
    opens: Credentials | None = None,
    body: bytes | None = None,
    kind: str | None = None,
) -> Reply:
    """Send one request; `who` names the service in errors. UnreachableError where it does not answer in time."""
    data = bytearray()
    # Compressed, a small answer could become a huge one.
    headers = {"accept-encoding": "identity"} | ({} if kind is None else {"content-type": kind})
    limit = _Limit(timeout_s)
    try:
        with (
            httpx.Client(auth=opens, timeout=timeout_s) as client,
            limit,
            client.stream(method, url, content=body, headers=headers, extensions={"trace": limit.trace}) as answer,
        ):
            for part in answer.iter_raw():
                data += part
                if len(data) > MOST_BYTES:
                    raise FormatError(f"{who} answers without end", url=url)
            # What was hung up on may look like an answer that has ended.
            if limit.passed:
                raise UnreachableError(f"{who} answers too slowly", url=url)
            return Reply(answer.status_code, answer.headers.get("content-type", ""), bytes(data))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        how = "answers too slowly" if limit.passed else f"cannot be reached: {error}"
        raise UnreachableError(f"{who} {how}", url=url) from error


class _Limit:
    """Hangs up when the time for a request is over.

    A timeout of the HTTP client is one for each read, so that a service that sends a byte now and then, in its headers
    too, could hold the caller for days.
    """

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Note the socket of the connection, with TLS the one around it; called by the HTTP client."""
        if event in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:
            with self._lock:
                self._socket = info["return_value"].get_extra_info("socket")
                self._hang_up()

    def _end(self) -> None:
        with self._lock:
            self.passed = True
            self._hang_up()

    def _hang_up(self) -> None:
        if self.passed and self._socket is not None:
            # The plain one, whichever it is: it wakes a thread that reads.
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
