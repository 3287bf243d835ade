"""Erasing a subject from blobs and sessions.

Rules:
- Labelled rows are deleted first, then the bytes of blobs, the label last: while it exists, something may remain.
- Bytes that a key without the label shares stay.
- It may be interrupted anywhere and run again; if a backend cannot be reached it raises, and the label stays.
- A round that removes nothing while the label is still there is the last: it raises instead of going round for ever.
"""

from functools import partial
from typing import Final

from holdproof.db import Read, Work, Write, ask, sql
from holdproof.errors import ConflictError, DatabaseError
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
        removed = 0
        while count := (yield from ask(Write(partial(blob_rows.delete_labelled, handle=handle, limit=_PAGE)))):
            removed += count
        removed += yield from ask(Write(lambda tx: tx.count(_SESSIONS, handle=handle)))
        remaining += yield from removing.finish(config)
        removed += yield from _forgotten(handle)
        if not removed:
            raise DatabaseError(
                "the database does not remove the rows of this subject; look for triggers on blobs, cli_sessions and"
                " service_subjects in it, drop them, and erase the subject again"
            )
    return tuple(remaining)


def _forgotten(handle: str) -> Work[int]:
    """Delete the label; return 1 if that was progress."""
    try:
        return (yield from ask(Write(lambda tx: tx.count(_FORGET, handle=handle))))
    except ConflictError:  # a row was labelled in between: the caller goes round again
        return 1
