"""Time and randomness, both handed in, so that every test can freeze them.

A `Clock` answers microseconds since 1970; a `Random` answers n random bytes. Operations reach them only through their
transaction (`tx.now`, `tx.new_id()`, `tx.random(n)`).
"""

import os
import time
from collections.abc import Callable

Clock = Callable[[], int]
Random = Callable[[int], bytes]


def system_clock() -> int:
    """The machine's own clock."""
    return time.time_ns() // 1000


system_random: Random = os.urandom

_TAIL_BITS = 74


class Ids:
    """UUIDv7 text: sorted by time, strictly increasing for one maker even when the clock stands still or jumps back."""

    __slots__ = ("_last", "_random")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._last = 0

    def new(self, micros: int) -> str:
        """The next id for that moment."""
        # 48 bits of milliseconds and 74 random ones; the fixed version and variant bits are put between at the end.
        value = ((micros // 1000) << _TAIL_BITS) | (int.from_bytes(self._random(10), "big") >> 6)
        if value <= self._last:
            value = self._last + 1 + (int.from_bytes(self._random(5), "big") >> (80 - _TAIL_BITS))
        self._last = value
        high, low = value >> 62, value & ((1 << 62) - 1)
        stamped = (high >> 12) << 80 | 7 << 76 | (high & 0xFFF) << 64 | 2 << 62 | low
        text = f"{stamped:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
