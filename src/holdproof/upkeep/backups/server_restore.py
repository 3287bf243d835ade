"""Restore into PostgreSQL: load into schemas beside the live ones, verify them, exchange all in one transaction."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdproof.db import Database, Tx, migrate, open_database
from holdproof.db.postgres import application, catalogue, transfer
from holdproof.db.postgres.snapshot import open_snapshot
from holdproof.db.transfer import TableSnapshot
from holdproof.errors import BusyError, HoldproofError
from holdproof.model.progress import Progress
from holdproof.upkeep.backups import staging, stream
from holdproof.upkeep.backups.dumps import DumpSnapshot
from holdproof.upkeep.backups.restore_log import ReplacedStore

_LONG_S = 3600.0
_PATIENCE_S = 3.0


def current(url: str, read: Callable[[ReplacedStore, Tx], None]) -> ReplacedStore:
    """Read what can be read of the live store, with `read`; damage is noted, not raised; BusyError if it is open."""
    refuse_open(url)
    state = ReplacedStore()
    if not catalogue.exists(url):
        return state
    try:
        with open_snapshot(url, ["kernel"]) as live:
            read(state, live.tx("kernel"))
    except HoldproofError as error:
        state.notes.append(f"the store that is replaced could not be read in full: {error.message}")
    return state


def refuse_open(url: str) -> None:
    """Raise BusyError while the store is open; connections that were just closed get a moment to disappear."""
    deadline = time.monotonic() + _PATIENCE_S
    while count := catalogue.opened(url):
        if time.monotonic() >= deadline:
            raise BusyError(
                "the store is open elsewhere: close it first. Where a pooler keeps sessions that nobody uses, RECONNECT"
                " on its console closes them",
                connections=count,
            )
        time.sleep(0.05)


@contextmanager
def loaded(url: str, snapshot: TableSnapshot, spaces: list[str], progress: Progress) -> Iterator[Database]:
    """Load the tables of a snapshot into staged schemas and open the kernel's; dropped unless they were exchanged."""
    transfer.prepare(url, spaces)
    try:
        for space in spaces:
            _load(url, snapshot, space, progress)
        described = snapshot.application() if isinstance(snapshot, DumpSnapshot) else None
        if described is not None and isinstance(snapshot, DumpSnapshot):
            rows = snapshot.application_rows(described)
            application.load(url, described, rows.__getitem__)
        database = _open(url, "kernel", migrate.shipped("kernel"))
        try:
            yield database
        finally:
            database.close()
    finally:
        transfer.discard(url)


def _load(url: str, snapshot: TableSnapshot, space: str, progress: Progress) -> None:
    """Fill one staged schema: its tables as they were when the snapshot was taken, then migrated to this version."""
    steps = migrate.shipped(space)
    _open(url, space, staging.steps_of(snapshot, space)).close()
    target = transfer.PostgresTarget(url, staging=True)
    columns = stream.tables(snapshot, space)
    if isinstance(snapshot, DumpSnapshot):
        if space == "kernel":
            # From server to server, entries that no head covers yet wait on.
            columns |= {table: names for table, names in snapshot.tables(space).items() if table == stream.PENDING}
        rows = {
            table: stream.adapted(table, names, snapshot.rows(space, table, names), to_server=True)
            for table, names in columns.items()
        }
        target.fill(space, columns, rows, snapshot.counters(space))
    else:
        if space == "membrane":
            stream.refuse_application_tables(columns)
        stream.pour(snapshot, target, space, columns, progress, to_server=True)
    _open(url, space, steps).close()
    transfer.grant(url, space)


def _open(url: str, space: str, steps: list[migrate.Migration]) -> Database:
    return open_database(
        url, space=transfer.staged(space), migrations=steps, workers=1, readers=1, read_limit_s=_LONG_S
    )


def exchange(url: str, spaces: list[str], aside: str) -> None:
    """Make the staged schemas the live ones, in one transaction."""
    refuse_open(url)
    transfer.exchange(url, spaces, aside)
