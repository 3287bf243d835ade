"""The proxy for servers over HTTP (streamable HTTP, and the answers as server-sent events that it may give).

Rules:
- It listens on this machine only, and refuses requests that name another host or come from another site's page: a page
  in a browser must not reach a server through it.
- Headers pass as they are, authorization included; only messages are recorded, never headers.
- Every message of a stream is recorded before its event is passed on.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from holdproof.adapters.mcp_proxy.relay import Message, Relay, RelayOutcome
from holdproof.adapters.mcp_proxy.stdio import messages
from holdproof.errors import InvalidInputError

_MOST: Final = 64 << 20
_SESSION: Final = "Mcp-Session-Id"
_LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})
# Of one connection each, and not of the message (RFC 9110); lengths are counted anew.
_HOP: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer"),
        *("transfer-encoding", "upgrade", "host", "content-length", "accept-encoding", "content-encoding"),
    }
)


class HttpProxy(ThreadingHTTPServer):
    """Listens on this machine and passes everything on to one server."""

    daemon_threads = True

    def __init__(self, relay: Relay, url: str, port: int, client: httpx.Client | None = None) -> None:
        """Listen on a port of this machine, 0 for any; `url` is the server's endpoint."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise InvalidInputError(f"{url} is no address of a server: give http://… or https://…", url=url)
        self.relay = relay
        self.url = url
        self._relays: dict[str, Relay] = {}
        self._lock = threading.Lock()
        # Streams stay open for as long as the server likes; only connecting has an end.
        self.client = client or httpx.Client(timeout=httpx.Timeout(None, connect=30.0))
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def address(self) -> str:
        """The address that clients are given."""
        return f"http://127.0.0.1:{self.server_address[1]}{urlsplit(self.url).path or '/'}"

    def relay_of(self, session: str | None) -> Relay:
        """Return the relay of a session: two clients may give their requests the same ids.

        A request without a session stands for itself; its cancellation is the end of its connection.
        """
        common = self.relay
        if session is None:
            return Relay(common.run, gate=common.gate, closing=common.closing)
        with self._lock:
            new = Relay(common.run, gate=common.gate, closing=common.closing)
            return self._relays.setdefault(session, new)

    def forget(self, session: str | None) -> None:
        """Drop the relay of a session that its client ended."""
        with self._lock:
            self._relays.pop(session or "", None)

    def server_close(self) -> None:
        """See ThreadingHTTPServer; ends calls that wait."""
        self.relay.closing.set()
        super().server_close()
        self.client.close()


class _Handler(BaseHTTPRequestHandler):
    server: HttpProxy
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Record and pass on messages of the client, then the server's answer."""
        body = self._body()
        if body is None:
            return
        relay = self._relay()
        sent = messages(body)
        outcomes = [(message, relay.from_client(message, _nowhere)) for message in sent]
        replies = [outcome.reply for _, outcome in outcomes if outcome.reply is not None]
        if relay.gate:
            passed = [message for message, outcome in outcomes if _passes(message, outcome)]
            if not passed:
                self._answer(replies)
                return
            body = json.dumps(passed if len(passed) > 1 else passed[0]).encode()
        self._exchange("POST", relay, body, replies, sent)

    def do_GET(self) -> None:
        """Pass on the stream of messages that a server sends by itself."""
        if self._is_local():
            self._exchange("GET", self._relay())

    def do_DELETE(self) -> None:
        """Pass on the end of a session."""
        if self._is_local():
            self._exchange("DELETE", self._relay())
            self.server.forget(self.headers.get(_SESSION))

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the log of the store has it."""

    def _relay(self) -> Relay:
        return self.server.relay_of(self.headers.get(_SESSION))

    # --- the request ---------------------------------------------------------------------------------------------

    def _is_local(self) -> bool:
        """Refuse what a page in a browser could send through this proxy."""
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        origin = self.headers.get("Origin")
        if host in _LOCAL and (origin is None or urlsplit(origin).hostname in _LOCAL):
            return True
        self._plain(403, b"this proxy serves programs of this machine only")
        return False

    def _body(self) -> bytes | None:
        if not self._is_local():
            return None
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > _MOST:
            self._plain(413, b"a message has a length of at most 64 MiB")
            return None
        return self.rfile.read(int(length))

    # --- the answer ----------------------------------------------------------------------------------------------

    def _exchange(
        self,
        method: str,
        relay: Relay,
        body: bytes | None = None,
        replies: Sequence[Message] = (),
        sent: Sequence[Message] = (),
    ) -> None:
        headers = [(name, value) for name, value in self.headers.items() if name.lower() not in _HOP]
        try:
            with self.server.client.stream(method, self.server.url, headers=headers, content=body) as answer:
                if answer.headers.get("Content-Type", "").startswith("text/event-stream"):
                    self._stream(relay, answer, replies)
                else:
                    self._whole(relay, answer, replies)
        except httpx.HTTPError as error:
            failures = relay.server_gone(f"{type(error).__name__}: {error}", sent)
            self._plain(502, json.dumps(failures[0] if len(failures) == 1 else failures).encode(), "application/json")

    def _whole(self, relay: Relay, answer: httpx.Response, replies: Sequence[Message]) -> None:
        data = answer.read()
        is_json = answer.headers.get("Content-Type", "").startswith("application/json")
        for message in messages(data) if is_json and data else ():
            relay.from_server(message)
        if replies:
            answers = messages(data) if is_json and data else []
            data = json.dumps([*replies, *answers]).encode()
        self.send_response(answer.status_code)
        self._pass_headers(answer)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, relay: Relay, answer: httpx.Response, replies: Sequence[Message]) -> None:
        self.send_response(answer.status_code)
        self._pass_headers(answer)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for reply in replies:
            self._chunk(f"data: {json.dumps(reply)}\n\n".encode())
        for event in _events(answer.iter_lines()):
            data = "\n".join(line[5:].removeprefix(" ") for line in event if line.startswith("data:"))
            for message in messages(data.encode()) if data else ():
                relay.from_server(message)
            self._chunk(("\n".join(event) + "\n\n").encode())
        self._chunk(b"")

    def _pass_headers(self, answer: httpx.Response) -> None:
        for name, value in answer.headers.multi_items():
            if name.lower() not in _HOP and name.lower() not in {"date", "server"}:
                self.send_header(name, value)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _answer(self, replies: list[Message]) -> None:
        """Answer in the server's place; notifications alone have no answer."""
        if not replies:
            self._plain(202, b"")
            return
        data = json.dumps(replies if len(replies) > 1 else replies[0]).encode()
        self._plain(200, data, "application/json")

    def _plain(self, status: int, data: bytes, content_type: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        # What was left unread of a request must not be taken for the next one.
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True


def _passes(message: Message, outcome: RelayOutcome) -> bool:
    return outcome.forward and "unparsed" not in message


def _events(stream: Iterator[str]) -> Iterator[list[str]]:
    """Yield the lines of each server-sent event."""
    event: list[str] = []
    for line in stream:
        if line:
            event.append(line)
        elif event:
            yield event
            event = []
    if event:
        yield event


def _nowhere(_: Message) -> None:
    """Drop what is to keep a call alive: over HTTP an answer has not begun while its call waits."""
