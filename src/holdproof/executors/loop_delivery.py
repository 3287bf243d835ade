"""Deliver results to coroutines: the result sink of an event loop."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from holdproof.db.database import Database
from holdproof.db.offline import check_writable
from holdproof.db.tx import NOT_RUN, Tx
from holdproof.db.worker_pool import READS, Job
from holdproof.executors.driver import CallThreads

T = TypeVar("T")

_CHECK_S = 0.002
_LONGEST_CHECK_S = 0.016
_YIELD_S = 0.0002
_MOST_YIELDS = 100
# Time that inline reads may take in one tick of the loop; more would make other coroutines late.
_INLINE_BUDGET_S = 0.001


def raisable(error: BaseException) -> BaseException:
    """Return the error, or a RuntimeError for a StopIteration, which no future can carry."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError("an operation raised StopIteration")
    wrapped.__cause__ = error
    return wrapped


class LoopDelivery:
    """The result sink of one event loop: one wake-up per batch, and CPU time for the workers when the loop is busy."""

    def __init__(self, loop: asyncio.AbstractEventLoop, database: Database) -> None:
        self.loop = loop
        self._database = database
        self._writer = database.backend.writer
        self._reader = database.backend.reader
        # The progress check: whether one is scheduled, what it saw last, and when it looks next.
        self._checking = False
        self._last_progress = -1
        self._check_s = _CHECK_S
        # Set by a worker while the loop's thread steps aside for it.
        self._delivered = threading.Event()
        self._yielding = False
        self._inline_budget_s = _INLINE_BUDGET_S
        self._refill_scheduled = False
        self._threads = CallThreads()

    def write(self, fn: Callable[[Tx], Any], flags: int) -> "asyncio.Future[Any]":
        """Queue a writing function and return the future of its result."""
        check_writable()
        future: asyncio.Future[Any] = asyncio.Future(loop=self.loop)
        self._writer.submit(Job(fn, self, future, flags))
        if not self._checking:
            self._start_checking()
        return future

    def read(self, fn: Callable[[Tx], T], *, inline: bool = True) -> "asyncio.Future[T]":
        """Run a short read here and now while this tick has budget left; else queue it for a reader thread."""
        future: asyncio.Future[T] = self.loop.create_future()
        if inline and self._inline_budget_s > 0 and self._read_inline(fn, future):
            return future
        self._reader.submit(Job(fn, self, future, READS))
        if not self._checking:
            self._start_checking()
        return future

    def _read_inline(self, fn: Callable[[Tx], T], future: "asyncio.Future[T]") -> bool:
        """Try the read on this thread; return whether the future is done."""
        began = time.perf_counter()
        try:
            result = self._database.peek(fn, _INLINE_BUDGET_S)
        except Exception as error:
            future.set_exception(raisable(error))
        else:
            if result is not NOT_RUN:
                future.set_result(result)
        self._inline_budget_s -= time.perf_counter() - began
        if not self._refill_scheduled:
            self._refill_scheduled = True
            self.loop.call_soon(self._refill)
        return future.done()

    def _refill(self) -> None:
        self._inline_budget_s = _INLINE_BUDGET_S
        self._refill_scheduled = False

    def call(self, fn: Callable[[], T]) -> "asyncio.Future[T]":
        """Call a function that may block, in a thread.

        The threads are this loop's own: were they shared, functions that run a loop of their own could take all of
        them, and wait for ever for one more.
        """
        return self._threads.call(fn)

    def claim(self, future: "asyncio.Future[Any]") -> bool:
        """See ResultSink."""
        return not future.cancelled()

    def post(self, jobs: list[Job[Any]]) -> None:
        """See ResultSink."""
        if self._yielding:
            self._delivered.set()
        try:
            self.loop.call_soon_threadsafe(self._complete, jobs)
        except RuntimeError:  # the loop was closed: there is no caller left
            return

    def _complete(self, jobs: list[Job[Any]]) -> None:
        for job in jobs:
            future = job.future
            if future.done():
                continue
            if job.error is not None:
                future.set_exception(raisable(job.error))
            else:
                future.set_result(job.result)

    def _start_checking(self) -> None:
        self._checking = True
        self._last_progress = self._database.progress
        self.loop.call_later(_CHECK_S, self._check_progress)

    def _check_progress(self) -> None:
        """Give the workers CPU time if they have made no progress since the last check.

        While a loop never sleeps, a worker thread gets the interpreter once in 5 ms, for one statement. So while jobs
        are under way the loop checks every 2 ms; if nothing moved, it sleeps in short slices for as long as that helps
        and no result has come. Where the disk is what takes time, no progress shows and the checks become rarer.
        """
        progress = self._database.progress
        if progress == self._last_progress:
            self._let_workers_run(progress)
            progress = self._database.progress
            helped = progress != self._last_progress
            self._check_s = _CHECK_S if helped else min(self._check_s * 2, _LONGEST_CHECK_S)
        self._last_progress = progress
        self._checking = self._database.busy
        if self._checking:
            self.loop.call_later(self._check_s, self._check_progress)

    def _let_workers_run(self, progress: int) -> None:
        self._delivered.clear()
        self._yielding = True
        for _ in range(_MOST_YIELDS):
            if self._delivered.wait(_YIELD_S):
                break
            before = progress
            progress = self._database.progress
            if progress == before:
                break
        self._yielding = False
