"""The effects of a database: what both executors remember between the effects of a run, and the pages of a scan."""

import random
from collections.abc import Callable
from typing import Any, TypeVar

from holdproof.db.database import Database
from holdproof.db.effects import Give, Read, Stream, Wait, ask
from holdproof.db.sql import Query
from holdproof.db.tx import Row, Tx
from holdproof.executors.driver import Performer
from holdproof.model.times import to_micros

T = TypeVar("T")

# Seconds between two looks while waiting: (first step, longest step). A database that notifies across processes is
# looked at rarely, since the look is only a safety net there.
_STEPS_NOTIFIED_S = (1.0, 5.0)
_STEPS_POLLED_S = (0.005, 1.0)
_MOST_DOUBLINGS = 10


class DatabasePerformer(Performer):
    """What a performer of effects on a database remembers between them, because a Wait needs to know it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waits = 0
        self.look()

    def look(self) -> None:
        """Note that the database is about to be read or written: what is notified from now on ends the next Wait."""
        self.since = self._database.topics.epoch

    def wait_s(self, wait: Wait) -> float:
        """Return how many seconds to wait at most: a growing step with jitter, cut at the deadline."""
        first, longest = _STEPS_NOTIFIED_S if self._database.backend.notifies else _STEPS_POLLED_S
        step = min(longest, first * 2.0 ** min(self._waits, _MOST_DOUBLINGS)) * random.uniform(0.75, 1.25)  # noqa: S311
        self._waits += 1
        if wait.until is None:
            return step
        return max(0.0, min(step, (to_micros(wait.until) - self._database.clock()) / 1e6))


def confined(fn: Callable[[Tx], T], ns: str | None) -> Callable[[Tx], T]:
    """Return the operation of a client that is bound to a namespace, kept in it by the database where it can."""
    if ns is None:
        return fn

    def run(tx: Tx) -> T:
        tx.confine(ns)
        try:
            return fn(tx)
        finally:
            # Before the next operation of the group, and before the log: both are of the whole store.
            tx.confine(None)

    return run


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
