"""Every change of the disk that a store makes, seen, counted, and made to fail on demand.

SQLite's files are seen by a VFS (vfs.py), our own by the functions of `os` and `io` (calls.py). Both ask here before
they act and tell here after it.

Rules:
- Only what lies below the watched folder counts; the rest of the process is left alone.
- A fault is one of a kind (`KINDS`) by its number; `full` is the write from which on the disk has no room, to the end;
  `kill` is the event, of whatever kind, before which the process dies.
- A write that fails may have come half way: how much of it, the seed says.
- An event is recorded in the same breath as it happens, so that the order of events is one that could have been.
"""

import errno
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

KINDS: Final = ("write", "sync", "open", "truncate", "delete", "rename", "mkdir")
FULL: Final = "full"
KILL: Final = "kill"
_GROWING: Final = frozenset({"write", "mkdir", "rename"})
"""What a full disk refuses; opening a file that is there needs no room, making one needs a write soon."""

_SYNCS: Final = frozenset({"sync", "syncdir"})

Event = tuple[Any, ...]
"""What happened: a word, and what it happened to."""


class FaultError(Exception):
    """The disk says no: `full` if for want of room; `kept` is how many bytes of a write arrived all the same."""

    def __init__(self, kind: str, *, full: bool, kept: int = 0) -> None:
        super().__init__(kind)
        self.kind, self.full, self.kept = kind, full, kept

    @property
    def system(self) -> OSError:
        """As the system says it."""
        return OSError(errno.ENOSPC if self.full else errno.EIO, "injected")


@dataclass(slots=True)
class Watch:
    """What is watched, counted, recorded, and due to fail."""

    root: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    events: list[Event] | None = None
    fired: list[str] = field(default_factory=list)
    lies: bool = False
    """Whether this disk says that it has synced and has not; to see that somebody notices."""
    lock: Any = field(default_factory=threading.RLock)
    _kind: str = ""
    _at: int = 0
    _chance: random.Random = field(default_factory=random.Random)
    _handles: Iterator[int] = field(default_factory=lambda: count(1))

    def below(self, path: str) -> bool:
        """Whether a path is watched."""
        return bool(self.root) and (path == self.root or path.startswith(f"{self.root}/"))

    def handle(self) -> int:
        """A number for a file that is opened."""
        return next(self._handles)

    def arm(self, kind: str, at: int, seed: int) -> None:
        """Let the `at`-th event of a kind fail, counted from now."""
        self._kind, self._at, self._chance = kind, at, random.Random(f"{seed}/{kind}/{at}")
        self.counts.clear()
        self.fired.clear()

    def ask(self, kind: str, path: str, size: int = 0) -> None:
        """Before an event: raises if it is to fail."""
        if not self.below(path):
            return
        self.counts[kind] += 1
        if self._kind == KILL:
            if self.counts.total() == self._at:
                os.kill(os.getpid(), signal.SIGKILL)
        elif self._kind == FULL:
            if kind in _GROWING and self.counts["write"] >= self._at:
                self._fire(kind, path, size, full=True)
        elif kind == self._kind and self.counts[kind] == self._at:
            self._fire(kind, path, size, full=False)

    def _fire(self, kind: str, path: str, size: int, *, full: bool) -> None:
        self.fired.append(f"{kind} {path.removeprefix(self.root)}")
        raise FaultError(kind, full=full, kept=self._chance.randrange(size) if size else 0)

    def tell(self, path: str, *event: Any) -> None:
        """After an event: kept, if anybody wants a record."""
        if self.events is not None and self.below(path) and not (self.lies and event[0] in _SYNCS):
            self.events.append(event)

    def say(self, line: dict[str, Any]) -> None:
        """What the scenario says, among the events: a promise holds from here on."""
        if self.events is not None:
            with self.lock:
                self.events.append(("say", line))


WATCH: Final = Watch()
"""The one of this process."""


@contextmanager
def watching(root: str, kind: str = "", at: int = 0, seed: int = 0, *, record: bool = False) -> Iterator[Watch]:
    """Watch a folder, with a fault to come or none."""
    WATCH.root, WATCH.events = root, [] if record else None
    WATCH.arm(kind, at, seed)
    try:
        yield WATCH
    finally:
        WATCH.root = ""
