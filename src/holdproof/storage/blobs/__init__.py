"""Blobs: bytes by key. Small ones are stored in the database, larger ones as files, in S3 or in IPFS.

    store = Blobs(AsyncExecutor(database), BlobStoreConfig(open_backend("blobs")))   # or SyncExecutor
    await store.put("backups/today.bak", data)

`Blobs[AsyncExecutor]` is a `BlobStore` (storage/stores.py); `Blobs[SyncExecutor]` has the same methods without await.
"""

from holdproof.db import Work, call
from holdproof.executors import Executor, Reads, Resource, RunsWith, StreamsWith
from holdproof.executors.exit_codes import exit_absent, exit_findings
from holdproof.storage.blobs import checking, reading, removing, writing
from holdproof.storage.blobs.blob_backend import BlobBackend, BlobSource
from holdproof.storage.blobs.blob_config import INLINE, BlobStoreConfig, open_backend

__all__ = ["INLINE", "Blobs", "BlobBackend", "BlobStoreConfig", "BlobSource", "open_backend"]


def _close(config: BlobStoreConfig) -> Work[None]:
    """Close connections to backends; may be called twice. The database stays open."""
    return (yield from call(config.close))


class Blobs(Resource[Executor]):
    """The blobs of one database."""

    put = RunsWith(writing.put, example="backups/today.bak today.bak --content-type application/gzip", creates=True)
    open_write = RunsWith(writing.open_write, creates=True)
    get = RunsWith(reading.get, reads=True, example="backups/today.bak --out today.bak")
    open_read = StreamsWith(reading.open_read, reads=True)
    stat = Reads(reading.stat, example="backups/today.bak --json")
    exists = Reads(reading.exists, example="backups/today.bak", exit_code=exit_absent)
    list = Reads(
        reading.list, parameters={"prefix": "Only keys that begin with this."}, example="backups/ --limit 1000"
    )
    list_stats = Reads(
        reading.list_stats,
        columns=("key", "size", "content_type", "place", "put_at"),
        parameters={"prefix": "Only blobs whose keys begin with this."},
        example="--prefix backups/",
    )
    delete = RunsWith(removing.delete, example="backups/today.bak", exit_code=exit_absent)
    sweep = RunsWith(removing.sweep, example="--older-than-s 86400")
    check = RunsWith(checking.check, reads=True, exit_code=exit_findings)
    close = RunsWith(_close, internal=True, local=True)

    def __init__(self, executor: Executor, config: BlobStoreConfig) -> None:
        super().__init__(executor)
        self._config = config

    @property
    def held(self) -> BlobStoreConfig:
        """Where the bytes are stored."""
        return self._config
