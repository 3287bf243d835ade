"""The proxy over standard input and output: it starts the server's command and stands between it and the client.

Rules:
- Standard output belongs to the protocol; the server's own standard error is passed through.
- With a gate a message is passed on as it was understood, not byte for byte: two parsers must not see two messages.
- It ends when the client closes its end, when the server ends, or by a signal, and takes the server with it.
"""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, Final

from holdproof.adapters.mcp_proxy.relay import CALL, Message, Relay
from holdproof.errors import NotFoundError

_GRACE_S: Final = 5.0
_PIECE: Final = 65_536
_INTERRUPTED: Final = 130


def lines(handle: int) -> Iterator[bytes]:
    """Yield the lines of a pipe. Read without Python's buffers: a thread that waits in one could not be left behind."""
    rest = bytearray()
    while True:
        try:
            piece = os.read(handle, _PIECE)
        except OSError:
            piece = b""
        if not piece:
            break
        # Only what is new can hold the end of a line: an answer of megabytes comes in many pieces.
        start = len(rest)
        rest += piece
        while (end := rest.find(b"\n", start)) >= 0:
            yield bytes(rest[:end])
            del rest[: end + 1]
            start = 0
    if rest:
        yield bytes(rest)


def messages(line: bytes) -> list[Message]:
    """Return the messages of a line: one, or those of a batch; what is none is said to be unparsed."""
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    batch = value if isinstance(value, list) and value else [value]
    text = line.decode("utf-8", "replace")
    return [each if isinstance(each, dict) else {"unparsed": text} for each in batch]


class StdioProxy:
    """Runs a server's command between the client's pipes and its own."""

    def __init__(self, relay: Relay, command: Sequence[str], *, source: int = 0, target: int = 1) -> None:
        """Read the client from one handle and write to it at another; `run` starts the server."""
        self._relay = relay
        self._command = list(command)
        self._source = source
        self._target = target
        self._output = threading.Lock()
        self._input = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()
        self._reason = "the server ended"
        self._signalled = False
        self._calls: list[threading.Thread] = []

    def run(self) -> int:
        """Pass messages on until one side is gone; return the exit code: the server's, 0 if the client left."""
        self._server = self._started()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        threading.Thread(target=self._from_client, daemon=True, name="mcp-client").start()
        reader = threading.Thread(target=self._from_server, daemon=True, name="mcp-server")
        reader.start()
        # Waited for in pieces: a signal is handled between two of them.
        while not self._ended.wait(0.2):
            pass
        self._relay.closing.set()
        code = self._end_server()
        reader.join(_GRACE_S)
        for answer in self._relay.server_gone(f"{self._reason} (exit code {code})"):
            self._to_client(answer)
        self._relay.run.stop(self._reason)
        if self._signalled:
            return _INTERRUPTED
        return 0 if self._reason == "the client closed its end" else code

    def _started(self) -> subprocess.Popen[bytes]:
        try:
            # A group of its own: Ctrl-C reaches the proxy, which ends the server in order.
            return subprocess.Popen(  # noqa: S603 (the command that the user names)
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
            )
        except OSError as error:
            self._relay.run.stop(f"the server could not be started: {error}")
            message = f"{self._command[0]} cannot be started: {error.strerror}; check the command after --"
            raise NotFoundError(message, command=self._command[0]) from error

    def _stop(self, number: int, _: FrameType | None) -> None:
        self._signalled = True
        self._end(f"signal {number}")

    def _end(self, reason: str) -> None:
        if not self._ended.is_set():
            self._reason = reason
            self._ended.set()

    def _end_server(self) -> int:
        """Let the server end by itself, then ask it to, then make it."""
        server = self._server
        assert server is not None, "started in run"
        if server.stdin is not None:
            with self._input:
                server.stdin.close()
        for act in (None, server.terminate, server.kill):
            if act is not None:
                act()
            try:
                return server.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                continue
        return server.wait()

    # --- the client ----------------------------------------------------------------------------------------------

    def _from_client(self) -> None:
        for line in lines(self._source):
            for message in messages(line):
                self._take(message)
            if not self._relay.gate:
                self._to_server(line)
        # Nobody is left to hear what a call came to that still waits; those that were allowed reach the server.
        self._relay.closing.set()
        for call in self._calls:
            call.join()
        self._end("the client closed its end")

    def _take(self, message: Message) -> None:
        if not self._relay.gate or "unparsed" in message:
            # With a gate it goes no further: what the proxy cannot read a more generous server might.
            self._relay.from_client(message, self._to_client)
        elif message.get("method") == CALL:
            # It may wait for a person, and what the client sends meanwhile must not.
            call = threading.Thread(target=self._pass, args=(message,), daemon=True, name="mcp-call")
            self._calls = [each for each in self._calls if each.is_alive()]
            self._calls.append(call)
            call.start()
        else:
            self._pass(message)

    def _pass(self, message: Message) -> None:
        outcome = self._relay.from_client(message, self._to_client)
        if outcome.forward:
            self._to_server(_encoded(message))
        elif outcome.reply is not None:
            self._to_client(outcome.reply)

    def _to_server(self, line: bytes) -> None:
        server = self._server
        assert server is not None, "started in run"
        assert server.stdin is not None, "a pipe"
        with self._input:
            try:
                _write(server.stdin.fileno(), line + b"\n")
            except (OSError, ValueError):
                self._end("the server ended")

    # --- the server ----------------------------------------------------------------------------------------------

    def _from_server(self) -> None:
        server = self._server
        assert server is not None, "started in run"
        assert server.stdout is not None, "a pipe"
        for line in lines(server.stdout.fileno()):
            for message in messages(line):
                self._relay.from_server(message)
            self._write_client(line)
        self._end("the server ended")

    def _to_client(self, message: Message) -> None:
        self._write_client(_encoded(message))

    def _write_client(self, line: bytes) -> None:
        with self._output:
            try:
                _write(self._target, line + b"\n")
            except OSError:
                self._end("the client closed its end")


def _encoded(message: Message) -> bytes:
    # Lone surrogates are escaped so, as they came.
    return json.dumps(message, separators=(",", ":")).encode()


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
