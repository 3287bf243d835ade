"""Time and randomness, both handed in, so that every test can freeze them.

A `Clock` answers microseconds since 1970; a `Random` answers n random bytes. Operations reach them only through their
transaction (`tx.now`, `tx.new_id()`, `tx.random(n)`).
"""

import os
import struct
import threading
import time
from collections.abc import Callable, Iterator

Clock = Callable[[], int]
Random = Callable[[int], bytes]


def system_clock() -> int:
    """The machine's own clock."""
    return time.time_ns() // 1000


system_random: Random = os.urandom

_STEPS = 256


class Ids:
    """UUIDv7 text: sorted by time, strictly increasing for one maker even when the clock stands still or jumps back.

    One maker may serve several threads.
    """

    __slots__ = ("_head", "_lock", "_millis", "_random", "_steps", "_tail")

    def __init__(self, random: Random) -> None:
        self._random, self._lock = random, threading.Lock()
        self._millis, self._head, self._tail = -1, "", 0
        self._steps: Iterator[int] = iter(())

    def new(self, micros: int) -> str:
        """The next id for that moment."""
        with self._lock:
            millis = micros // 1000
            if millis > self._millis:
                self._begin(millis)
            else:  # the same millisecond, or an older one: go on from the last id by a random step
                step = next(self._steps, None)
                self._tail += 1 + (self._refill() if step is None else step)
                if self._tail >> 48:
                    self._begin(self._millis + 1)
            return f"{self._head}{self._tail:012x}"

    def _begin(self, millis: int) -> None:
        """The first id of a millisecond: 74 random bits, of which the last 48 are counted on; one less to have room."""
        digits, drawn = f"{millis:012x}", int.from_bytes(self._random(10), "big")
        self._millis, self._tail = millis, drawn & (1 << 47) - 1
        self._head = f"{digits[:8]}-{digits[8:]}-7{drawn >> 68:03x}-{0x8000 | drawn >> 48 & 0x3FFF:04x}-"

    def _refill(self) -> int:
        self._steps = iter(struct.unpack(f">{_STEPS}I", self._random(4 * _STEPS)))
        return next(self._steps)
