"""What a blob store holds: the places its bytes lie at, and what stays in the database."""

import math
from collections import deque
from typing import Final

from holdproof.errors import ConfigError
from holdproof.storage.blobs.blob_backend import BlobBackend
from holdproof.storage.blobs.blob_rows import DB
from holdproof.storage.blobs.bodies import Spool

INLINE: Final = 32 << 10
"""Up to here a row in a group commit is faster than a file with its syncs."""


class BlobStoreConfig:
    """New blobs that are too large for a row go to `place`; those at `others` are still found there.

    Without a place everything stays in the database, as it must in memory. A shelf belongs to one database.
    """

    def __init__(self, place: BlobBackend | None = None, *others: BlobBackend, inline: int = INLINE) -> None:
        self.place = place
        self.inline: float = math.inf if place is None else inline
        self.places: dict[str, BlobBackend] = {each.kind: each for each in (place, *others) if each is not None}
        self.endings: deque[str] = deque()
        """What names of new objects shall end in: drawn many at a time."""

    def place_for(self, size: int) -> BlobBackend | None:
        """Where a new blob of that size goes; None for its row."""
        return None if size <= self.inline else self.place

    def spool(self) -> Spool:
        """A temporary file for a stream that is too large for a row."""
        assert self.place is not None
        return self.place.spool()

    def at(self, kind: str) -> BlobBackend:
        """The place that a row names."""
        found = self.places.get(kind)
        if found is None:
            raise ConfigError(f"there are blobs at {kind}, and this store was opened without it", place=kind)
        return found

    def where(self, key: str, place: str, address: str | None) -> str:
        """Where the bytes of a blob lie."""
        return f"{DB}:{key}" if address is None else self.at(place).where(address)

    def close(self) -> None:
        """Let go of connections; may be called twice."""
        for place in self.places.values():
            place.close()
