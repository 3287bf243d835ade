"""Numbers of a session's events: which came, which came twice, and which never came.

Pure: the recorder says when an event came and asks what to make of it.

Rules:
- Hooks run side by side, so that 5 may come before 4: a number is missing once it has not come for `GRACE_S`.
- A hook whose answer was lost sends its event again: the same number with the same moment is one event.
- The same number with another moment means that the counter began again: whatever was between is unknown, and said.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

GRACE_S: Final = 5.0
_MEMORY: Final = 2000
"""How many events of a session are remembered: more than can be on their way at once."""

NEW: Final = "new"
LATE: Final = "late"
"""It was declared missing before."""
DUPLICATE: Final = "duplicate"
RESTARTED: Final = "restarted"


@dataclass(frozen=True, slots=True)
class MissingRange:
    """Numbers that have not come, first to last, and until when they may."""

    first: int
    last: int
    until: float


class Numbers:
    """The numbers of one session, in the order in which its events come."""

    def __init__(self, moments: Mapping[int, str] | None = None, declared: Iterable[tuple[int, int]] = ()) -> None:
        """Go on where a session stands: its newest events by number, and the ranges declared missing before."""
        self._moments = dict(moments or {})
        self._highest = max(self._moments, default=0)
        self._newest = max(self._moments.values(), default="")
        self._missing: list[MissingRange] = []
        declared_numbers = {n for first, last in declared for n in range(first, min(last, first + _MEMORY) + 1)}
        lowest = min(self._moments, default=1)
        for n in range(lowest, self._highest):
            if n not in self._moments and n not in declared_numbers:
                self._missing.append(MissingRange(n, n, 0.0))

    def arrival(self, n: int, moment: str) -> str:
        """Return what an event is, without taking it: new, late, a duplicate, or the first after a new beginning."""
        if n in self._moments:
            return DUPLICATE if self._moments[n] == moment else RESTARTED
        if n > self._highest or any(each.first <= n <= each.last for each in self._missing):
            return NEW
        return RESTARTED if moment > self._newest else LATE

    def take(self, n: int, moment: str, now: float) -> None:
        """Take an event that was recorded."""
        if self.arrival(n, moment) == RESTARTED:
            self._moments.clear()
            self._missing.clear()
            self._highest = 0
        if n > self._highest + 1:
            self._missing.append(MissingRange(self._highest + 1, n - 1, now + GRACE_S))
        self._missing = [rest for each in self._missing for rest in _without(each, n)]
        self._highest = max(self._highest, n)
        self._newest = max(self._newest, moment)
        self._moments[n] = moment
        while len(self._moments) > _MEMORY:
            del self._moments[next(iter(self._moments))]

    def overdue(self, now: float) -> list[tuple[int, int]]:
        """Return the ranges that have not come in time; `declare` them once that is recorded."""
        return [(each.first, each.last) for each in self._missing if each.until <= now]

    def declare(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Forget ranges that were recorded as missing."""
        declared = set(ranges)
        self._missing = [each for each in self._missing if (each.first, each.last) not in declared]


def _without(each: MissingRange, n: int) -> list[MissingRange]:
    if not each.first <= n <= each.last:
        return [each]
    below = MissingRange(each.first, n - 1, each.until)
    above = MissingRange(n + 1, each.last, each.until)
    return [part for part in (below, above) if part.first <= part.last]
