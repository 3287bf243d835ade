"""Whether the store answers: looked at now and then, told to the log when it changes, and asked by `/readyz`.

Rules:
- An answer comes within a second: orchestrators wait no longer, and take silence for death.
- One look at a time. A database that hangs must not gather threads that wait for it.
"""

import asyncio
import logging
import time
from typing import Final, NamedTuple

from holdproof.client import Holdproof
from holdproof.errors import HoldproofError

_log = logging.getLogger("holdproof.server")

_PATIENCE_S: Final = 0.8


class Health(NamedTuple):
    """A store that answers: whether it is locked, and how many things are degraded."""

    locked: bool
    degraded: int


class Readiness:
    """What is known of one store's database."""

    def __init__(self, store: Holdproof) -> None:
        self._store = store
        self._look: asyncio.Task[Health | HoldproofError] | None = None
        self._gone_at: float | None = None

    async def check(self) -> Health | None:
        """Return the health of the store; None where its database does not answer in time."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._ask())
        try:
            async with asyncio.timeout(_PATIENCE_S):
                # Shielded: the look goes on, and the next caller waits for the same one.
                answer = await asyncio.shield(self._look)
        except TimeoutError:
            self._gone(f"no answer within {_PATIENCE_S} s")
            return None
        if isinstance(answer, HoldproofError):
            self._gone(answer.message)
            return None
        self._back()
        return answer

    async def stop(self) -> None:
        """End the look that is under way, if there is one."""
        if self._look is not None:
            self._look.cancel()
            await asyncio.gather(self._look, return_exceptions=True)

    async def _ask(self) -> Health | HoldproofError:
        # Returned, not raised: nobody may be waiting any more, and asyncio would complain of an error left alone.
        try:
            locked = await self._store.lockdown.status() is not None
            return Health(locked, len((await self._store.status()).degraded))
        except HoldproofError as error:
            return error

    def _gone(self, why: str) -> None:
        if self._gone_at is None:
            self._gone_at = time.monotonic()
            _log.error("the database does not answer: %s", why)

    def _back(self) -> None:
        if self._gone_at is not None:
            _log.warning("the database answers again after %.1f s", time.monotonic() - self._gone_at)
            self._gone_at = None
