"""Run operations for threads."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from holdproof import validation
from holdproof.db.database import Database
from holdproof.db.effects import Call, Effect, Read, Together, Wait, Write
from holdproof.db.sql import Query
from holdproof.db.tx import NOT_RUN, Refused, Row, Tx
from holdproof.db.worker_pool import WorkerPool
from holdproof.errors import HoldproofError, NestedCallError, WrongClientError
from holdproof.executors import uses
from holdproof.executors.database_performer import DatabasePerformer, confined, scan_rows
from holdproof.executors.driver import SyncRunner
from holdproof.lazy import lazy_module

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = lazy_module("asyncio")  # only a caller that runs a loop has loaded it

S = TypeVar("S")
T = TypeVar("T")

_INLINE_READ_S = 0.02
"""How long a read may take on the caller's thread before a reader thread takes it over."""
_CANCEL_CHECK_S = 0.2
"""How often a wait inside a task looks whether the task was cancelled."""


class SyncExecutor(SyncRunner):
    """Runs operations for threads: the store's own threads do the work, and the caller's waits.

    It may run an event loop, as in a notebook: nothing that a call waits for needs that loop.
    """

    def __init__(self, database: Database, ns: str | None = None) -> None:
        self.database = database
        self.ns = None if ns is None else validation.namespace(ns)

    def write(self, fn: Callable[[Tx], T | Refused], *, serializable: bool = False) -> T:
        """Run a function of a transaction; returns once its work is durable."""
        _refuse_nested(self.database.backend.writer)
        operation = confined(fn, self.ns)
        if uses.IN_STEPS_OF.get():
            operation = uses.noting(self.database, operation)
        future: Future[Any] = self.database.write(operation, serializable=serializable)
        return future.result()  # type: ignore[no-any-return]

    def write_in(self, connection: Any, fn: Callable[[Tx], T | Refused]) -> T:
        """Run a function of a transaction in the caller's own, which commits it or rolls it back.

        `connection` is one of psycopg, or a connection or session of SQLAlchemy over it, to the store's own PostgreSQL
        database; else ForeignTransactionError. Locks that the function takes are held until the caller commits.
        """
        driver = self.database.driver_of(connection)
        if isinstance(driver.lock, asyncio.Lock):
            raise WrongClientError("an async connection is for the async client")
        # The driver's own lock: no other thread uses the connection meanwhile.
        with driver.lock:
            return self.database.write_in(driver, fn)

    def read(self, fn: Callable[[Tx], T]) -> T:
        """Run a reading function on a snapshot that includes everything acknowledged before this call."""
        # Most reads are short: on this thread they cost no switch to another.
        if uses.IN_STEPS_OF.get() and (used := uses.of_read(self.database)) is not None:
            return self._read_noted(used, fn)
        result = self.database.peek(confined(fn, self.ns), _INLINE_READ_S)
        if result is not NOT_RUN:
            return result
        return self.read_on_reader(fn)

    def _read_noted(self, used: uses.ReadUses, fn: Callable[[Tx], T]) -> T:
        """Read inside a step, on a reader thread, and note what was used before it is given."""
        _refuse_nested(self.database.backend.reader)
        value = self.database.read(used.collecting(confined(fn, self.ns))).result()
        if (note := used.pending()) is not None:
            self.database.write(note).result()
        return value

    def read_on_reader(self, fn: Callable[[Tx], T]) -> T:
        """Run a reading function on a reader thread, however short it is."""
        if uses.IN_STEPS_OF.get() and (used := uses.of_read(self.database)) is not None:
            return self._read_noted(used, fn)
        _refuse_nested(self.database.backend.reader)
        return self.database.read(confined(fn, self.ns)).result()

    def reject(self, error: HoldproofError) -> NoReturn:
        """Raise the error of a call that was refused before it reached the database."""
        raise error

    def start_once(self, fn: Callable[[Tx], T]) -> "Future[T]":
        """Start a writing function that is never re-run and may be fed from outside; pass the future to `wait_for`."""
        return self.database.write(confined(fn, self.ns), once=True)

    def wait_for(self, future: "Future[T]") -> T:
        """Block until another thread has completed the future and return its result."""
        return future.result()

    def scan(
        self, query: Query, *, by: Callable[[Row], Any], after: Any, page: int = 500, **params: Any
    ) -> Iterator[Row]:
        """Iterate over any number of rows in pages of `:limit` past `:after`; no snapshot is open between pages."""
        return self.stream(scan_rows(query, by=by, after=after, page=page, params=params))

    def performer(self) -> DatabasePerformer:
        """See SyncRunner."""
        return _SyncPerformer(self)

    def open_then(self, opening: Callable[[], S], then: Callable[[S], T]) -> T:
        """Open something; then return what `then` does with it."""
        return then(opening())

    def open_then_stream(self, opening: Callable[[], S], then: Callable[[S], Iterator[T]]) -> Iterator[T]:
        """Open something; then yield the values of the stream that `then` makes of it."""
        yield from then(opening())

    def wait(self, topic: str, since: int, seconds: float) -> bool:
        """Sleep until the topic is signalled, if it was not since the epoch `since`; return whether it was."""
        woken = threading.Event()
        if not self.database.topics.subscribe(topic, since, woken.set):
            return True
        try:
            return _wait_cancellable(woken, seconds)
        finally:
            self.database.topics.unsubscribe(topic, woken.set)


class _SyncPerformer(DatabasePerformer):
    """Blocks on the effects of one run."""

    def __init__(self, executor: SyncExecutor) -> None:
        super().__init__(executor.database)
        self._executor = executor

    async def perform(self, effect: Effect) -> Any:
        """See Performer; `async` only in form: nothing here suspends (see driver.py)."""
        match effect:
            case Write(fn):
                self.look()
                return self._executor.write(fn)
            case Read(fn, long):
                self.look()
                return self._executor.read_on_reader(fn) if long else self._executor.read(fn)
            case Call(call, timeout_s):
                return self._executor.call_plain(call, timeout_s)
            case Together(works, limit):
                return self._executor.together(works, limit)
            case Wait(topic):
                return self._executor.wait(topic, self.since, self.wait_s(effect))


def _wait_cancellable(woken: threading.Event, seconds: float) -> bool:
    """Wait for the event; return whether it came. CancelledError if the task that waits is cancelled meanwhile.

    `asyncio.run` turns the first Ctrl-C into a cancellation of its task, which a thread that blocks would never hear.
    """
    task = _current_task()
    if task is None:
        return woken.wait(seconds)
    end = time.monotonic() + seconds
    while not woken.wait(max(0.0, min(_CANCEL_CHECK_S, end - time.monotonic()))):
        # Requested, and not delivered yet. `cancelling()` also counts those that the task is already cleaning up after.
        if getattr(task, "_must_cancel", False):
            raise asyncio.CancelledError
        if time.monotonic() >= end:
            return False
    return True


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # the usual case: this thread runs no loop
        return None


def _refuse_nested(pool: WorkerPool) -> None:
    """Raise NestedCallError on a worker's own thread, which would wait for itself forever."""
    if threading.get_ident() in pool.thread_ids:
        raise NestedCallError("the store was called inside a function of one of its own transactions; use its tx")
