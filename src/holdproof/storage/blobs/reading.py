"""Reading blobs.

Rules:
- Bytes leave the store only with the size and the SHA-256 of their row, else BlobCorruptError names the key.
- A stream withholds its last piece until all of them are verified: a stream that ended without an error was right.
- A read sees one version of a blob; if that is replaced before its bytes are opened, it sees the next one.
"""

from contextlib import suppress
from typing import Final

from holdproof import paging
from holdproof.db import Give, Read, Stream, Tx, Work, ask, call
from holdproof.errors import InvalidInputError, NotFoundError, StaleVersionError
from holdproof.model.blobs import Blob, can_begin, check_key
from holdproof.model.page import Page
from holdproof.storage.blobs import blob_rows
from holdproof.storage.blobs.blob_config import BlobStoreConfig
from holdproof.storage.blobs.verified import VerifiedReader, corrupt

_TRIES: Final = 5


def get(config: BlobStoreConfig, key: str) -> Work[bytes | None]:
    """Return the verified bytes of a key, or None."""
    for _ in range(_TRIES):
        with suppress(StaleVersionError):
            return (yield from _read(config, key))
    return (yield from _read(config, key))


def _read(config: BlobStoreConfig, key: str) -> Work[bytes | None]:
    reader = yield from _open(config, key)
    if reader is None:
        return None
    # Bytes from a row are in memory already: no thread is needed to read them.
    return reader.read_all() if reader.in_memory else (yield from call(reader.read_all))


def open_read(config: BlobStoreConfig, key: str) -> Stream[bytes]:
    """Stream the bytes of a key in bounded memory; raises NotFoundError where there is none."""
    reader = yield from _open(config, key)
    if reader is None:
        raise NotFoundError(f"no blob {key}", listed_by="blobs list", key=key)
    try:
        previous = b""
        while piece := (yield from call(reader.piece)):
            if previous:
                yield Give(previous)
            previous = piece
        if previous:
            yield Give(previous)
    finally:
        reader.close()


def _open(config: BlobStoreConfig, key: str) -> Work[VerifiedReader | None]:
    """Open the bytes of a key; read the row again if they are missing, because they may have been replaced."""
    check_key(key)
    missed: Blob | None = None
    while (row := (yield from ask(Read(lambda tx: blob_rows.find(tx, key))))) is not None:
        blob, data = row
        if blob.address is None:
            return VerifiedReader.from_bytes(blob, data or b"")
        # The same row twice without bytes: nobody replaced them, they are lost.
        if missed == blob:
            raise corrupt(blob, "missing")
        try:
            return VerifiedReader(blob, (yield from call(config.at(blob.place).open, blob.address)))
        except FileNotFoundError:
            missed = blob
    return None


def stat(tx: Tx, key: str) -> Blob | None:
    """Return size, hash, type and place of a blob, or None."""
    return blob_rows.stat(tx, check_key(key))


def exists(tx: Tx, key: str) -> bool:
    """Whether there is such a key."""
    return stat(tx, key) is not None


def list_stats(tx: Tx, *, prefix: str = "", cursor: str | None = None, limit: int = 100) -> Page[Blob]:
    """List size, hash, type and place of the blobs whose keys begin with a text, in code point order."""
    if not isinstance(prefix, str):
        raise InvalidInputError("prefix must be a text", field="prefix")
    (after,) = paging.decode(cursor, "")
    if not can_begin(prefix):
        return Page([])
    rows = blob_rows.stats(tx, after, prefix, paging.fetch(limit))
    # Keys with a prefix are consecutive in code point order: the first that leaves it ends the listing.
    return paging.page([each for each in rows if each.key.startswith(prefix)], limit, lambda blob: (blob.key,))


def list(tx: Tx, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> Page[str]:
    """List the keys that begin with a text, in code point order."""
    if not isinstance(prefix, str):
        raise InvalidInputError("prefix must be a text", field="prefix")
    (after,) = paging.decode(cursor, "")
    if not can_begin(prefix):
        return Page([])
    keys = blob_rows.keys(tx, after, prefix, paging.fetch(limit))
    # Keys with a prefix are consecutive in code point order: the first that leaves it ends the listing.
    return paging.page([key for key in keys if key.startswith(prefix)], limit, lambda key: (key,))
