"""The book at the door: what is refused is written down, once a minute for each kind, and then only counted.

Rules:
- The first refusal of its kind is written before it is answered.
- More of the same kind within `WINDOW_S` are counted, and written as one row when that time is over.
- At most `MOST` kinds are told apart at a time; the rest are counted as one.
- A book that cannot be written stops nobody; the server's own log tells of it.
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
    """Events at the door and the last use of tokens, on their way into the store."""

    def __init__(self, store: Holdproof, now: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._now, self._clock = store, now, clock
        self._open: dict[_Kind, tuple[float, AccessEvent]] = {}
        self._used: dict[str, str] = {}
        self._touched: dict[str, float] = {}

    async def note(self, event: AccessEvent) -> None:
        """Write an event, or count it if it is one more of a kind."""
        kind = (event.event, event.status, event.code, event.caller, event.address, event.path)
        if kind not in self._open and len(self._open) >= MOST:
            event = replace(event, caller="", address="", method="", path="", detail="many at once")
            kind = ("flood", event.status, event.code, "", "", "")
        known = self._open.get(kind)
        if known is not None:
            again = replace(event, count=known[1].count + 1, created_at=self._now())
            self._open[kind] = (known[0], again)
            return
        self._open[kind] = (self._clock() + WINDOW_S, replace(event, count=0))
        await self._write([event])

    def used(self, token_id: str) -> None:
        """A token was used: to be written with the next flush, every few minutes."""
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
            used, self._used = self._used, {}
            try:
                await self._store.tokens.touch(used)
            except HoldproofError as error:
                _log.warning("the last use of tokens could not be kept: %s", error)
        self._touched = {token: at for token, at in self._touched.items() if now - at < 10 * WINDOW_S}

    async def _write(self, events: list[AccessEvent]) -> None:
        try:
            await self._store.access_log.record(events)
        except HoldproofError as error:
            _log.warning("%d events at the door could not be kept: %s", len(events), error)
