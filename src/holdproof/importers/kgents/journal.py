"""The journal of imported sources: written with their rows, so that no run does anything twice."""

import json
from typing import NamedTuple

from holdproof.db import Tx, sql


class JournalEntry(NamedTuple):
    """How far the import of a source is."""

    verified: bool
    moved: bool


_FIND = sql("SELECT verified_at, moved_at FROM legacy_moves WHERE source = :source AND fingerprint = :fingerprint")


def find(tx: Tx, source: str, fingerprint: str) -> JournalEntry | None:
    """How far the import of this content is; None if it has not begun."""
    row = tx.one(_FIND, source=source, fingerprint=fingerprint)
    if row is None:
        return None
    verified_at, moved_at = row
    return JournalEntry(verified_at is not None, moved_at is not None)


_ENTER = sql(
    "INSERT INTO legacy_moves (source, fingerprint, kind, found, written_at)"
    " VALUES (:source, :fingerprint, :kind, :found, :now)"
    " ON CONFLICT (source, fingerprint) DO UPDATE SET written_at = excluded.written_at, verified_at = NULL,"
    " moved_at = NULL"
)


def enter(tx: Tx, source: str, fingerprint: str, *, kind: str, counts: dict[str, int]) -> None:
    """Record that the content of a source is written by this transaction."""
    text = json.dumps(counts, sort_keys=True)
    tx.execute(_ENTER, source=source, fingerprint=fingerprint, kind=kind, found=text, now=tx.now)


_VERIFIED = sql("UPDATE legacy_moves SET verified_at = :now WHERE source = :source AND fingerprint = :fingerprint")
_MOVED = sql("UPDATE legacy_moves SET moved_at = :now WHERE source = :source AND fingerprint = :fingerprint")


def verified(tx: Tx, source: str, fingerprint: str) -> None:
    """Record that all of it was read back without a difference."""
    tx.execute(_VERIFIED, source=source, fingerprint=fingerprint, now=tx.now, expect=1)


def moved(tx: Tx, source: str, fingerprint: str) -> None:
    """Record that the source has its new name."""
    tx.execute(_MOVED, source=source, fingerprint=fingerprint, now=tx.now, expect=1)


_BEGUN = sql("SELECT count(*) FROM legacy_moves WHERE source = :source AND moved_at IS NULL")


def begun(tx: Tx, source: str) -> bool:
    """Whether an earlier content of a source was written and the source never renamed: it has changed since."""
    [(number,)] = tx.all(_BEGUN, source=source)
    return bool(number)
