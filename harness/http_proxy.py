"""A web server that fails half-way: a proxy on the loopback before a real one.

A fault is armed; it strikes a request, and as many after it as it says. `heal` ends whatever still hangs.
"""

import http.client
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

KINDS: Final = {
    "500": "an error in the place of an answer",
    "503": "too busy, come again",
    "denied": "it is done, and an error is answered",
    "lost": "it is done, and the line breaks before the answer",
    "cut request": "half of what is sent arrives, then the line breaks",
    "cut answer": "half of the answer arrives, then the line breaks",
    "short answer": "half of the answer arrives, as if that were all",
    "wrong bytes": "a byte of the answer is another one",
    "stall": "no answer, and the line stays open",
}
_HOP: Final = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"}


@dataclass(slots=True)
class Fault:
    """What happens to the request after so many, and to how many from there on."""

    kind: str
    after: int = 0
    times: int = 1


class Proxy:
    """Carries requests to a server, and lets faults strike."""

    def __init__(self, port: int) -> None:
        self.upstream = port
        self._lock, self._fault = threading.Lock(), Fault("", times=0)
        self.struck, self.seen = 0, 0
        self.healed = threading.Event()
        outer = self

        class Handler(_Handler):
            proxy = outer

        self._http = _Server(("127.0.0.1", 0), Handler)
        self.port = self._http.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def arm(self, fault: Fault) -> None:
        """Let a fault strike."""
        with self._lock:
            self._fault, self.struck, self.seen = fault, 0, 0
            self.healed.clear()

    def heal(self) -> int:
        """Have a good server again; how many requests the fault struck."""
        with self._lock:
            self._fault = Fault("", times=0)
        self.healed.set()
        return self.struck

    def due(self) -> str:
        """What happens to this request."""
        with self._lock:
            self.seen += 1
            fault = self._fault
            if self.seen <= fault.after or self.struck >= fault.times:
                return ""
            self.struck += 1
            return fault.kind

    def close(self) -> None:
        """Stop."""
        self.heal()
        self._http.shutdown()
        self._http.server_close()


class _Server(ThreadingHTTPServer):
    """Callers come and go."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Somebody hung up."""


class _Handler(BaseHTTPRequestHandler):
    """One connection of a caller."""

    proxy: Proxy
    protocol_version = "HTTP/1.1"
    timeout = 120

    def do_GET(self) -> None:
        """Any request."""
        body = self._body()
        kind = self.proxy.due()
        acts: dict[str, Callable[[bytes], None]] = {
            "500": lambda _: self._refuse(500),
            "503": lambda _: self._refuse(503),
            "stall": lambda _: self._stall(),
            "cut request": self._cut_request,
        }
        if kind in acts:
            return acts[kind](body)
        try:
            status, headers, answer = self._forward(body)
        except OSError:
            return self._hang_up()
        return self._answer(kind, status, headers, answer)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("transfer-encoding", ""):
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _send(self, body: bytes, length: int) -> http.client.HTTPConnection:
        """The request, as it came, with so much of its body as is given."""
        line = http.client.HTTPConnection("127.0.0.1", self.proxy.upstream, timeout=60)
        line.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP | {"content-length"}:
                line.putheader(name, value)
        if body or length or self.command in ("PUT", "POST"):
            line.putheader("content-length", str(length))
        line.endheaders(body)
        return line

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        line = self._send(body, len(body))
        try:
            answer = line.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            line.close()

    def _answer(self, kind: str, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        if kind == "denied":
            return self._refuse(500)
        if kind == "lost":
            return self._hang_up()
        length, shown = len(body), body
        if kind == "wrong bytes" and body:
            at = len(body) // 2
            shown = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        if kind in ("cut answer", "short answer"):
            shown = body[: len(body) // 2]
            length = len(shown) if kind == "short answer" else length
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP | {"content-length"}:
                self.send_header(name, value)
        said = {name.lower(): value for name, value in headers}.get("content-length")
        self.send_header("content-length", said if self.command == "HEAD" and said else str(length))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(b"" if self.command == "HEAD" else shown)
        if kind == "cut answer":
            self._hang_up()
        return None

    def _refuse(self, status: int) -> None:
        body = b"<Error><Code>SlowDown</Code><Message>a fault</Message></Error>"
        with suppress(OSError):
            self.send_response_only(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)

    def _cut_request(self, body: bytes) -> None:
        with suppress(OSError, http.client.HTTPException):
            if not body:  # nothing of it could arrive
                return self._hang_up()
            self._send(body[: len(body) // 2], len(body)).close()
        return self._hang_up()

    def _stall(self) -> None:
        self.proxy.healed.wait(60)
        self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(2)
