"""A network that fails: a proxy on the loopback which cuts, stalls, closes half of a line, or loses what was said.

A fault is armed; it strikes the line that carries the byte it waits for, or the next COMMIT. One fault strikes once,
and the lines opened after it are good, unless it says otherwise. `heal` ends whatever still hangs.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

UP, DOWN = "up", "down"
"""To the server, and from it."""
_COMMIT: Final = b"\x00COMMIT\x00"
_DONE: Final = b"COMMIT\x00"
_PIECE: Final = 1 << 16
_RESET: Final = struct.pack("ii", 1, 0)
_WITH_COMMIT: Final = ("swallow", "withhold", "late", "mute")

KINDS: Final = {
    "cut up": "a line breaks in the middle of what is asked",
    "cut down": "a line breaks in the middle of an answer",
    "cut all": "every line breaks at once",
    "part": "every line breaks at once, and none can be had for a while",
    "half up": "the server hears the end of a line, and can still answer on it",
    "half down": "the caller hears the end of a line; the server has it open still",
    "stall up": "a line carries nothing any more, and stays open",
    "stall down": "a line carries nothing any more in the middle of an answer",
    "stall all": "no line carries anything, and new ones neither, for a while",
    "swallow": "a COMMIT is carried out, and its answer is lost with the line",
    "mute": "a COMMIT is carried out, its answer is lost, and the line stays open",
    "withhold": "a COMMIT never arrives; the line is lost, and the server has it open still",
    "late": "a COMMIT arrives after its line was lost",
}
"""What can happen to a network."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens, after how many bytes in its direction from now; a COMMIT is waited for instead."""

    kind: str
    after: int = 0
    lasts_s: float = 0.0
    act: Callable[[], None] | None = None
    """What is done to the server instead, while the line that carried that byte waits."""

    @property
    def direction(self) -> str:
        """The way that is counted."""
        return DOWN if self.kind.endswith(DOWN) else UP


