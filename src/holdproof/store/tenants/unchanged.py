"""What a round of heads may leave out: tenants whose database nobody wrote to since it was looked at.

Rules:
- Whether somebody wrote is told by what the system itself counts. Of a file: its place, sizes and times, of which that
  of its last change cannot be set. Of a database on the parent's server: the rows ever written there.
- What is seen is noted before the database is looked at: a write in between is one that comes after.
- A file that was changed a moment ago is looked at again, because two changes may have the same time.
- Nothing is left out whose row or recorded head changed, nor anything for longer than an hour: what the system says
  may have been made up by whoever has its rights.
"""

import os
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from holdproof.db import Tx
from holdproof.db.backends import is_url
from holdproof.db.clock import system_clock
from holdproof.db.sql import sql_postgres
from holdproof.errors import HoldproofError
from holdproof.evidence.tenants import TenantRow
from holdproof.model.tenants import TenantHead
from holdproof.store.tenants.places import Parent

LOOK_AGAIN_S: Final = 3600.0
_SETTLED_NS: Final = 2_000_000_000
"""File systems keep times as coarse as two seconds."""

# Before version 15 a connection tells what it wrote with its next statement, which an idle one may never send.
_WRITTEN = sql_postgres(
    "SELECT datname::text, datid::bigint, tup_inserted + tup_updated + tup_deleted, stats_reset::text,"
    " extract(epoch FROM pg_postmaster_start_time())::text FROM pg_stat_database"
    " WHERE datname IS NOT NULL AND current_setting('track_counts')::boolean"
    " AND current_setting('server_version_num')::integer >= 150000"
)

Mark = Hashable
"""What changes whenever somebody writes to a database."""


def databases(tx: Tx) -> Mapping[str, Mark]:
    """Return the marks of all databases on the parent's server; none for a file."""
    return {} if tx.dialect == "sqlite" else {name: tuple(counts) for name, *counts in tx.all(_WRITTEN)}


def marks_of(parent: Parent, rows: Iterable[TenantRow], of_server: Mapping[str, Mark]) -> dict[str, Mark | None]:
    """Return the marks of tenants by their ids; None where one cannot be told, or is too young to be relied on."""
    return {row.id: _mark_of(parent, row, of_server) for row in rows}


def _mark_of(parent: Parent, row: TenantRow, of_server: Mapping[str, Mark]) -> Mark | None:
    try:
        place = parent.place_of(row)
    except HoldproofError:
        return None  # whoever looks says what is wrong
    if place.url is None:
        return _mark_of_files(place.paths.kernel_db)
    # Another server counts for itself, and nobody asks it.
    return None if is_url(row.place) else of_server.get(row.place)


def _mark_of_files(database: Path) -> Mark | None:
    marks: list[Mark] = []
    for file in (database, database.with_name(f"{database.name}-wal")):
        try:
            status = os.stat(file)
        except OSError:
            continue
        # Who only reads may make an empty one.
        if file != database and not status.st_size:
            continue
        if system_clock() * 1000 - status.st_ctime_ns < _SETTLED_NS:
            return None
        marks.append((file.name, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return tuple(marks) or None


class _Seen(NamedTuple):
    mark: Mark
    version: int
    head: str | None
    looked_at: float


class RoundMemory:
    """What was seen of tenants by the rounds of one server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    def is_unchanged(self, row: TenantRow, last_head: TenantHead | None, mark: Mark | None) -> bool:
        """Return whether nothing was written since the tenant was found as its parent knows it."""
        previous = self._seen.get(row.id)
        if previous is None or mark is None or row.finding is not None:
            return False
        is_recent = self._clock() - previous.looked_at < LOOK_AGAIN_S
        return is_recent and previous[:3] == (mark, row.leaf_ver, _id_of(last_head))

    def keep(self, row: TenantRow, last_head: TenantHead | None, mark: Mark | None) -> None:
        """Note what was seen before a look that found nothing new."""
        if mark is None:
            self._seen.pop(row.id, None)
        else:
            self._seen[row.id] = _Seen(mark, row.leaf_ver, _id_of(last_head), self._clock())

    def retain(self, tenants: set[str]) -> None:
        """Forget all tenants but these."""
        self._seen = {id: look for id, look in self._seen.items() if id in tenants}


def _id_of(head: TenantHead | None) -> str | None:
    return None if head is None else head.id
