"""Run operations for threads."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, NoReturn, TypeVar

from holdproof import validation
from holdproof.db.database import Database
from holdproof.db.effects import Call, Effect, Read, Stream, Wait, Work, Write
from holdproof.db.sql import Query
from holdproof.db.tx import NOTHING, Refused, Row, Tx
from holdproof.db.worker_pool import WorkerPool
from holdproof.errors import HoldproofError, InvalidInputError, NestedCallError, RunningLoopError
from holdproof.executors.driver import Driver, complete, drive, drive_stream, scan_rows

S = TypeVar("S")
T = TypeVar("T")

_INLINE_READ_S = 0.02
"""How long a read may take on the caller's thread before a reader thread takes it over."""


class SyncExecutor:
    """Runs operations for threads; refuses to block a running event loop."""

    def __init__(self, database: Database, ns: str | None = None) -> None:
        self.database = database
        self.ns = None if ns is None else validation.namespace(ns)

    def write(self, fn: Callable[[Tx], T | Refused], *, serializable: bool = False) -> T:
        """Run a function of a transaction; returns once its work is durable."""
        refuse_running_loop()
        _refuse_nested(self.database.backend.writer)
        future: Future[Any] = self.database.write(fn, serializable=serializable)
        return future.result()  # type: ignore[no-any-return]

    def read(self, fn: Callable[[Tx], T]) -> T:
        """Run a reading function on a snapshot that includes everything acknowledged before this call."""
        refuse_running_loop()
        # Most reads are short: on this thread they cost no switch to another.
        result = self.database.peek(fn, _INLINE_READ_S)
        if result is not NOTHING:
            return result
        return self._read_on_reader(fn)

    def _read_on_reader(self, fn: Callable[[Tx], T]) -> T:
        _refuse_nested(self.database.backend.reader)
        return self.database.read(fn).result()

    def reject(self, error: HoldproofError) -> NoReturn:
        """Raise the error of a call that was refused before it reached the database."""
        raise error

    def start_once(self, fn: Callable[[Tx], T]) -> "Future[T]":
        """Start a writing function that is never re-run and may be fed from outside; pass the future to `wait_for`."""
        refuse_running_loop()
        return self.database.write(fn, once=True)

    def wait_for(self, future: "Future[T]") -> T:
        """Block until another thread has completed the future and return its result."""
        return future.result()

    def scan(
        self, query: Query, *, by: Callable[[Row], Any], after: Any, page: int = 500, **params: Any
    ) -> Iterator[Row]:
        """Iterate over any number of rows in pages of `:limit` past `:after`; no snapshot is open between pages."""
        return self.stream(scan_rows(query, by=by, after=after, page=page, params=params))

    def run(self, work: Work[T]) -> T:
        """Drive work that spans transactions and return its result."""
        refuse_running_loop()
        return complete(drive(work, self.database, self._perform))

    def stream(self, work: Stream[T]) -> Iterator[T]:
        """Drive a stream, as fast as its values are requested."""
        refuse_running_loop()
        values = drive_stream(work, self.database, self._perform)
        try:
            while True:
                try:
                    value = complete(values.__anext__())
                except StopAsyncIteration:
                    return
                yield value
        finally:
            # Also when the consumer stops early: the work must run its `finally` blocks now.
            complete(values.aclose())

    def open_then(self, opening: Callable[[], S], then: Callable[[S], T]) -> T:
        """Open something; then return what `then` does with it."""
        refuse_running_loop()
        return then(opening())

    def open_then_stream(self, opening: Callable[[], S], then: Callable[[S], Iterator[T]]) -> Iterator[T]:
        """Open something; then yield the values of the stream that `then` makes of it."""
        refuse_running_loop()
        yield from then(opening())

    async def _perform(self, effect: Effect, driver: Driver[Any]) -> Any:
        """Carry out one effect; `async` only in form: nothing here suspends (see driver.py)."""
        match effect:
            case Write(fn):
                return self.write(fn)
            case Read(fn, long):
                return self._read_on_reader(fn) if long else self.read(fn)
            case Call(call):
                result = call()
                if inspect.iscoroutine(result):
                    result.close()
                    raise InvalidInputError("the sync client cannot run an async function; pass a plain one")
                return result
            case Wait(topic):
                return self._wait(topic, driver.since, driver.wait_s(effect))

    def _wait(self, topic: str, since: int, seconds: float) -> bool:
        woken = threading.Event()
        if not self.database.topics.subscribe(topic, since, woken.set):
            return True
        try:
            return woken.wait(seconds)
        finally:
            self.database.topics.unsubscribe(topic, woken.set)


def _refuse_nested(pool: WorkerPool) -> None:
    """Raise NestedCallError on a worker's own thread, which would wait for itself forever."""
    if threading.get_ident() in pool.thread_ids:
        raise NestedCallError("the store was called inside a function of one of its own transactions; use its tx")


def refuse_running_loop() -> None:
    """Raise RunningLoopError inside a running event loop, which a sync call would freeze."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # the usual case: this thread runs no loop
        return
    raise RunningLoopError(
        "the sync client was called inside a running event loop, which it would block; use holdproof.open and await"
    )
