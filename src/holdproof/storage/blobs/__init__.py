"""Blobs: bytes by key. Small ones are stored in the database, larger ones as files, in S3 or in IPFS.

    store = Blobs(AsyncExecutor(database), BlobStoreConfig(open_backend("blobs")))   # or SyncExecutor
    await store.put("backups/today.bak", data)

`Blobs[AsyncExecutor]` is a `BlobStore` (storage/stores.py); `Blobs[SyncExecutor]` has the same methods without await.
"""

from holdproof.db import Work, call
from holdproof.executors import Executor, Reads, Resource, Runs, RunsWith, StreamsWith
from holdproof.storage.blobs import checking, reading, removing, writing
from holdproof.storage.blobs.blob_backend import BlobBackend, BlobSource
from holdproof.storage.blobs.blob_config import INLINE, BlobStoreConfig, open_backend

__all__ = ["INLINE", "Blobs", "BlobBackend", "BlobStoreConfig", "BlobSource", "open_backend"]


def _close(config: BlobStoreConfig) -> Work[None]:
    """Close connections to backends; may be called twice. The database stays open."""
    return (yield from call(config.close))


class Blobs(Resource[Executor]):
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

    def __init__(self, face: Executor, config: BlobStoreConfig) -> None:
        super().__init__(face)
        self._config = config

    @property
    def held(self) -> BlobStoreConfig:
        """Where the bytes are stored."""
        return self._config
