"""HTTP on the wire, less patient than uvicorn's own: a head that does not come to its end is not waited for.

Rules:
- A head takes at most `head_s`; a connection on which nothing is under way is closed by uvicorn itself.
- One address has at most `most_connections` open, so that it cannot keep others out; trusted proxies have more.
- What leads to nothing, a head without an end, trailers or the small print of a chunk, is read up to `most` bytes.
"""

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

HEAD_S: Final = 10.0
MOST: Final = 64 * 1024
_LATE: Final = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_MOST_CONNECTIONS: Final = 256
_CROWDED: Final = b"HTTP/1.1 429 Too Many Requests\r\nconnection: close\r\nretry-after: 15\r\ncontent-length: 0\r\n\r\n"
_LARGE_BYTES: Final = 16 * 1024
_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Joined:
    """A transport that sends what is written in one turn of the loop in one go: a head with its body."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._chunks: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send with what comes next in this turn; what is large at once."""
        # uvicorn writes head and body apart; joined they leave in one packet, without waiting for Nagle or an ACK.
        if not self._chunks:
            self._loop.call_soon(self._send)
        self._chunks.append(data)
        if len(data) > _LARGE_BYTES:
            self._send()

    def _send(self) -> None:
        if self._chunks:
            chunks = self._chunks
            self._chunks = []
            self._transport.write(b"".join(chunks))

    def close(self) -> None:
        """Close after what was written."""
        self._send()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        """As the transport itself."""
        return getattr(self._transport, name)


class TimeoutHttpProtocol(HttpToolsProtocol):
    """A connection that is closed if the head of a request is too long in coming, or too long."""

    head_s = HEAD_S
    most = MOST
    most_connections = _MOST_CONNECTIONS
    _timer: asyncio.TimerHandle | None = None
    _in_head = True
    _fruitless = 0
    """Bytes that came since something was made of any."""

    def connection_made(self, transport: Any) -> None:
        """Wait for the first head; never log addresses, since those of links carry their codes."""
        self.access_log = False
        super().connection_made(transport)
        self.transport = cast("asyncio.Transport", Joined(transport, self.loop))
        self._wait()
        if self._is_crowded():
            self._refuse(_CROWDED)

    def _is_crowded(self) -> bool:
        """Return whether the address of this connection has more than its share."""
        if self.client is None:
            return False
        address = str(self.client[0])
        # All callers behind a proxy come from its address.
        proxies = str(self.config.forwarded_allow_ips)
        if proxies.strip() == "*" or address in {each.strip() for each in proxies.split(",")}:
            return False
        others = (getattr(each, "client", None) for each in self.connections)
        of_address = [each for each in others if each is not None and str(each[0]) == address]
        return len(of_address) > self.most_connections

    def data_received(self, data: bytes) -> None:
        """Wait on while a head has begun and not ended."""
        # Counted before parsing: the callbacks of a complete head or body part set it back to 0.
        self._fruitless += len(data)
        super().data_received(data)
        if self._fruitless > self.most:
            self._refuse(_LARGE)
        elif self._in_head:
            self._wait()
        else:
            self._rest()

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A head has come to its end."""
        self._in_head = False
        self._fruitless = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        self._fruitless = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of a request is there."""
        self._fruitless = 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._rest()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.head_s, self._refuse, _LATE)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, answer: bytes) -> None:
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        # In the middle of an answer a second status line would corrupt it: then the connection is only closed.
        if cycle is None or not cycle.response_started or cycle.response_complete:
            self.transport.write(answer)
        self.transport.close()
