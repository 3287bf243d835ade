"""A small C2SP witness: cosigns the heads of configured logs, each only if it continues the one cosigned before.

Rules:
- Comparing with the last head and storing the new one are one step under a lock, durable before the answer is sent:
  two histories of one log are never both cosigned, not even after a power cut.
- Only logs whose keys it was given are cosigned; its state is one file, replaced atomically.
- Bodies, headers and time are bounded; nothing a client sends is trusted before its signature is verified.
"""

import fcntl
import json
import logging
import os
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from holdproof import folders
from holdproof.content import disk
from holdproof.crypto import b64, vkey, witness
from holdproof.crypto.canonical import sha256_hex
from holdproof.crypto.checkpoint import LogCheckpoint
from holdproof.crypto.keys import Signer
from holdproof.crypto.vkey import ED25519, VerifierKey, cosigning_kind
from holdproof.crypto.witness import AddCheckpoint, KnownLog, WitnessResponse
from holdproof.db.clock import Clock
from holdproof.errors import BadKeyError, CorruptError, FormatError, UnavailableError

_log = logging.getLogger("holdproof.witness")

MOST_BYTES: Final = 1 << 16
_LENGTH_DIGITS: Final = 10
_TIMEOUT_S = 10.0
_MOST_THREADS = 64


class WitnessState:
    """The last head of each log: one JSON file, `{origin: {size, root, sha256}}`.

    Each entry has its own digest: with a flipped bit in it, a witness would cosign another history of the log.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    @contextmanager
    def locked(self) -> Iterator[dict[str, LogCheckpoint]]:
        """Hold the lock, between threads and processes, and give the last head of each log."""
        with self._lock:
            try:
                folders.make(self.path.parent)
                file = os.open(self.path.with_name(self.path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
            except OSError as error:
                raise UnavailableError(f"cannot open {self.path}: {error.strerror}") from error
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield self._read()
            finally:
                os.close(file)

    def _read(self) -> dict[str, LogCheckpoint]:
        try:
            entries = json.loads(self.path.read_text(encoding="utf-8"))
            return {origin: _parse_entry(origin, entry) for origin, entry in entries.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, FormatError) as error:
            raise CorruptError(f"the witness's memory {self.path} cannot be read: {error}") from error

    def write(self, heads: dict[str, LogCheckpoint]) -> None:
        """Replace the file; durable when this returns. Called with it locked."""
        plain = {
            origin: {"size": head.size, "root": b64.encode(head.root), "sha256": _digest(head)}
            for origin, head in heads.items()
        }
        with disk.translated(self.path):
            disk.exchange(self.path, json.dumps(plain, indent=1, sort_keys=True).encode())


def _parse_entry(origin: str, entry: dict[str, Any]) -> LogCheckpoint:
    """Parse an entry; ValueError if its digest is wrong. Entries of older versions have no digest."""
    head = LogCheckpoint(origin, int(entry["size"]), b64.decode(entry["root"]))
    if entry.get("sha256") not in (None, _digest(head)):
        raise ValueError(f"the entry of {origin} is damaged")
    return head


def _digest(head: LogCheckpoint) -> str:
    return sha256_hex(f"{head.origin}\n{head.size}\n{b64.encode(head.root)}\n".encode())


class Cosigner:
    """One witness: its name and key, the logs it cosigns, its state."""

    def __init__(self, name: str, signer: Signer, logs: Iterable[str], state: WitnessState, clock: Clock) -> None:
        self.key = VerifierKey(name, cosigning_kind(signer.alg), signer.public)
        self._signer = signer
        self._state = state
        self._clock = clock
        self._logs: dict[str, tuple[VerifierKey, ...]] = {}
        for line in logs:
            key = vkey.parse(line)
            if key.kind != ED25519:
                raise BadKeyError("that is the key of a witness, not of a log", name=key.name)
            self._logs[key.name] = (*self._logs.get(key.name, ()), key)

    def add_checkpoint(self, body: bytes) -> WitnessResponse:
        """Cosign a head, or answer why not, with the status codes of tlog-witness."""
        try:
            request = witness.parse_request(body)
        except FormatError as error:
            return WitnessResponse(400, f"{error}\n")
        origin = request.head.checkpoint.origin
        if origin not in self._logs:
            return witness.review(request, None)
        with self._state.locked() as heads:
            last = heads.get(origin)
            state = KnownLog(self._logs[origin])
            answer = witness.review(request, state if last is None else replace(state, size=last.size, root=last.root))
            if answer.status == 200:
                # Durable before the cosignature is made: see the rules above.
                self._state.write({**heads, origin: request.head.checkpoint})
        return self._cosign(request) if answer.status == 200 else answer

    def _cosign(self, request: AddCheckpoint) -> WitnessResponse:
        seconds = self._clock() // 1_000_000
        return WitnessResponse(200, witness.cosign(request.head, self.key.name, self._signer, seconds=seconds).line())


class WitnessServer(ThreadingHTTPServer):
    """A witness behind HTTP: `POST <prefix>/add-checkpoint`."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, address: tuple[str, int], served: Cosigner) -> None:
        self.witness = served
        self._room = threading.BoundedSemaphore(_MOST_THREADS)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a request, up to a bound; beyond it callers wait in the socket's queue."""
        # Blocks the accept loop, so that further callers wait in the socket's queue.
        self._room.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one request and free its place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()


