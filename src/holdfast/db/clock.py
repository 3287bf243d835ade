"""Time and randomness, both handed in, so that every test can freeze them.

A `Clock` answers microseconds since 1970; a `Random` answers n random bytes. Operations reach them only through their
transaction (`tx.now`, `tx.new_id()`, `tx.random(n)`).
"""

import os
import threading
import time
from collections.abc import Callable

Clock = Callable[[], int]
Random = Callable[[int], bytes]


def system_clock() -> int:
    """The machine's own clock."""
    return time.time_ns() // 1000


system_random: Random = os.urandom

_TAIL_BITS = 74
_POOL = 1024


class Ids:
    """UUIDv7 text: sorted by time, strictly increasing for one maker even when the clock stands still or jumps back.

    One maker may serve several threads.
    """

    __slots__ = ("_at", "_head", "_lock", "_millis", "_pool", "_random", "_tail")

    def __init__(self, random: Random) -> None:
        self._random, self._lock = random, threading.Lock()
        self._millis, self._head, self._tail = -1, "", 0
        self._pool, self._at = b"", _POOL

    def new(self, micros: int) -> str:
        """The next id for that moment."""
        with self._lock:
            return self._next(micros // 1000)

    def _next(self, millis: int) -> str:
        if millis > self._millis:
            self._begin(millis)
        else:  # the same millisecond, or an older one: go on from the last id by a random step
            at = self._at
            if at >= _POOL:
                self._pool, at = self._random(_POOL), 0
            self._at = at + 4
            self._tail += 1 + int.from_bytes(self._pool[at : at + 4], "big")
            if self._tail >> _TAIL_BITS:
                self._begin(self._millis + 1)
        tail = self._tail
        return f"{self._head}{tail >> 62:03x}-{0x8000 | tail >> 48 & 0x3FFF:04x}-{tail & 0xFFFFFFFFFFFF:012x}"

    def _begin(self, millis: int) -> None:
        digits = f"{millis:012x}"
        self._millis, self._head = millis, f"{digits[:8]}-{digits[8:]}-7"
        # One bit less than fits, so that there is room to count on.
        self._tail = int.from_bytes(self._random(10), "big") >> 7
