"""Blobs: bytes by key. Small ones lie in the database, larger ones as files, in S3 or in IPFS.

    store = Blobs(AsyncFace(database), Shelf(open_place("blobs")))     # or SyncFace
    await store.put("backups/today.bak", data)

`Blobs[AsyncFace]` is a `BlobStore` (storage/stores.py); `Blobs[SyncFace]` shows the same verbs without await.
"""

from holdproof.db import Work, call
from holdproof.faces import Face, Noun, Reads, Runs, RunsWith, StreamsWith
from holdproof.storage.blobs import checking, reading, removing, writing
from holdproof.storage.blobs.opening import open_place
from holdproof.storage.blobs.places import Place, Source
from holdproof.storage.blobs.shelf import INLINE, Shelf

__all__ = ["INLINE", "Blobs", "Place", "Shelf", "Source", "open_place"]


def _close(shelf: Shelf) -> Work[None]:
    """Let go of connections; may be called twice. The database stays open."""
    return (yield from call(shelf.close))


class Blobs(Noun[Face]):
    """The blobs of one database."""

    put = RunsWith(writing.put)
    open_write = RunsWith(writing.open_write)
    get = RunsWith(reading.get, reads=True)
    open_read = StreamsWith(reading.open_read, reads=True)
    stat = Reads(reading.stat)
    exists = Reads(reading.exists)
    list = Runs(reading.list, reads=True)
    delete = RunsWith(removing.delete)
    sweep = RunsWith(removing.sweep)
    check = RunsWith(checking.check, reads=True)
    close = RunsWith(_close)

    def __init__(self, face: Face, shelf: Shelf) -> None:
        super().__init__(face)
        self._shelf = shelf

    @property
    def held(self) -> Shelf:
        """Where the bytes lie."""
        return self._shelf
