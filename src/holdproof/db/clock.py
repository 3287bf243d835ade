"""Time and randomness, both injected, so that every test can freeze them.

A `Clock` returns microseconds since 1970; a `Random` returns n random bytes. Operations reach them only through their
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
    """Return the time of this machine."""
    return time.time_ns() // 1000


system_random: Random = os.urandom

# Random steps are drawn from the system in blocks: a system call per id would cost more than the id.
_STEPS = 256


class Ids:
    """Makes UUIDv7 texts: sorted by time, strictly increasing even when the clock stands still or jumps back.

    One instance may serve several threads.
    """

    __slots__ = ("_head", "_lock", "_millis", "_random", "_steps", "_tail")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._lock = threading.Lock()
        self._millis = -1
        # An id is the head, fixed for one millisecond, and the tail, a counter of 48 bits.
        self._head = ""
        self._tail = 0
        self._steps: Iterator[int] = iter(())

    def new(self, micros: int) -> str:
        """Return the next id for that moment."""
        with self._lock:
            millis = micros // 1000
            if millis > self._millis:
                self._start_millisecond(millis)
            else:  # the same millisecond, or an older one: continue from the last id by a random step
                step = next(self._steps, None)
                self._tail += 1 + (self._refill() if step is None else step)
                if self._tail >> 48:
                    self._start_millisecond(self._millis + 1)
            return f"{self._head}{self._tail:012x}"

    def _start_millisecond(self, millis: int) -> None:
        """Draw the 74 random bits of a new millisecond."""
        digits = f"{millis:012x}"
        bits = int.from_bytes(self._random(10), "big")
        self._millis = millis
        # The counter starts below half of its range, so that a millisecond has room for 2^47 steps at least.
        self._tail = bits & (1 << 47) - 1
        # Version 7 and variant 10, as RFC 9562 wants them.
        self._head = f"{digits[:8]}-{digits[8:]}-7{bits >> 68:03x}-{0x8000 | bits >> 48 & 0x3FFF:04x}-"

    def _refill(self) -> int:
        self._steps = iter(struct.unpack(f">{_STEPS}I", self._random(4 * _STEPS)))
        return next(self._steps)
