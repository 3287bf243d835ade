"""Where answers to coroutines go: the outbox of an event loop."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.db.database import Database
from holdfast.db.pump import Job
from holdfast.db.tx import Tx

T = TypeVar("T")

_GLANCE_S = 0.002
_HAND_OVER_S = 0.0002


class LoopBox:
    """The outbox of one event loop: one wake-up a batch, and room for the workers when the loop is busy."""

    def __init__(self, loop: asyncio.AbstractEventLoop, database: Database) -> None:
        self._loop, self._database = loop, database
        self._watching, self._seen, self._pause_s = False, -1, _GLANCE_S
        self._arrived = threading.Event()

    def submit(self, fn: Callable[[Tx], T], **options: bool) -> "asyncio.Future[T]":
        """Queue a function; its answer arrives in the future."""
        ticket: asyncio.Future[T] = self._loop.create_future()
        self._database.submit(fn, self, ticket, **options)
        if not self._watching:
            self._watching, self._seen = True, self._database.progress
            self._loop.call_later(_GLANCE_S, self._glance)
        return ticket

    def claim(self, ticket: "asyncio.Future[Any]") -> bool:
        """See Outbox."""
        return not ticket.cancelled()

    def post(self, jobs: list[Job[Any]]) -> None:
        """See Outbox."""
        self._arrived.set()
        try:
            self._loop.call_soon_threadsafe(self._settle, jobs)
        except RuntimeError:  # the loop was closed: nobody is left to hear it
            return

    def _settle(self, jobs: list[Job[Any]]) -> None:
        for job in jobs:
            ticket = job.ticket
            if ticket.done():
                continue
            if job.error is not None:
                ticket.set_exception(job.error)
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
            for _ in range(100):
                if self._arrived.wait(_HAND_OVER_S) or seen == (seen := self._database.progress):
                    break
            seen = self._database.progress
            self._pause_s = _GLANCE_S if seen != self._seen else min(self._pause_s * 2, 0.016)
        self._seen = seen
        self._watching = self._database.busy
        if self._watching:
            self._loop.call_later(self._pause_s, self._glance)