class _Handler(BaseHTTPRequestHandler):
    server: WitnessServer
    server_version = "holdproof-witness"
    sys_version = ""
    timeout = _TIMEOUT_S

    def setup(self) -> None:
        """Give the whole request its time: a limit for each read would let a caller send its head for hours."""
        super().setup()
        self._limit = threading.Timer(_TIMEOUT_S, self._hang_up)
        self._limit.daemon = True
        self._limit.start()

    def handle(self) -> None:
        """Serve the request; a caller that was hung up on gets no answer, and that is no error of ours."""
        with suppress(ConnectionError):
            super().handle()

    def finish(self) -> None:
        """Answer, and stop the clock."""
        self._limit.cancel()
        super().finish()

    def _hang_up(self) -> None:
        with suppress(OSError):  # the caller was faster
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        """Show the key, to be compared with what the operator says."""
        if not self.path.endswith("/key"):
            return self._send(WitnessResponse(404, "there is only key and add-checkpoint here\n"))
        return self._send(WitnessResponse(200, f"{self.server.witness.key.encode()}\n"))

    def do_POST(self) -> None:
        """Answer `add-checkpoint`."""
        length = self.headers.get("content-length", "")
        if not self.path.endswith("/add-checkpoint"):
            return self._send(WitnessResponse(404, "there is only add-checkpoint here\n"))
        # Longer numbers are too large anyway, and Python refuses to read the longest ones.
        if not length.isdecimal() or len(length) > _LENGTH_DIGITS or int(length) > MOST_BYTES:
            return self._send(WitnessResponse(413, f"a request has a length, of at most {MOST_BYTES} bytes\n"))
        body = self._body(int(length))
        if len(body) < int(length):
            self.close_connection = True
            return None
        try:
            return self._send(self.server.witness.add_checkpoint(body))
        except (UnavailableError, CorruptError) as error:
            self.log_error("%s", error)
            return self._send(WitnessResponse(503, "the witness cannot remember what it cosigns\n"))

    def _body(self, length: int) -> bytes:
        """Read the body, or what came of it before the caller hung up or its time was over."""
        data = b""
        while len(data) < length and (part := self.rfile.read1(length - len(data))):
            data += part
        return data

    def log_message(self, format: str, *args: Any) -> None:
        """Log what the base class would write to stderr."""
        _log.info(format, *args)

    def _send(self, answer: WitnessResponse) -> None:
        data = answer.body.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True
