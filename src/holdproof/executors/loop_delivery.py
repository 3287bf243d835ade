"""Where answers to coroutines go: the outbox of an event loop."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from holdproof.db.database import Database
from holdproof.db.tx import NOTHING, Tx
from holdproof.db.worker_pool import READS, Job

T = TypeVar("T")

_GLANCE_S = 0.002
_HAND_OVER_S = 0.0002
_CREDIT_S = 0.001
_CALLS = 32


def raisable(error: BaseException) -> BaseException:
    """The error, or what stands for a StopIteration, which no future can carry."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError("an operation raised StopIteration")
    wrapped.__cause__ = error
    return wrapped


class LoopDelivery:
    """The outbox of one event loop: one wake-up a batch, and room for the workers when the loop is busy."""

    def __init__(self, loop: asyncio.AbstractEventLoop, database: Database) -> None:
        self.loop, self._database = loop, database
        self._writer, self._reader = database.backend.writer, database.backend.reader
        self._watching, self._seen, self._pause_s = False, -1, _GLANCE_S
        self._arrived, self._lending = threading.Event(), False
        self._credit_s, self._refilling = _CREDIT_S, False
        self._pool: ThreadPoolExecutor | None = None

    def write(self, fn: Callable[[Tx], Any], flags: int) -> "asyncio.Future[Any]":
        """Queue a writing function; its answer arrives in the future."""
        ticket: asyncio.Future[Any] = asyncio.Future(loop=self.loop)
        self._writer.submit(Job(fn, self, ticket, flags))
        if not self._watching:
            self._watch()
        return ticket

    def read(self, fn: Callable[[Tx], T]) -> "asyncio.Future[T]":
        """Run a short read here and now, within a small credit a loop tick; else queue it."""
        ticket: asyncio.Future[T] = self.loop.create_future()
        if self._credit_s > 0 and self._peek(fn, ticket):
            return ticket
        self._reader.submit(Job(fn, self, ticket, READS))
        if not self._watching:
            self._watch()
        return ticket

    def _peek(self, fn: Callable[[Tx], T], ticket: "asyncio.Future[T]") -> bool:
        began = time.perf_counter()
        try:
            answer = self._database.peek(fn, _CREDIT_S)
        except Exception as error:
            ticket.set_exception(raisable(error))
        else:
            if answer is not NOTHING:
                ticket.set_result(answer)
        self._credit_s -= time.perf_counter() - began
        if not self._refilling:
            self._refilling = True
            self.loop.call_soon(self._refill)
        return ticket.done()

    def _refill(self) -> None:
        self._credit_s, self._refilling = _CREDIT_S, False

    def _watch(self) -> None:
        self._watching, self._seen = True, self._database.progress
        self.loop.call_later(_GLANCE_S, self._glance)

    def call(self, fn: Callable[[], T]) -> "asyncio.Future[T]":
        """Call something that may block, in a thread of this loop; as many at once as wait for disks and networks.

        The loop's own executor has six threads on two cores, and the program may need them.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_CALLS, thread_name_prefix="holdproof-call")
        return self.loop.run_in_executor(self._pool, copy_context().run, fn)

    def claim(self, ticket: "asyncio.Future[Any]") -> bool:
        """See ResultSink."""
        return not ticket.cancelled()

    def post(self, jobs: list[Job[Any]]) -> None:
        """See ResultSink."""
        if self._lending:
            self._arrived.set()
        try:
            self.loop.call_soon_threadsafe(self._settle, jobs)
        except RuntimeError:  # the loop was closed: nobody is left to hear it
            return

    def _settle(self, jobs: list[Job[Any]]) -> None:
        for job in jobs:
            ticket = job.ticket
            if ticket.done():
                continue
            if job.error is not None:
                ticket.set_exception(raisable(job.error))
            else:
                ticket.set_result(job.result)

    def _glance(self) -> None:
        """While a loop never sleeps, a worker thread gets the interpreter once in 5 ms, for one statement.

        So while jobs are under way the loop looks every 2 ms; if nothing moved, it steps aside in short slices for as
        long as that helps and no answer has come. Where the disk is what takes time, no progress shows and it goes on.
        """
        seen = self._database.progress
        if seen == self._seen:
            self._arrived.clear()
            self._lending = True
            for _ in range(100):
                if self._arrived.wait(_HAND_OVER_S) or seen == (seen := self._database.progress):
                    break
            self._lending = False
            seen = self._database.progress
            self._pause_s = _GLANCE_S if seen != self._seen else min(self._pause_s * 2, 0.016)
        self._seen = seen
        self._watching = self._database.busy
        if self._watching:
            self.loop.call_later(self._pause_s, self._glance)
