"""Opening a SQLite database: its connections, its workers, its facts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw
import apsw.sqlite_extra

from holdproof.db.clock import Clock, Random
from holdproof.db.group_commit import GroupWriter, Hooks
from holdproof.db.sql import Dialect
from holdproof.db.sqlite.connection import SqliteConnection
from holdproof.db.sqlite.files import (
    INHERITED,
    configure,
    connect,
    damaged_pages,
    has_checksums,
    identify,
    owners,
    readable,
)
from holdproof.db.sqlite.reader import MemoryWorker, Peeks, SqliteReader
from holdproof.db.sqlite.snapshot import shrink
from holdproof.db.sqlite.tx import SqliteTx, typed
from holdproof.db.tx import NOTHING, Nothing, Tx
from holdproof.db.worker_pool import WorkerPool

_BATCH = 512
_PEEKS = 8
_SHRINKS = "telemetry"

T = TypeVar("T")


class SqliteBackend:
    """The parts of one SQLite database."""

    dialect: Dialect = "sqlite"
    notifies = False

    def __init__(self, path: Path | None, writer: WorkerPool, reader: WorkerPool, peeks: Peeks | None = None) -> None:
        self.path, self.writer, self.reader, self._peeks = path, writer, reader, peeks

    def peek(self, fn: Callable[[Tx], T], budget_s: float) -> T | Nothing:
        """See Backend."""
        return NOTHING if self._peeks is None else self._peeks.run(fn, budget_s)

    def facts(self) -> dict[str, Any]:
        """See Backend."""
        facts: dict[str, Any] = {"backend": "sqlite", "version": apsw.sqlite_lib_version()}
        if self.path is None:
            return {**facts, "path": ":memory:"}
        wal = self.path.with_name(self.path.name + "-wal")
        with readable(self.path):
            sizes = {"database": self.path.stat().st_size, "wal": wal.stat().st_size if wal.exists() else 0}
        return {**facts, "path": str(self.path), "bytes": sizes, "checksums": has_checksums(self.path)}

    def check(self) -> list[str]:
        """See Backend."""
        return [] if self.path is None else check_file(self.path)

    def compact(self) -> None:
        """See Backend."""
        if self.path is not None:
            shrink(self.path)

    def disown(self) -> None:
        """See Backend."""
        if self.path is not None:
            facts = self.path.stat()
            INHERITED.add((facts.st_dev, facts.st_ino))

    def close(self) -> None:
        """See Backend; the workers close their connections themselves."""
        if self._peeks is not None:
            self._peeks.close()


def check_file(path: Path) -> list[str]:
    """What is wrong with a database file; on a connection of its own, so that a long check holds up nobody."""
    connection, found = connect(path, busy_s=10, create=False), list[str]()
    try:
        connection.execute("PRAGMA checksum_verification=OFF").fetchall()  # to read on and name all damage
        found += _name_damage(connection, _damage(connection, path))
        found += [str(row[0]) for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
        orphans = connection.execute("PRAGMA foreign_key_check").fetchall()
        return found + [f"row {row[1]} of {row[0]} points to a missing row of {row[2]}" for row in orphans]
    except apsw.Error as error:
        return [*found, str(error)]
    finally:
        connection.close()


def _damage(connection: apsw.Connection, path: Path) -> list[int]:
    """The damaged pages of a file. One that is torn there may be whole in the write-ahead log: the power went while the
    log was moved into the file, or somebody moves it right now. So it is moved to the end before damage is believed."""
    pages = list(damaged_pages(connection, path))
    if not pages:
        return []
    try:
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()  # or it does not know of the log yet
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
    except apsw.Error:  # a reader that does not end, or damage that nothing mends: the pages are named as they are
        return pages
    return list(damaged_pages(connection, path))


def _name_damage(connection: apsw.Connection, pages: list[int]) -> list[str]:
    named = owners(connection) if pages else {}
    return [f"page {page} is damaged" + (f" ({named[page]})" if page in named else "") for page in pages]


def open_sqlite(
    path: Path | None,
    *,
    space: str,
    hooks: Hooks,
    clock: Clock,
    random: Random,
    readers: int = 2,
    busy_s: float = 10.0,
    read_limit_s: float = 30.0,
) -> tuple[SqliteBackend, bool]:
    """Open or create a database file, or one in memory; the second answer says whether it is new."""
    connection = connect(path, busy_s=busy_s)
    try:
        new = identify(connection, path, space)
        if new and space == _SHRINKS:  # before the first page: what is removed by the million gives its space back
            connection.pragma("auto_vacuum", "incremental")
        configure(connection, busy_s=busy_s)
    except apsw.Error as error:
        connection.close()
        raise typed(error, path) from error
    except BaseException:
        connection.close()
        raise
    tx = SqliteTx(connection, clock, random)
    group = GroupWriter(SqliteConnection(connection, tx, busy_s=busy_s), hooks)
    if path is None:
        reader = SqliteReader(connection, tx, limit_s=read_limit_s)
        pool = WorkerPool("memory", [MemoryWorker(connection, group, reader)], batch=_BATCH)
        return SqliteBackend(None, pool, pool), new

    def reading() -> tuple[apsw.Connection, SqliteTx]:
        spare = connect(path, busy_s=busy_s, create=False)  # a file that is gone is no empty one
        spare.pragma("query_only", True)
        return spare, SqliteTx(spare, clock, random)

    workers = [SqliteReader(*reading(), limit_s=read_limit_s) for _ in range(readers)]
    pools = WorkerPool("writer", [group], batch=_BATCH), WorkerPool("reader", workers, batch=_BATCH, relief=True)
    return SqliteBackend(path, *pools, Peeks(reading, most=_PEEKS)), new
