"""Waking streams: what is committed by this process is heard at once, what others commit is looked for."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from holdproof.db import Database, Notes
from holdproof.evidence.leaves import TOPIC


class CommitNotifier:
    """Beats when something that is logged was committed here."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Event] = set()

    @asynccontextmanager
    async def hearing(self, database: Database) -> AsyncIterator[None]:
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
        if self._waiting and loop is not None and TOPIC in notes:
            loop.call_soon_threadsafe(self.beat)

    def beat(self) -> None:
        """Wake everybody who waits."""
        for each in self._waiting:
            each.set()

    @contextmanager
    def felt(self) -> Iterator[asyncio.Event]:
        """An event that every beat sets; whoever waits for it clears it first."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            yield event
        finally:
            self._waiting.discard(event)
