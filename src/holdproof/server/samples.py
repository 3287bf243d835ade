"""How a store grows while it is watched: a number now and then, kept in memory as long as the server runs."""

import asyncio
from collections import deque
from typing import Final, NamedTuple

from holdproof.client import Holdproof
from holdproof.db import Tx
from holdproof.evidence import log, tree

MOST: Final = 720
"""At one in five seconds, an hour; then every second one is dropped."""


class Sample(NamedTuple):
    """The size of a store at a moment."""

    at: str
    leaves: int
    bytes: int
    wal: int


class Samples:
    """The sizes of one store, the oldest first; the longer it is watched, the further apart they are."""

    def __init__(self) -> None:
        self.history: deque[Sample] = deque()
        self._skip = 1
        self._beat = 0

    async def take(self, store: Holdproof, at: str) -> None:
        """Look at the store, if it is time."""
        self._beat += 1
        if self._beat % self._skip:
            return
        facts = await asyncio.to_thread(store.database.backend.facts)
        sizes = facts.get("bytes", {})
        self.keep(Sample(at, await store.read(_leaves), sizes.get("database", 0), sizes.get("wal", 0)))

    def keep(self, sample: Sample) -> None:
        """Put a sample to the others; once they are too many, every second one goes, and fewer come."""
        self.history.append(sample)
        if len(self.history) > MOST:
            # Memory stays bounded however long the server runs, and the chart always covers all of that time.
            self.history = deque([*self.history][::2])
            self._skip = self._skip * 2


def _leaves(tx: Tx) -> int:
    return tree.state(tx).size + log.pending(tx) if tree.exists(tx) else 0
