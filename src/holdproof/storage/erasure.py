"""Erasing a person from blobs and sessions.

Rules:
- Every labelled row goes with what belongs to it, then the bytes of blobs wherever they lie, the label last: as long as
  that is there, something may be left to remove.
- Bytes that a key without the label has too are that key's, and stay.
- It may be broken off anywhere and done again; it ends with an error, and the label stays, where bytes lie at a place
  that cannot be reached now.
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
    """Remove all that carries a label, and the label; where bytes lie that could not be removed for good."""
    left: list[str] = []
    while (yield from ask(Read(lambda tx: tx.one(_KNOWN, handle=handle) is not None))):
        while (yield from ask(Write(partial(blob_rows.delete_labelled, handle=handle, limit=_PAGE)))):
            pass
        yield Write(lambda tx: tx.execute(_SESSIONS, handle=handle))
        left += yield from removing.finish(config)
        yield from _forgotten(handle)
    return tuple(left)


def _forgotten(handle: str) -> Work[None]:
    try:
        yield Write(lambda tx: tx.execute(_FORGET, handle=handle))
    except ConflictError:  # somebody labelled a row in between: once more
        return
