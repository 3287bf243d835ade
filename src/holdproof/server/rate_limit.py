"""How many requests a caller may make: a bucket of tokens for each, in memory."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_MOST: Final = 10_000


class Buckets:
    """A bucket for each key that fills at `rate` a second up to `burst`; the longest unused are forgotten."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """Take from a bucket; 0 if it was granted, else the seconds until it would be."""
        if self._rate <= 0:
            return 0.0
        left, now = self._level(key)
        granted = left >= 1.0
        self._keep(key, left - 1.0 if granted else left, now)
        return 0.0 if granted else (1.0 - left) / self._rate

    def charge(self, key: str, cost: float) -> None:
        """Take what something turned out to cost; a bucket may go as far below zero as it is deep."""
        if self._rate > 0:
            left, now = self._level(key)
            self._keep(key, max(left - cost, -self._burst), now)

    def _level(self, key: str) -> tuple[float, float]:
        now = self._clock()
        left, then = self._left.get(key, (self._burst, now))
        return min(self._burst, left + (now - then) * self._rate), now

    def _keep(self, key: str, left: float, now: float) -> None:
        self._left[key] = (left, now)
        self._left.move_to_end(key)
        if len(self._left) > _MOST:
            self._left.popitem(last=False)
