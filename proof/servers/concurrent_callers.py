"""Many callers at once, who share commits, under one fault after the other; and whether errors tell the truth.

Each caller adds numbers to a list of its own, and goes on with the next whatever comes of it. In the end a list has
every number that was acknowledged, none twice, all in order; and none whose error said that nothing was kept.
"""

import threading
from collections.abc import Callable

from holdproof import errors, sync

CALLERS = 6
_UNKNOWN = (errors.OutcomeUnknownError, errors.WriterDeadError)
"""After these nobody knows, and they say so."""


class ConcurrentCallers:
    """Callers, and what each was told."""

    def __init__(self, turns: int, heard: Callable[[], None]) -> None:
        self._turns, self._heard = turns, heard
        self.done: dict[str, list[int]] = {f"caller-{number}": [] for number in range(CALLERS)}
        self.denied: dict[str, list[int]] = {name: [] for name in self.done}
        self.refused: list[Exception] = []

    def on(self, store: sync.Holdproof) -> None:
        """Call, all at once, to the end."""
        calling = [threading.Thread(target=self._call, args=(store, name), daemon=True) for name in self.done]
        for each in calling:
            each.start()
        for each in calling:
            each.join()

    def _call(self, store: sync.Holdproof, name: str) -> None:
        for turn in range(self._turns):
            try:
                store.transcripts.append(name, [turn])
            except Exception as error:
                self.refused.append(error)
                if isinstance(error, errors.HoldproofError) and not isinstance(error, _UNKNOWN):
                    self.denied[name].append(turn)
            else:
                self.done[name].append(turn)
                self._heard()

    def harms(self, store: sync.Holdproof) -> list[tuple[str, str]]:
        """What must not be."""
        found: list[tuple[str, str]] = []
        for name in self.done:
            kept = self._kept(store, name)
            if gone := sorted(set(self.done[name]) - set(kept)):
                found.append(("lost", f"{name}: {gone} were acknowledged"))
            if len(kept) != len(set(kept)) or kept != sorted(kept):
                found.append(("twice", f"{name}: {kept}"))
            if told := sorted(set(self.denied[name]) & set(kept)):
                found.append(("undetected", f"{name}: {told} were said not to be kept, and are there"))
        return found

    def _kept(self, store: sync.Holdproof, name: str) -> list[int]:
        try:
            return [item.value for item in reversed(store.transcripts.list_items(name, limit=self._turns * 2).items)]
        except errors.NotFoundError:
            return []
