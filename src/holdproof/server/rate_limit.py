"""How many requests a caller may make: a bucket of tokens for each, in memory."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_MOST: Final = 10_000


class Buckets:
    """A bucket for each key that fills at `rate` a second up to `burst`; the longest unused are forgotten."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """Take from a bucket; 0 if it was granted, else the seconds until it would be."""
        if self._rate <= 0:
            return 0.0
        level, now = self._level(key)
        granted = level >= 1.0
        self._set_level(key, level - 1.0 if granted else level, now)
        return 0.0 if granted else (1.0 - level) / self._rate

    def charge(self, key: str, cost: float) -> None:
        """Take what something turned out to cost; a bucket may go as far below zero as it is deep."""
        if self._rate > 0:
            level, now = self._level(key)
            self._set_level(key, max(level - cost, -self._burst), now)

    def _level(self, key: str) -> tuple[float, float]:
        now = self._clock()
        level, then = self._levels.get(key, (self._burst, now))
        return min(self._burst, level + (now - then) * self._rate), now

    def _set_level(self, key: str, level: float, now: float) -> None:
        self._levels[key] = (level, now)
        # Least recently used first: forgetting a bucket refills it, so the idle ones go.
        self._levels.move_to_end(key)
        if len(self._levels) > _MOST:
            self._levels.popitem(last=False)
