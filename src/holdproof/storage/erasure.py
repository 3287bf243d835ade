"""Erasing a subject from blobs and sessions.

Rules:
- Labelled rows are deleted first, then the bytes of blobs, the label last: while it exists, something may remain.
- Bytes that a key without the label shares stay.
- It may be interrupted anywhere and run again; if a backend cannot be reached it raises, and the label stays.
"""

from functools import partial
from typing import Final

from holdproof.db import Read, Work, Write, ask, sql
from holdproof.errors import ConflictError
from holdproof.storage.blobs import blob_rows, removing
from holdproof.storage.blobs.blob_config import BlobStoreConfig

_PAGE: Final = 100
_KNOWN = sql("SELECT 1 FROM service_subjects WHERE handle = :handle")
_SESSIONS = sql("DELETE FROM cli_sessions WHERE subject = :handle")
_FORGET = sql(
    "DELETE FROM service_subjects WHERE handle = :handle"
    " AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.subject = :handle)"
    " AND NOT EXISTS (SELECT 1 FROM cli_sessions s WHERE s.subject = :handle)"
)


def erase(config: BlobStoreConfig, handle: str) -> Work[tuple[str, ...]]:
    """Erase everything with a label, and the label; return where bytes are that could not be erased."""
    remaining: list[str] = []
    while (yield from ask(Read(lambda tx: tx.one(_KNOWN, handle=handle) is not None))):
        while (yield from ask(Write(partial(blob_rows.delete_labelled, handle=handle, limit=_PAGE)))):
            pass
        yield Write(lambda tx: tx.execute(_SESSIONS, handle=handle))
        remaining += yield from removing.finish(config)
        yield from _forgotten(handle)
    return tuple(remaining)


def _forgotten(handle: str) -> Work[None]:
    try:
        yield Write(lambda tx: tx.execute(_FORGET, handle=handle))
    except ConflictError:  # a row was labelled in between: the caller goes round again
        return
