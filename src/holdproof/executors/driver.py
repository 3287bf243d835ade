"""The part of an executor that sync and async have in common: driving a generator of effects to its end.

`db/effects.py` explains what a generator of effects is. `drive` and `drive_stream` below are the only loops that resume
one. They are coroutines, and the executor passes in `perform`, an async function that carries out a single effect:

- `AsyncExecutor.perform` awaits, and the coroutine is awaited by the caller as usual.
- `SyncExecutor.perform` blocks and never suspends. A coroutine that never suspends runs to its end in one step, so
  `complete` can execute it without an event loop.

So there is one loop for both, and no generated or hand-kept twin.
"""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar

from holdproof.db.database import Database
from holdproof.db.effects import Effect, Give, Read, Stream, Wait, Work, Write, ask
from holdproof.db.sql import Query
from holdproof.db.tx import Row, Tx
from holdproof.model.times import to_micros

T = TypeVar("T")

# Seconds between two looks while waiting: (first step, longest step). A database that notifies across processes is
# looked at rarely, since the look is only a safety net there.
_STEPS_NOTIFIED_S = (1.0, 5.0)
_STEPS_POLLED_S = (0.005, 1.0)
_MOST_DOUBLINGS = 10


class Driver(Generic[T]):
    """One run of a generator of effects and what must be remembered between its effects."""

    def __init__(self, work: Work[T] | Stream[Any], database: Database) -> None:
        self._work: Generator[Any, Any, Any] = work
        self._database = database
        self._waits = 0
        self.since = database.topics.epoch
        """The epoch of the topics before the last look at the database; a Wait compares with it."""
        self.result: T | None = None

    def resume(self, value: Any = None, error: BaseException | None = None) -> Any:
        """Resume the generator with a value or an error; return its next effect, or None when it has returned.

        Raises what the generator raises.
        """
        try:
            effect = self._work.throw(error) if error is not None else self._work.send(value)
        except StopIteration as stop:
            self.result = stop.value
            return None
        # Taken before the effect is performed: what is notified while it runs must end the next Wait at once.
        if isinstance(effect, Write | Read):
            self.since = self._database.topics.epoch
        return effect

    def wait_s(self, wait: Wait) -> float:
        """Return how many seconds to wait at most: a growing step with jitter, cut at the deadline."""
        first, longest = _STEPS_NOTIFIED_S if self._database.backend.notifies else _STEPS_POLLED_S
        step = min(longest, first * 2.0 ** min(self._waits, _MOST_DOUBLINGS)) * random.uniform(0.75, 1.25)  # noqa: S311
        self._waits += 1
        if wait.until is None:
            return step
        return max(0.0, min(step, (to_micros(wait.until) - self._database.clock()) / 1e6))


class Perform(Protocol):
    """Carry out one effect and return its result."""

    def __call__(self, effect: Effect, driver: Driver[Any], /) -> Awaitable[Any]:
        """See the class."""
        ...


async def drive(work: Work[T], database: Database, perform: Perform) -> T:
    """Run work to its end and return its result; an effect's error is raised inside the work first."""
    driver = Driver(work, database)
    effect = driver.resume()
    while effect is not None:
        effect = await _step(effect, driver, perform)
    return driver.result  # type: ignore[return-value]


async def drive_stream(work: Stream[T], database: Database, perform: Perform) -> AsyncGenerator[T, None]:
    """Run a stream, yielding the values it gives; the work is closed when the consumer stops early."""
    driver: Driver[None] = Driver(work, database)
    try:
        effect = driver.resume()
        while effect is not None:
            if isinstance(effect, Give):
                yield effect.value
                effect = driver.resume()
            else:
                effect = await _step(effect, driver, perform)
    finally:
        work.close()


async def _step(effect: Effect, driver: Driver[Any], perform: Perform) -> Any:
    """Perform an effect and resume the work with its outcome; return the next effect."""
    try:
        value = await perform(effect, driver)
    except BaseException as error:
        return driver.resume(error=error)
    return driver.resume(value)


def complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("an effect of a sync executor suspended")


def scan_rows(query: Query, *, by: Callable[[Row], Any], after: Any, page: int, params: dict[str, Any]) -> Stream[Row]:
    """Give every row of a query in pages of `:limit` past `:after`; no snapshot is open between pages."""
    while True:

        def one_page(tx: Tx, position: Any = after) -> list[Row]:
            return tx.all(query, after=position, limit=page, **params)

        rows = yield from ask(Read(one_page))
        for row in rows:
            yield Give(row)
        if len(rows) < page:
            return
        after = by(rows[-1])
