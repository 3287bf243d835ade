"""Reading blobs.

Rules:
- Bytes leave the store only with the size and the SHA-256 of their row, else BlobCorruptError names the key.
- A stream holds its last piece back until all of them are verified: what ended without an error was right.
- A read sees one version of a blob; if that is replaced before its bytes are opened, it sees the next one.
"""

import builtins
from contextlib import suppress
from functools import partial
from typing import Final

from holdproof.db import Give, Read, Stream, Tx, Work, ask, call
from holdproof.errors import InvalidInputError, NotFoundError, StaleVersionError
from holdproof.model.blobs import Blob, can_begin, check_key
from holdproof.storage.blobs import blob_rows
from holdproof.storage.blobs.blob_config import BlobStoreConfig
from holdproof.storage.blobs.verified import Verified, corrupt

_PAGE: Final = 1_000
_TRIES: Final = 5
_SUCCESSOR: Final = "\x01"
"""No key has a control character, so nothing lies between a key and the same with this at its end."""


def get(shelf: BlobStoreConfig, key: str) -> Work[bytes | None]:
    """The bytes of a key, verified, or None."""
    for _ in range(_TRIES):
        with suppress(StaleVersionError):
            return (yield from _whole(shelf, key))
    return (yield from _whole(shelf, key))


def _whole(shelf: BlobStoreConfig, key: str) -> Work[bytes | None]:
    found = yield from _open(shelf, key)
    if found is None:
        return None
    return found.whole() if found.here else (yield from call(found.whole))


def open_read(shelf: BlobStoreConfig, key: str) -> Stream[bytes]:
    """The bytes of a key in pieces, in bounded memory; NotFoundError where there is none."""
    found = yield from _open(shelf, key)
    if found is None:
        raise NotFoundError(f"no blob {key}", key=key)
    try:
        held = b""
        while piece := (yield from call(found.piece)):
            if held:
                yield Give(held)
            held = piece
        if held:
            yield Give(held)
    finally:
        found.close()


def _open(shelf: BlobStoreConfig, key: str) -> Work[Verified | None]:
    """The bytes of a key; once more from the row if they are gone, because they may have been replaced."""
    check_key(key)
    missed: Blob | None = None
    while (found := (yield from ask(Read(lambda tx: blob_rows.find(tx, key))))) is not None:
        blob, data = found
        if blob.address is None:
            return Verified.of(blob, data or b"")
        if missed == blob:
            raise corrupt(blob, "missing")
        try:
            return Verified(blob, (yield from call(shelf.at(blob.place).open, blob.address)))
        except FileNotFoundError:
            missed = blob
    return None


def stat(tx: Tx, key: str) -> Blob | None:
    """What is known of a blob, or None."""
    return blob_rows.stat(tx, check_key(key))


def exists(tx: Tx, key: str) -> bool:
    """Whether there is such a key."""
    return stat(tx, key) is not None


def list(prefix: str = "") -> Work[builtins.list[str]]:
    """The keys that begin with a text, sorted by code point."""
    if not isinstance(prefix, str):
        raise InvalidInputError("a prefix is a text", field="prefix")
    found: builtins.list[str] = []
    since, more = prefix, can_begin(prefix)
    while more:
        page = yield from ask(Read(partial(blob_rows.keys, since=since, limit=_PAGE)))
        found += [key for key in page if key.startswith(prefix)]
        more = len(page) == _PAGE and page[-1].startswith(prefix)
        since = page[-1] + _SUCCESSOR if page else since
    return found
