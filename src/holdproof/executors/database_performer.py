"""The effects of a database: what both executors remember between the effects of a run, and the pages of a scan."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

from holdproof.db.database import Database
from holdproof.db.effects import Effect, Give, Read, Stream, Wait, Write, ask
from holdproof.db.sql import Query
from holdproof.db.tx import Row, Tx
from holdproof.executors.driver import Performer
from holdproof.model.times import to_micros

# Seconds between two looks while waiting: (first step, longest step). A database that notifies across processes is
# looked at rarely, since the look is only a safety net there.
_STEPS_NOTIFIED_S = (1.0, 5.0)
_STEPS_POLLED_S = (0.005, 1.0)
_MOST_DOUBLINGS = 10


class DatabasePerformer(Performer):
    """Carries out the effects of one run by `carry_out`, and remembers what a Wait needs to know."""

    def __init__(self, database: Database, carry_out: Callable[[Effect, "DatabasePerformer"], Awaitable[Any]]) -> None:
        self._database = database
        self._carry_out = carry_out
        self._waits = 0
        self.since = database.topics.epoch
        """The epoch of the topics before the last look at the database; a Wait compares with it."""

    async def perform(self, effect: Effect) -> Any:
        """See Performer."""
        # Taken before the effect is carried out: what is notified while it runs must end the next Wait at once.
        if isinstance(effect, Write | Read):
            self.since = self._database.topics.epoch
        return await self._carry_out(effect, self)

    def wait_s(self, wait: Wait) -> float:
        """Return how many seconds to wait at most: a growing step with jitter, cut at the deadline."""
        first, longest = _STEPS_NOTIFIED_S if self._database.backend.notifies else _STEPS_POLLED_S
        step = min(longest, first * 2.0 ** min(self._waits, _MOST_DOUBLINGS)) * random.uniform(0.75, 1.25)  # noqa: S311
        self._waits += 1
        if wait.until is None:
            return step
        return max(0.0, min(step, (to_micros(wait.until) - self._database.clock()) / 1e6))


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
