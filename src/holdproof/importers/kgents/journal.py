"""What is remembered of each source: entered with its rows, so that no run does anything twice."""

import json
from typing import NamedTuple

from holdproof.db import Tx, sql


class Entry(NamedTuple):
    """How far a source came."""

    verified: bool
    moved: bool


_FIND = sql("SELECT verified_at, moved_at FROM legacy_moves WHERE source = :source AND fingerprint = :fingerprint")


def find(tx: Tx, source: str, fingerprint: str) -> Entry | None:
    """How far this content of a source came, or None."""
    row = tx.one(_FIND, source=source, fingerprint=fingerprint)
    return None if row is None else Entry(row[0] is not None, row[1] is not None)


_ENTER = sql(
    "INSERT INTO legacy_moves (source, fingerprint, kind, found, written_at)"
    " VALUES (:source, :fingerprint, :kind, :found, :now)"
    " ON CONFLICT (source, fingerprint) DO UPDATE SET written_at = excluded.written_at, verified_at = NULL,"
    " moved_at = NULL"
)


def enter(tx: Tx, source: str, fingerprint: str, *, kind: str, found: dict[str, int]) -> None:
    """The content of a source is written, by this transaction."""
    text = json.dumps(found, sort_keys=True)
    tx.execute(_ENTER, source=source, fingerprint=fingerprint, kind=kind, found=text, now=tx.now)


_VERIFIED = sql("UPDATE legacy_moves SET verified_at = :now WHERE source = :source AND fingerprint = :fingerprint")
_MOVED = sql("UPDATE legacy_moves SET moved_at = :now WHERE source = :source AND fingerprint = :fingerprint")


def verified(tx: Tx, source: str, fingerprint: str) -> None:
    """All of it was read back and is right."""
    tx.execute(_VERIFIED, source=source, fingerprint=fingerprint, now=tx.now, expect=1)


def moved(tx: Tx, source: str, fingerprint: str) -> None:
    """The source has its new name."""
    tx.execute(_MOVED, source=source, fingerprint=fingerprint, now=tx.now, expect=1)


_BEGUN = sql("SELECT count(*) FROM legacy_moves WHERE source = :source AND moved_at IS NULL")


def begun(tx: Tx, source: str) -> bool:
    """Whether a content of a source was written that never got its new name: the source has changed since."""
    [(number,)] = tx.all(_BEGUN, source=source)
    return bool(number)
