"""Snapshots of database files: taken while writers run, read, edited and merged into one file.

Rules:
- A copy is made page by page from one snapshot through SQLite's own backup API: writers go on, and what they write
  meanwhile is not in the copy. Page checksums are kept.
- A copy is one file, in rollback mode: no write-ahead log beside it, so that one hash covers it.
- Nothing here touches a live database, except `fold`, which moves the write-ahead log into the file and empties it, and
  `shrink`, which cuts off free pages.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import apsw.sqlite_extra

from holdproof.db.clock import Clock, system_clock, system_random
from holdproof.db.sqlite.files import INCREMENTAL, connect, readable, typed_by_disk
from holdproof.db.sqlite.tx import SqliteTx
from holdproof.db.tx import Tx
from holdproof.errors import HoldproofError

# Pages per step: between two steps other commits get their turn.
_PAGES = 512

# Between two attempts to empty the write-ahead log while another connection moves it.
_CHECKPOINT_PAUSE_S = 0.01


def copy(source: Path, target: Path, *, on_snapshot: Callable[[], None], progress: Callable[[int, int], None]) -> None:
    """Copy a live database into a new file; calls `on_snapshot` once the snapshot is fixed. Durable when it returns."""
    reading = connect(source, busy_s=10)
    writing = connect(target, busy_s=0)
    try:
        reading.pragma("query_only", True)
        reading.execute("BEGIN")
        reading.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()  # the first read fixes the snapshot
        on_snapshot()
        _pages(reading, writing, progress)
        writing.pragma("journal_mode", "delete")
    except apsw.Error as error:
        raise typed_by_disk(error, writing, target) from error
    finally:
        writing.close()
        reading.close()
    sync(target)


def _pages(reading: apsw.Connection, writing: apsw.Connection, progress: Callable[[int, int], None]) -> None:
    writing.pragma("synchronous", "off")  # synced once, at the end
    writing.pragma("user_version", 1)  # a first page, or pages written before it would get no checksum
    with writing.backup("main", reading, "main") as backup:
        while not backup.done:
            backup.step(_PAGES)
            progress(backup.page_count - backup.remaining, backup.page_count)
    reading.execute("ROLLBACK")


@contextmanager
def view(path: Path, clock: Clock = system_clock) -> Iterator[Tx]:
    """Open a copy, or any database that may be damaged, for reading."""
    with _open(path) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.pragma("query_only", True)
        connection.execute("BEGIN")
        yield SqliteTx(connection, clock, system_random)
        connection.execute("ROLLBACK")


@contextmanager
def edit(path: Path, clock: Clock = system_clock) -> Iterator[Tx]:
    """Open a copy for one change that erases what it replaces; atomic except for a crash."""
    with _open(path) as connection:
        connection.pragma("journal_mode", "memory")
        connection.pragma("secure_delete", True)
        connection.execute("BEGIN IMMEDIATE")
        yield SqliteTx(connection, clock, system_random)
        connection.execute("COMMIT")
    sync(path)


@contextmanager
def _open(path: Path) -> Iterator[apsw.Connection]:
    connection = connect(path, busy_s=10, create=False)
    try:
        yield connection
    except apsw.Error as error:
        raise typed_by_disk(error, connection, path) from error
    finally:
        connection.close()


def flatten(path: Path) -> None:
    """Make a closed database one file, its write-ahead log merged in; durable when it returns."""
    with _open(path) as connection:
        connection.pragma("journal_mode", "delete")
    sync(path)


def fold(path: Path, *, busy_s: float = 5.0) -> bool:
    """Move the write-ahead log of a live database into its file and empty it; False if a reader blocks it so long."""
    connection = connect(path, busy_s=busy_s, create=False)
    give_up_at = time.monotonic() + busy_s
    try:
        while not _truncate_log(connection):
            if time.monotonic() >= give_up_at:
                return False
            time.sleep(_CHECKPOINT_PAUSE_S)
    except apsw.Error as error:
        raise typed_by_disk(error, connection, path) from error
    finally:
        connection.close()
    return True


def _truncate_log(connection: apsw.Connection) -> bool:
    """Return whether the log could be emptied.

    SQLite waits for readers by itself, but refuses at once while another connection moves the log, as the writer does
    after large commits.
    """
    try:
        # A new connection does not know of the log before its first read.
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        return False
    return True


def shrink(path: Path, *, busy_s: float = 10.0) -> None:
    """Return free pages of a live database to the system, a few at a time between other commits."""
    connection = connect(path, busy_s=busy_s, create=False)
    try:
        connection.pragma("secure_delete", True)
        if connection.pragma("auto_vacuum") == 0:  # created without incremental vacuum: needs one full VACUUM
            connection.pragma("auto_vacuum", INCREMENTAL)
            connection.execute("VACUUM")
        free = connection.pragma("freelist_count")
        while free > 0:
            connection.execute(f"BEGIN IMMEDIATE; PRAGMA incremental_vacuum({_PAGES}); COMMIT").fetchall()
            remaining = connection.pragma("freelist_count")
            # Others may free pages as fast as we return them: stop when there is no progress.
            free = remaining if remaining < free else 0
    except apsw.Error as error:
        raise typed_by_disk(error, connection, path) from error
    finally:
        connection.close()
    fold(path)


def in_use(path: Path) -> bool:
    """Return whether any process has the database open; a damaged file counts as free."""
    if not path.exists():
        return False
    try:
        connection = connect(path, busy_s=0, create=False, look=False)  # read before it locks, it would not lock
    except HoldproofError:
        return False
    try:
        connection.pragma("locking_mode", "exclusive")
        connection.execute("BEGIN EXCLUSIVE").fetchall()
        connection.execute("ROLLBACK")
    except apsw.BusyError:
        return True
    except apsw.Error:
        return False
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close()
    return False


def sync(path: Path) -> None:
    """Make a file durable."""
    with readable(path):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
