"""The process from which runs of `holdproof` are forked (harness/forked.py): one for each process of tests.

It has the modules of the program imported and nothing open: no store, no thread, no event loop. It ends when the pipe
to the process that started it closes, and a run ends with its launcher.
"""

import atexit
import functools
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO

from holdproof.api import catalogue

_HEADER = 8
_STREAMS = 3
_PRELOADED = ("holdproof.cli.app", "holdproof.cli.serve", "holdproof.client", "holdproof.sync", "holdproof.server.mcp")
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""For numpy, which would start threads when it is imported; a fork has none of them."""


@functools.cache
def address() -> str:
    """Start the process, once; return the address of its socket, which takes launchers from now on."""
    folder = Path(tempfile.mkdtemp(prefix="holdproof-forking-"))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "s"))
    listener.listen(64)
    words = [sys.executable, "-m", "harness.forking", str(listener.fileno())]
    root = Path(__file__).resolve().parents[1]
    environment = os.environ | _ONE_THREAD
    process = subprocess.Popen(words, stdin=subprocess.PIPE, cwd=root, env=environment, pass_fds=[listener.fileno()])
    listener.close()
    atexit.register(_end, process, folder)
    return str(folder / "s")


def _end(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait()
    (folder / "s").unlink()
    folder.rmdir()


class _Server:
    """Takes launchers, forks their runs and answers with exit codes."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._lines: dict[int, socket.socket] = {}
        self._events = selectors.DefaultSelector()
        # A child that ends wakes the loop through this pair.
        self._woken, self._wakes = socket.socketpair()
        self._wakes.setblocking(False)

    def serve(self) -> None:
        """Serve until the process that started this one is gone."""
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at the tests reaches their whole group
        for source in (sys.stdin.buffer, self._woken, self._listener):
            self._events.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in self._events.select():
                if key.fileobj is sys.stdin.buffer:
                    return
                if key.fileobj is self._woken:
                    self._woken.recv(64)
                    self._answer()
                elif key.fileobj is self._listener:
                    self._begin()
                else:
                    # The launcher is gone before its run.
                    os.kill(key.data, signal.SIGKILL)
                    self._events.unregister(key.fileobj)

    def _begin(self) -> None:
        line, _ = self._listener.accept()
        header, streams, _, _ = socket.recv_fds(line, _HEADER, _STREAMS)
        size = int.from_bytes(header, "big")
        body = line.recv(size, socket.MSG_WAITALL)
        if not streams or len(body) < size:  # killed before it had said what to run
            line.close()
            return
        pid = os.fork()
        if pid == 0:
            line.close()
            self._become(json.loads(body), streams)
        for stream in streams:
            os.close(stream)
        line.sendall(pid.to_bytes(_HEADER, "big", signed=True))
        self._lines[pid] = line
        self._events.register(line, selectors.EVENT_READ, pid)

    def _answer(self) -> None:
        """Tell the launchers of those that ended how they ended."""
        while self._lines:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            line = self._lines.pop(pid)
            with suppress(KeyError):
                self._events.unregister(line)
            with line, suppress(OSError):
                line.sendall(os.waitstatus_to_exitcode(status).to_bytes(_HEADER, "big", signed=True))

    def _become(self, run: dict[str, Any], streams: list[int]) -> NoReturn:
        """Become a run of the program, as if it had been started."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._events.close()
        for each in (self._listener, self._woken, self._wakes, *self._lines.values()):
            each.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        # Those of the forking process remember whether their files could be sought in, and these are others.
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (open to the end of the process)
        sys.stdout = _text_output(1, "strict")
        sys.stderr = _text_output(2, "backslashreplace")
        os.chdir(run["folder"])
        os.environ.clear()
        os.environ.update(run["environment"])
        sys.argv = ["holdproof", *run["words"]]
        code: Any = 0
        try:
            runpy.run_module("holdproof", run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            code = ended.code
        raise SystemExit(code)


def _text_output(number: int, errors: str) -> TextIO:
    file = open(number, "w", encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115 (the same)
    file.reconfigure(line_buffering=number == 2 or file.isatty())
    return file


def main() -> None:
    """Import what the program needs, then fork for every launcher."""
    for module in _PRELOADED:
        importlib.import_module(module)
    catalogue.methods()  # imports what each of them calls
    _Server(socket.socket(fileno=int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
