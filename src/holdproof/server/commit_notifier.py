"""Waking event streams at commits of this process; commits of other processes are polled for."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from holdproof.db import Database, Notes
from holdproof.evidence.leaves import TOPIC


class CommitNotifier:
    """Wake subscribers when this process commits something that is logged."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Event] = set()

    @asynccontextmanager
    async def listening_to(self, database: Database) -> AsyncIterator[None]:
        """Hear what is committed to a database, as long as this lasts."""
        self._loop = asyncio.get_running_loop()
        database.hooks.after_commit.append(self._committed)
        try:
            yield
        finally:
            database.hooks.after_commit.remove(self._committed)
            self._loop = None

    def _committed(self, notes: Notes) -> None:
        """Called on the writer's thread."""
        loop = self._loop
        # Without a subscriber the loop is left alone: this runs after every commit, on the writer's thread.
        if self._waiting and loop is not None and TOPIC in notes:
            loop.call_soon_threadsafe(self.wake_all)

    def wake_all(self) -> None:
        """Wake everybody who waits."""
        for each in self._waiting:
            each.set()

    @contextmanager
    def subscription(self) -> Iterator[asyncio.Event]:
        """Yield an event that every such commit sets; the subscriber clears it before it waits."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            yield event
        finally:
            self._waiting.discard(event)
