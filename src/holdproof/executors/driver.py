"""Driving work that spans transactions: what both faces share."""

import random
from collections.abc import Generator
from typing import Any, Generic, TypeVar

from holdproof.db.database import Database
from holdproof.db.effects import Read, Stream, Wait, Work, Write
from holdproof.model.times import to_micros

T = TypeVar("T")


class Driver(Generic[T]):
    """One run of a work: what both faces share."""

    def __init__(self, work: Work[T] | Stream[Any], database: Database) -> None:
        self._work: Generator[Any, Any, Any] = work
        self._database = database
        self._waits = 0
        self.since = database.topics.epoch
        self.result: T | None = None

    def next(self, answer: Any, error: BaseException | None) -> Any:
        """The next effect (of a stream also `Give`), or None when the work is done."""
        try:
            effect = self._work.throw(error) if error is not None else self._work.send(answer)
        except StopIteration as stop:
            self.result = stop.value
            return None
        if isinstance(effect, Write | Read):
            self.since = self._database.topics.epoch
        return effect

    def patience(self, wait: Wait) -> float:
        """Seconds to wait at most: a growing, jittered step, cut at the deadline."""
        self._waits += 1
        floor, roof = (1.0, 5.0) if self._database.backend.notifies else (0.005, 1.0)
        step = min(roof, floor * 2.0 ** min(self._waits - 1, 10)) * random.uniform(0.75, 1.25)  # noqa: S311
        if wait.until is None:
            return step
        return max(0.0, min(step, (to_micros(wait.until) - self._database.clock()) / 1e6))
