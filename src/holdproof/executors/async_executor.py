"""Run operations for coroutines."""

import asyncio
from asyncio import get_running_loop
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from holdproof import validation
from holdproof.db.database import Database
from holdproof.db.effects import Call, Effect, Read, Together, Wait, Write
from holdproof.db.sql import Query
from holdproof.db.tx import Refused, Row, Tx
from holdproof.db.worker_pool import SERIALIZABLE
from holdproof.errors import HoldproofError
from holdproof.executors import uses
from holdproof.executors.database_performer import DatabasePerformer, confined, scan_rows
from holdproof.executors.driver import AsyncRunner
from holdproof.executors.loop_delivery import LoopDelivery

S = TypeVar("S")
T = TypeVar("T")


class _AbandonedError(Exception):
    """The caller of a write was cancelled before the write was confirmed."""


class _BorrowedWrite:
    """A write on the connection of a caller, who may be cancelled while a thread uses it."""

    def __init__(self) -> None:
        self._is_abandoned = False

    def confirm(self) -> None:
        """Let the write stand; called by its thread when all was written."""
        if self._is_abandoned:
            raise _AbandonedError

    async def end(self, write: "asyncio.Future[T]") -> T:
        """Wait for the thread, also where the caller is cancelled: the connection is its own again only then."""
        try:
            return await asyncio.shield(write)
        except asyncio.CancelledError:
            self._is_abandoned = True
            # The caller may be cancelled again while it waits.
            while not write.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([write])
            if not write.cancelled():
                write.exception()  # else it would be reported as never looked at
            raise


