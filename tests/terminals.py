"""A program on a terminal of its own, for tests: what it shows is waited for, and answered."""

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

_PATIENCE_S = 120
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A running program, and the other end of its terminal."""

    def __init__(self, child: "subprocess.Popen[bytes]", handle: int) -> None:
        self.child = child
        self.raw = b""
        self._handle = handle
        self._from = 0

    @property
    def seen(self) -> str:
        """Everything that was shown, without colours."""
        return _STYLE.sub("", self.raw.decode(errors="replace"))

    def expect(self, text: str) -> str:
        """Wait until a text is shown after what was waited for before; return what came up to it."""
        while (at := self.seen.find(text, self._from)) < 0:
            assert self._read(), f"{text!r} never came: {self.seen[self._from :]}"
        shown = self.seen[self._from : at]
        self._from = at + len(text)
        return shown

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self._handle, f"{line}\n".encode())

    def end(self) -> str:
        """Read to the end; return all that was shown."""
        while self._read():
            pass
        return self.seen

    def _read(self) -> bool:
        """Read what comes next; False at the end."""
        deadline = time.monotonic() + _PATIENCE_S
        while not select.select([self._handle], [], [], 1.0)[0]:
            assert time.monotonic() < deadline, f"nothing more came: {self.seen!r}"
        try:
            chunk = os.read(self._handle, 1 << 16)
        except OSError:  # Linux: nobody has the other end any more
            return False
        self.raw += chunk
        return bool(chunk)


@contextmanager
def terminal(
    words: Sequence[str], environment: Mapping[str, str] | None = None, *, columns: int = 100, lines: int = 40
) -> Iterator[Terminal]:
    """Run a program on a terminal of that size."""
    ours, theirs = pty.openpty()
    size = {"TERM": "xterm", "COLUMNS": str(columns), "LINES": str(lines)}
    with subprocess.Popen(
        words,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, **(environment or {}), **size},
        preexec_fn=_hear_ctrl_c,
    ) as child:
        os.close(theirs)
        try:
            yield Terminal(child, ours)
        finally:
            child.kill()
            os.close(ours)


def _hear_ctrl_c() -> None:
    # A shell's background job, and so every child of one, would ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
