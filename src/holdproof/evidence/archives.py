"""Archives of retention in the log: which records lie in a folder elsewhere, and may be missing here.

Rules:
- An archive is a row with one entry, however many records it has; the entry commits to the hash of the archive's
  manifest and to the places of the records' entries in the log, one bit for each place between the first and the last.
- A record whose entry has its place in an archive may be missing from its table; one that is there is judged as any
  other, so that a crash between the entry and the removal leaves nothing wrong.
- The entries themselves stay: every proof stays valid.
"""

import base64
import zlib
from collections.abc import Sequence
from typing import Final

from holdproof import paging
from holdproof.db import Tx, sql
from holdproof.errors import FormatError
from holdproof.evidence import leaves, logged_tables
from holdproof.evidence.leaves import Projection
from holdproof.model.page import Page
from holdproof.model.retention import MonthArchive

ARCHIVES: Final = Projection(
    "retention_archives",
    1,
    ("id", "what", "month", "count", "place", "sha256", "positions", "who", "archived_at"),
)
LOGGED: Final = (logged_tables.describe(ARCHIVES, kinds=("erasure",), key="id"),)
TABLES: Final = {"audit": "decision_audit_events"}
"""What can be archived, and the table that it is in."""
_MOST_BYTES: Final = 1 << 30


def encode(indexes: Sequence[int]) -> str:
    """Return ascending places as text: the first, a colon, and a packed bit for each place from there on."""
    first = indexes[0]
    bits = bytearray((indexes[-1] - first >> 3) + 1)
    for index in indexes:
        bits[index - first >> 3] |= 1 << (index - first & 7)
    return f"{first}:{base64.b64encode(zlib.compress(bytes(bits), 9)).decode()}"


class Positions:
    """Places in the log, as an archive's row holds them."""

    def __init__(self, text: str) -> None:
        """Decode a row's text; FormatError for one that `encode` does not write."""
        try:
            first, packed = text.split(":")
            self._first = int(first)
            machine = zlib.decompressobj()
            # A row that was edited must not fill the memory of who verifies it.
            self._bits = machine.decompress(base64.b64decode(packed, validate=True), _MOST_BYTES)
            if not machine.eof or self._first < 0:
                raise ValueError("cut off")
        except (ValueError, zlib.error) as error:
            raise FormatError(f"an archive's places in the log cannot be read: {error}") from error

    def __contains__(self, index: int) -> bool:
        at = index - self._first
        return 0 <= at < len(self._bits) << 3 and bool(self._bits[at >> 3] >> (at & 7) & 1)


class ArchivedRecords:
    """The records that archives name, by table and by the place of their entry in the log."""

    def __init__(self) -> None:
        self._by_table: dict[str, tuple[Positions, ...]] = {}

    def add(self, table: str, positions: Positions) -> None:
        """Add those of one archive."""
        self._by_table[table] = (*self._by_table.get(table, ()), positions)

    def has(self, table: str, index: int | None) -> bool:
        """Whether the record of that table whose first entry stands there is in an archive."""
        return index is not None and any(index in each for each in self._by_table.get(table, ()))


# --- writing -----------------------------------------------------------------------------------------------------

_ADD = sql(
    "INSERT INTO retention_archives (id, what, month, count, place, sha256, positions, who, archived_at, leaf_id,"
    " leaf_ver, leaf_salt) VALUES (:id, :what, :month, :count, :place, :sha256, :positions, :who, :archived_at,"
    " :leaf_id, :leaf_ver, :leaf_salt)"
)


def record(tx: Tx, archive: MonthArchive, indexes: Sequence[int]) -> None:
    """Log an archive that was written and checked, with the ascending places of its records' entries."""
    row = {**archive.to_dict(), "positions": encode(indexes)}
    mark = leaves.stamp(tx, "erasure", ARCHIVES, row)
    tx.execute(_ADD, **row, **mark._asdict(), expect=1)


# --- reading -----------------------------------------------------------------------------------------------------

# One without an index waits for the sequencer.
_POSITIONS = sql(
    "SELECT a.what, a.positions FROM retention_archives a"
    " LEFT JOIN log_leaves l ON l.id = a.leaf_id AND l.ver = a.leaf_ver WHERE l.idx IS NULL OR l.idx >= :since"
)


def archived(tx: Tx, *, since: int = 0) -> ArchivedRecords:
    """Return the records that archives name whose entry stands at `since` in the log or behind it.

    A row that was edited and cannot be read any more names none: it is found as every row is.
    """
    records = ArchivedRecords()
    for what, text in tx.all(_POSITIONS, since=since):
        try:
            table = TABLES.get(what)
            if table is not None:
                records.add(table, Positions(text))
        except FormatError:
            continue
    return records


_BEFORE = sql(
    "SELECT id, what, month, count, place, sha256, who, archived_at FROM retention_archives WHERE id < :before"
    " ORDER BY id DESC LIMIT :limit"
)
_LAST: Final = "\U0010ffff"


def list(tx: Tx, *, cursor: str | None = None, limit: int = 100) -> Page[MonthArchive]:
    """List the archives that retention wrote, the newest first, each with the hash of its manifest."""
    (before,) = paging.decode(cursor, _LAST)
    rows = tx.all(_BEFORE, before=before, limit=paging.fetch(limit))
    return paging.page([MonthArchive(*row) for row in rows], limit, _sort_key)


def _sort_key(archive: MonthArchive) -> tuple[str]:
    return (archive.id,)