class AsyncExecutor(AsyncRunner):
    """Runs operations for coroutines; one per database serves any number of event loops."""

    def __init__(self, database: Database, ns: str | None = None) -> None:
        self.database = database
        self.ns = None if ns is None else validation.namespace(ns)
        self._deliveries: dict[asyncio.AbstractEventLoop, LoopDelivery] = {}

    def write(self, fn: Callable[[Tx], T | Refused], *, serializable: bool = False) -> "asyncio.Future[T]":
        """Run a function of a transaction; the future is done once its work is durable."""
        operation = confined(fn, self.ns)
        if uses.IN_STEPS_OF.get():
            operation = uses.noting(self.database, operation)
        return self._delivery().write(operation, SERIALIZABLE if serializable else 0)

    async def write_in(self, connection: Any, fn: Callable[[Tx], T | Refused]) -> T:
        """Run a function of a transaction in the caller's own, which commits it or rolls it back.

        `connection` is an async or sync one of psycopg, or a sync connection or session of SQLAlchemy over it, to the
        store's own PostgreSQL database; else ForeignTransactionError.

        A caller that is cancelled gets its connection back before CancelledError: what was written here is rolled back,
        and the caller's transaction is as it was.
        """
        driver = self.database.driver_of(connection)
        borrowed = _BorrowedWrite()
        if isinstance(driver.lock, asyncio.Lock):
            async with driver.lock:
                return await borrowed.end(
                    self.call_in_thread(lambda: self.database.write_in(driver, fn, borrowed.confirm))
                )
        return await borrowed.end(self.call_in_thread(lambda: self._write_in_locked(driver, fn, borrowed)))

    def _write_in_locked(self, driver: Any, fn: Callable[[Tx], T | Refused], borrowed: "_BorrowedWrite") -> T:
        with driver.lock:
            return self.database.write_in(driver, fn, borrowed.confirm)

    def read(self, fn: Callable[[Tx], T]) -> "asyncio.Future[T]":
        """Run a reading function on a snapshot that includes everything acknowledged before this call."""
        if uses.IN_STEPS_OF.get() and (used := uses.of_read(self.database)) is not None:
            return asyncio.ensure_future(self._read_noted(used, fn))
        return self._delivery().read(confined(fn, self.ns))

    async def _read_noted(self, used: uses.ReadUses, fn: Callable[[Tx], T]) -> T:
        """Read inside a step, and note what was used before it is given."""
        value = await self._delivery().read(used.collecting(confined(fn, self.ns)), inline=False)
        if (note := used.pending()) is not None:
            await self._delivery().write(note, 0)
        return value

    def reject(self, error: HoldproofError) -> "asyncio.Future[Any]":
        """Return the outcome of a call that was refused before it reached the database: a failed future."""
        future: asyncio.Future[Any] = get_running_loop().create_future()
        future.set_exception(error)
        return future

    def start_once(self, fn: Callable[[Tx], T]) -> "Future[T]":
        """Start a writing function that is never re-run and may be fed from outside; pass the future to `wait_for`."""
        return self.database.write(confined(fn, self.ns), once=True)

    def wait_for(self, future: "Future[T]") -> "asyncio.Future[T]":
        """Return an awaitable for a future that another thread completes."""
        return asyncio.wrap_future(future)

    def scan(
        self, query: Query, *, by: Callable[[Row], Any], after: Any, page: int = 500, **params: Any
    ) -> AsyncIterator[Row]:
        """Iterate over any number of rows in pages of `:limit` past `:after`; no snapshot is open between pages."""
        return self.stream(scan_rows(query, by=by, after=after, page=page, params=params))

    def performer(self) -> DatabasePerformer:
        """See AsyncRunner."""
        return _AsyncPerformer(self)

    def call_in_thread(self, fn: Callable[[], T]) -> "asyncio.Future[T]":
        """Call a function that may block, in one of the running loop's own threads."""
        return self._delivery().call(fn)

    async def open_then(self, opening: Callable[[], S], then: Callable[[S], Awaitable[T]]) -> T:
        """Open something in a thread, since that may block; then await what `then` does with it."""
        return await then(await asyncio.to_thread(opening))

    async def open_then_stream(
        self, opening: Callable[[], S], then: Callable[[S], AsyncGenerator[T, None]]
    ) -> AsyncIterator[T]:
        """Open something in a thread; then yield the values of the stream that `then` makes of it."""
        async with aclosing(then(await asyncio.to_thread(opening))) as values:
            async for value in values:
                yield value

    def _delivery(self) -> LoopDelivery:
        return self._deliveries.get(get_running_loop()) or self._new_delivery()

    def _new_delivery(self) -> LoopDelivery:
        # A new dictionary instead of a change in place: another thread's loop may be reading this one.
        alive = {loop: delivery for loop, delivery in self._deliveries.items() if not loop.is_closed()}
        self._deliveries = alive
        loop = get_running_loop()
        return alive.setdefault(loop, LoopDelivery(loop, self.database))

    def read_on_reader(self, fn: Callable[[Tx], T]) -> "asyncio.Future[T]":
        """Run a reading function on a reader thread, however short it is."""
        if uses.IN_STEPS_OF.get() and (used := uses.of_read(self.database)) is not None:
            return asyncio.ensure_future(self._read_noted(used, fn))
        return self._delivery().read(confined(fn, self.ns), inline=False)

    async def wait(self, topic: str, since: int, seconds: float) -> bool:
        """Sleep until the topic is signalled, if it was not since the epoch `since`; return whether it was."""
        loop = get_running_loop()
        ended: asyncio.Future[bool] = loop.create_future()

        def end(signalled: bool) -> None:
            if not ended.done():
                ended.set_result(signalled)

        def wake() -> None:
            loop.call_soon_threadsafe(end, True)

        # False: the topic was signalled since the last look, so there is nothing to wait for.
        if not self.database.topics.subscribe(topic, since, wake):
            return True
        timer = loop.call_later(seconds, end, False)
        try:
            return await ended
        finally:
            timer.cancel()
            self.database.topics.unsubscribe(topic, wake)


class _AsyncPerformer(DatabasePerformer):
    """Awaits the effects of one run."""

    def __init__(self, executor: AsyncExecutor) -> None:
        super().__init__(executor.database)
        self._executor = executor

    async def perform(self, effect: Effect) -> Any:
        """See Performer."""
        match effect:
            case Write(fn):
                self.look()
                return await self._executor.write(fn)
            case Read(fn, long):
                self.look()
                # Through `read` where possible: subclasses count and refuse operations there.
                return await (self._executor.read_on_reader(fn) if long else self._executor.read(fn))
            case Call(call, timeout_s):
                return await self._executor.call(call, timeout_s)
            case Together(works, limit):
                return await self._executor.together(works, limit)
            case Wait(topic):
                return await self._executor.wait(topic, self.since, self.wait_s(effect))
