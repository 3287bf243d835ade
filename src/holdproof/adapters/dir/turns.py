"""Make the read-then-write of DIR's managers safe although it is two calls.

DIR's managers read (how much is out? how many were spent?) and then write; others may write in between. So a storage
remembers what it answered to each thread (`LastRead`), and a write is accepted only if that still holds. Where the
manager does not read again by itself, threads take turns (`TurnTaking`), so that none is refused for a stale read.
"""

import threading
from time import monotonic
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_MOST: Final = 10_000
"""How many looks without a write a thread may leave behind."""


class LastRead(threading.local, Generic[T]):
    """What this thread was told last, by key; each is believed once. Of very many, only the newest are kept."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, ...], T] = {}

    def record(self, *key: str, value: T) -> T:
        """Keep what the thread is told, and give it back."""
        self._values.pop(key, None)
        self._values[key] = value
        # Reads that no write follows would pile up for the life of the thread.
        if len(self._values) > _MOST:
            del self._values[next(iter(self._values))]
        return value

    def take(self, *key: str) -> T | None:
        """Return what the thread was told, and forget it; None if it never asked."""
        return self._values.pop(key, None)


class TurnTaking:
    """One thread at a time from its look to its write; a look that no write follows holds others up only briefly."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._holders: dict[str, tuple[int, float]] = {}
        self._ended = threading.Condition()

    def begin(self, key: str) -> None:
        """Wait until no other thread is between its look and its write."""
        with self._ended:
            while (wait_s := self._wait_s(key)) > 0:
                self._ended.wait(wait_s)
            self._holders[key] = (threading.get_ident(), monotonic() + self._patience_s)

    def end(self, key: str) -> None:
        """Let the next thread look."""
        with self._ended:
            self._holders.pop(key, None)
            self._ended.notify_all()

    def _wait_s(self, key: str) -> float:
        holder, until = self._holders.get(key, (0, 0.0))
        # A thread never waits for itself, and for others only as long as their patience lasts.
        return 0.0 if holder in {0, threading.get_ident()} else until - monotonic()
