"""Looks and writes that belong together: what DIR's managers do in two calls, made safe.

DIR's managers look (how much is out? how many were spent?) and then write. Others write in between. So a storage keeps
what it told each thread (`Seen`), and a write counts only against that; and where the manager does not look again by
itself, threads take turns (`Turns`), so that none of them is refused for having looked too early.
"""

import threading
from time import monotonic
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_MOST: Final = 10_000
"""How many looks without a write a thread may leave behind."""


class Seen(threading.local, Generic[T]):
    """What this thread was told last, by key; each is believed once. Of very many, only the newest are kept."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, ...], T] = {}

    def tell(self, *key: str, value: T) -> T:
        """Keep what the thread is told, and give it back."""
        self._told.pop(key, None)
        self._told[key] = value
        if len(self._told) > _MOST:
            del self._told[next(iter(self._told))]
        return value

    def take(self, *key: str) -> T | None:
        """What the thread was told, and forget it; None if it never asked."""
        return self._told.pop(key, None)


class Turns:
    """One thread at a time from its look to its write; a look that no write follows holds others up only briefly."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._holders: dict[str, tuple[int, float]] = {}
        self._ended = threading.Condition()

    def begin(self, key: str) -> None:
        """Wait until no other thread is between its look and its write."""
        with self._ended:
            while (left := self._left(key)) > 0:
                self._ended.wait(left)
            self._holders[key] = (threading.get_ident(), monotonic() + self._patience_s)

    def end(self, key: str) -> None:
        """Let the next thread look."""
        with self._ended:
            self._holders.pop(key, None)
            self._ended.notify_all()

    def _left(self, key: str) -> float:
        holder, until = self._holders.get(key, (0, 0.0))
        return 0.0 if holder in {0, threading.get_ident()} else until - monotonic()
