"""The process of the recorder: `python -m holdproof.adapters.hooks.service --state FOLDER`.

Hooks start it when there is none, and it ends when no event came for a while.

Rules:
- One recorder for a folder: it holds a lock for as long as it lives, and a second one ends at once.
- It listens on a socket in that folder, which only its user can open: whoever can connect may read the store's files
  anyway.
- Events are written one after the other, in the order in which they come.
"""

import argparse
import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from holdproof import folders, sync
from holdproof.adapters.hooks import client
from holdproof.adapters.hooks.recorder import Recorder
from holdproof.errors import HoldproofError

IDLE_S: Final = 600.0
"""How long a recorder waits for events; the next one starts another."""
_TICK_S: Final = 0.5
_READ_S: Final = 5.0
_MOST: Final = 64 << 20


class _Stopping:
    """Whether a signal asked to stop."""

    def __init__(self) -> None:
        self.signal: int | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._come)

    def _come(self, number: int, _: FrameType | None) -> None:
        self.signal = number


def lock(state: Path) -> int | None:
    """Take the lock of a folder; return its handle, None where another recorder has it."""
    handle = os.open(state / client.LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def is_running(state: Path) -> bool:
    """Return whether a recorder runs for a folder."""
    if not (state / client.LOCK).is_file():
        return False
    handle = lock(state)
    if handle is None:
        return True
    os.close(handle)
    return False


def _listen(state: Path) -> socket.socket:
    """Return the socket of a folder, listening; what another recorder left behind is replaced."""
    (state / client.SOCKET).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Bound from inside the folder: the name of a socket has a hundred characters at most.
    os.chdir(state)
    listener.bind(client.SOCKET)
    os.chmod(client.SOCKET, 0o600)
    listener.listen(64)
    listener.settimeout(_TICK_S)
    return listener


def _exchange(connection: socket.socket, recorder: Recorder) -> None:
    """Read one event, write it, answer; a hook that is gone meanwhile has its event written all the same."""
    with connection:
        connection.settimeout(_READ_S)
        data = bytearray()
        while not data.endswith(b"\n") and len(data) < _MOST:
            piece = connection.recv(65_536)
            if not piece:
                break
            data += piece
        answer = recorder.handle(_message(bytes(data)))
        connection.sendall(json.dumps(answer).encode())


def _message(data: bytes) -> dict[str, Any]:
    try:
        message = json.loads(data)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def serve(recorder: Recorder, listener: socket.socket, idle_s: float) -> str:
    """Write events until nobody sends any; return why it ended."""
    stopping = _Stopping()
    last = time.monotonic()
    while stopping.signal is None:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            recorder.tick()
            if time.monotonic() - last > idle_s:
                return "no event for a while"
            continue
        last = time.monotonic()
        with contextlib.suppress(OSError):
            _exchange(connection, recorder)
    return f"signal {stopping.signal}"


def main(words: Sequence[str]) -> int:
    """Run a recorder; return the exit code: 0, or that of what keeps the store from being opened."""
    parser = argparse.ArgumentParser(prog="holdproof.adapters.hooks.service")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--home")
    parser.add_argument("--idle-s", type=float, default=IDLE_S)
    options = parser.parse_args(words)
    state = options.state.absolute()
    home = None if options.home is None else os.path.abspath(options.home)
    folders.make(state)
    handle = lock(state)
    if handle is None:
        return 0
    try:
        store = sync.open(home)
    except HoldproofError as error:
        # The next hook shows it to the agent's user.
        (state / client.ERROR).write_text(f"{error.code}: {error.message}\n", encoding="utf-8")
        return error.exit_code
    with store:
        recorder = Recorder(store, state)
        try:
            # Listening first: hooks that come while the spool is written wait for their answer.
            listener = _listen(state)
            recorder.start()
            reason = serve(recorder, listener, options.idle_s)
            (state / client.SOCKET).unlink(missing_ok=True)
            listener.close()
            recorder.stop(reason)
        except HoldproofError as error:
            (state / client.ERROR).write_text(f"{error.code}: {error.message}\n", encoding="utf-8")
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
