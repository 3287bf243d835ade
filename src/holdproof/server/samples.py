"""How a store grows while a server watches it, closer than once an hour; what it was before, `log.growth` tells."""

from collections import deque
from typing import Final

from holdproof.client import Holdproof
from holdproof.evidence import growth
from holdproof.model.log import StoreSize

MOST: Final = 720
"""At one in five seconds, an hour; then every second one is dropped."""


class Samples:
    """The sizes of one store, the oldest first; the longer it is watched, the further apart they are."""

    def __init__(self) -> None:
        self.history: deque[StoreSize] = deque()
        self._skip = 1
        self._beat = 0

    async def take(self, store: Holdproof) -> None:
        """Look at the store, if it is time."""
        self._beat += 1
        if self._beat % self._skip:
            return
        self.keep(await store.read(growth.now))

    def keep(self, sample: StoreSize) -> None:
        """Put a sample to the others; once they are too many, every second one goes, and fewer come."""
        self.history.append(sample)
        if len(self.history) > MOST:
            # Memory stays bounded however long the server runs.
            self.history = deque([*self.history][::2])
            self._skip = self._skip * 2
