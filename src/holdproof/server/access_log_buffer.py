"""The access log's buffer: a first refusal is written at once, repetitions are counted and written once a minute.

Rules:
- The first refusal of its kind is written before it is answered.
- More of the same kind within `WINDOW_S` are counted, and written as one row when that time is over.
- At most `MOST` kinds are told apart at a time; the rest are counted as one.
- A failed write refuses no request; the server's own log reports it.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from holdproof.client import Holdproof
from holdproof.errors import HoldproofError
from holdproof.model.access import AccessEvent

_log = logging.getLogger("holdproof.server")

WINDOW_S: Final = 60.0
MOST: Final = 1000
_Kind = tuple[str, int, str, str, str, str]


class AccessLogBuffer:
    """Access events and the last use of tokens, buffered on their way into the store."""

    def __init__(self, store: Holdproof, now: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._now = now
        self._clock = clock
        self._open: dict[_Kind, tuple[float, AccessEvent]] = {}
        self._used: dict[str, str] = {}
        self._touched: dict[str, float] = {}

    async def note(self, event: AccessEvent) -> None:
        """Write an event, or count it if it is one more of a kind."""
        kind = (event.event, event.status, event.code, event.caller, event.address, event.path)
        # A caller who varies path or address would otherwise fill the log and our memory: beyond MOST kinds, everything
        # is one kind, told apart by status and code only.
        if kind not in self._open and len(self._open) >= MOST:
            event = replace(event, caller="", address="", method="", path="", detail="many at once")
            kind = ("flood", event.status, event.code, "", "", "")
        if kind in self._open:
            until, counted = self._open[kind]
            self._open[kind] = (until, replace(event, count=counted.count + 1, created_at=self._now()))
            return
        # The first one is written now, so what the window counts starts from zero.
        self._open[kind] = (self._clock() + WINDOW_S, replace(event, count=0))
        await self._write([event])

    def used(self, token_id: str) -> None:
        """A token was used: to be written with the next flush, every few minutes."""
        # The last use of a token is only indicative: a write for every request would cost more than the request.
        if self._clock() - self._touched.get(token_id, -1e9) >= 5 * WINDOW_S:
            self._touched[token_id] = self._clock()
            self._used[token_id] = self._now()

    async def flush(self, *, ending: bool = False) -> None:
        """Write what was counted in windows that are over, or in all at the end."""
        now = self._clock()
        over = [kind for kind, (until, _) in self._open.items() if ending or until <= now]
        events = [event for event in (self._open.pop(kind)[1] for kind in over) if event.count]
        if events:
            await self._write(events)
        if self._used:
            # Swapped before the await: a token that is used meanwhile goes into the next flush.
            used = self._used
            self._used = {}
            try:
                await self._store.tokens.touch(used)
            except HoldproofError as error:
                _log.warning("the last use of tokens could not be written: %s", error)
        self._touched = {token: at for token, at in self._touched.items() if now - at < 10 * WINDOW_S}

    async def _write(self, events: list[AccessEvent]) -> None:
        try:
            await self._store.access_log.record(events)
        except HoldproofError as error:
            _log.warning("%d events of the access log could not be written: %s", len(events), error)