class Proxy:
    """Carries bytes between callers and a server, and lets faults strike."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.lock = threading.Lock()
        self.carried = {UP: 0, DOWN: 0}
        self.struck, self.healed = threading.Event(), threading.Event()
        self._fault: Fault | None = None
        self._due, self._closed_until, self._mute = 0, 0.0, False
        self._lines: set[_Line] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    # --- faults ------------------------------------------------------------------------------------------------------

    def arm(self, fault: Fault) -> None:
        """Let a fault strike where it is due."""
        with self.lock:
            self.struck.clear()
            self.healed.clear()
            self._fault, self._due = fault, self.carried[fault.direction] + fault.after

    def heal(self) -> bool:
        """Have a good network again; whether the fault had struck."""
        with self.lock:
            self._fault, self._closed_until, self._mute = None, 0.0, False
            self.healed.set()
            return self.struck.is_set()

    def passes(self, direction: str, data: bytes) -> tuple[bytes, Fault | None]:
        """What of this still passes, and the fault that strikes after it."""
        with self.lock:
            self.carried[direction] += len(data)
            fault = self._fault
            if fault is None or direction != fault.direction:
                return data, None
            if fault.kind in _WITH_COMMIT:
                if _COMMIT not in data:
                    return data, None
                cut = 0
            elif self.carried[direction] <= self._due:
                return data, None
            else:
                cut = max(0, len(data) - (self.carried[direction] - self._due))
            self._fault = None
            self.struck.set()
            return data[:cut], fault

    def strike(self, fault: Fault, line: "_Line", rest: bytes) -> None:
        """Do to a line, or to all, what the fault says; `rest` is what did not pass any more."""
        if fault.act is not None:
            fault.act()
            line.go_on(rest)
            return
        if fault.kind in ("cut all", "part", "stall all"):
            with self.lock:
                lines = list(self._lines)
                self._closed_until = time.monotonic() + fault.lasts_s if fault.kind == "part" else 0.0
                self._mute = fault.kind == "stall all"
            for each in lines:
                each.stall() if fault.kind == "stall all" else each.cut()
            return
        line.suffer(fault, rest)

    # --- lines -------------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if time.monotonic() < self._closed_until:
                _reset(client)
                continue
            try:
                server = self._connect()
            except OSError:  # as a server that is down answers
                _reset(client)
                continue
            line = _Line(self, client, server)
            with self.lock:
                self._lines.add(line)
                muted = self._mute
            if muted:
                line.stall()
            line.start()

    def forget(self, line: "_Line") -> None:
        """A line has ended."""
        with self.lock:
            self._lines.discard(line)

    def close(self) -> None:
        """End every line."""
        self.heal()
        self._listening.close()
        with self.lock:
            lines = list(self._lines)
        for line in lines:
            line.cut()


class _Line:
    """One connection: a thread for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._stalled, self._swallowing = threading.Event(), ""
        self._ends = threading.Semaphore(0)

    def start(self) -> None:
        """Carry from now on."""
        threading.Thread(target=self._carry, args=(UP, self._client, self._server), daemon=True).start()
        threading.Thread(target=self._carry, args=(DOWN, self._server, self._client), daemon=True).start()
        threading.Thread(target=self._bury, daemon=True).start()

    def _bury(self) -> None:
        for _ in (UP, DOWN):
            self._ends.acquire()
        _close(self._client)
        _close(self._server)
        self._proxy.forget(self)

    def _carry(self, direction: str, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(_PIECE):
                if self._stalled.is_set():
                    self._wait_out()
                    return
                if direction == DOWN and self._swallowing:
                    if self._swallowed(data):
                        return
                    continue
                passing, fault = self._proxy.passes(direction, data)
                if passing:
                    sink.sendall(passing)
                if fault is not None:
                    self._proxy.strike(fault, self, data[len(passing) :])
            if self._stalled.is_set():  # nobody hears of an end either
                self._wait_out()
            with suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
        except OSError:
            self.cut()
        finally:
            self._ends.release()

    def suffer(self, fault: Fault, rest: bytes) -> None:
        """What happens to this line."""
        match fault.kind:
            case "cut up" | "cut down":
                self.cut()
            case "half up":
                with suppress(OSError):
                    self._server.shutdown(socket.SHUT_WR)
            case "half down":
                with suppress(OSError):
                    self._client.shutdown(socket.SHUT_WR)
            case "stall up" | "stall down":
                self.stall()
            case "withhold":
                self._leave_open()
            case "late":
                self._deliver_late(rest, fault.lasts_s)
            case "swallow" | "mute":
                self._swallowing = fault.kind
                self._server.sendall(rest)

    def go_on(self, rest: bytes) -> None:
        """Carry what was held up, if there is anybody left to carry it to."""
        with suppress(OSError):
            self._server.sendall(rest)

    def _swallowed(self, data: bytes) -> bool:
        """The answer to a COMMIT goes nowhere; whether the line is over with it."""
        if _DONE not in data:
            return False
        if self._swallowing == "swallow":
            self.cut()
        else:
            self.stall()
            self._wait_out()
        return True

    def _leave_open(self) -> None:
        """The caller loses the line; the server keeps it until all is healed."""
        _reset(self._client)
        self._wait_out()

    def _deliver_late(self, rest: bytes, after_s: float) -> None:
        _reset(self._client)
        time.sleep(after_s)
        with suppress(OSError):
            self._server.sendall(rest)
        self._wait_out()

    def stall(self) -> None:
        """Carry nothing from now on."""
        self._stalled.set()

    def _wait_out(self) -> None:
        self._proxy.healed.wait(300)
        self.cut()

    def cut(self) -> None:
        """Break both ends."""
        _reset(self._client)
        _reset(self._server)


def _reset(end: socket.socket) -> None:
    """End a connection at once, as a router does that knows nothing of it."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    _close(end)


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.close()


def to_unix(path: str) -> Callable[[], socket.socket]:
    """How a server is reached that listens on a socket file."""

    def connect() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        try:
            made.connect(path)
        except OSError:
            made.close()
            raise
        return made

    return connect


def to_port(port: int) -> Callable[[], socket.socket]:
    """How a server is reached that listens on a port of this machine."""
    return lambda: socket.create_connection(("127.0.0.1", port))
