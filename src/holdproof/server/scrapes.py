"""Scrapes of `/metrics` while the database is gone: answered at once, from what the server itself knows.

Rules:
- A scrape is answered within five seconds: Prometheus gives up after ten, and is blind when it matters most. A shorter
  wait would take a database that is only busy for one that is gone.
- A token is checked in the database. While that does not answer, a scraper that was let in before is let in for the
  numbers of this process, and nothing else. One that was never seen here waits longer, for there is nothing else to
  tell it, and is then told that the database is gone.
- One look of a kind at a time: a database that hangs must not gather callers that wait for it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Final, Generic, TypeVar

from holdproof.errors import UnavailableError
from holdproof.server.permissions import Caller

T = TypeVar("T")

PATH: Final = "/metrics"
_PATIENCE_S: Final = 2.0
_FIRST_PATIENCE_S: Final = 4.5
_MOST_SCRAPERS: Final = 16


class SingleLook(Generic[T]):
    """One question to the database at a time, with a bounded wait for its answer."""

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._task: asyncio.Task[T] | None = None

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Return the answer; UnavailableError if there is none in time, or none any more (`cancel`).

        After a wait in vain the question goes on, for the next caller.
        """
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(_awaited(question))
            # Nobody may be waiting any more when it fails, and asyncio would complain of an error left alone.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        task = self._task
        try:
            async with asyncio.timeout(self._patience_s):
                await asyncio.wait([task])
        except TimeoutError as error:
            raise UnavailableError("the database does not answer") from error
        if task.cancelled():
            # The question was ended, and not whoever asks: a tenant is closed while its server is scraped.
            raise UnavailableError("the database is being closed")
        return task.result()

    def cancel(self) -> None:
        """End the question that is under way, if there is one."""
        if self._task is not None:
            self._task.cancel()


async def _awaited(question: Callable[[], Awaitable[T]]) -> T:
    return await question()


class Scrapers:
    """Who was let in to scrape, remembered by a hash of what they sent."""

    def __init__(self) -> None:
        self._callers: OrderedDict[bytes, Caller] = OrderedDict()
        self._looks: dict[bytes, SingleLook[Caller | None]] = {}

    async def caller(self, credentials: str, look: Callable[[], Awaitable[Caller | None]]) -> Caller | None:
        """Return who scrapes; by memory where the database does not answer, UnavailableError without one."""
        key = sha256(credentials.encode()).digest()
        remembered = self._callers.get(key)
        # Only those that were let in before have a look of their own: others could invent keys without end.
        if remembered is None:
            single: SingleLook[Caller | None] = SingleLook(_FIRST_PATIENCE_S)
        else:
            single = self._looks.setdefault(key, SingleLook())
        try:
            caller = await single.ask(look)
        except UnavailableError:
            if remembered is None:
                raise
            return remembered
        except BaseException:
            self._forget(key)
            raise
        if caller is not None:
            self._callers[key] = caller
            self._callers.move_to_end(key)
            while len(self._callers) > _MOST_SCRAPERS:
                self._forget(next(iter(self._callers)))
        return caller

    def _forget(self, key: bytes) -> None:
        self._callers.pop(key, None)
        self._looks.pop(key, None)

    def cancel(self) -> None:
        """End what is under way."""
        for look in self._looks.values():
            look.cancel()
