"""Open a SQLite database: its connections, workers and facts."""

import os
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
    Companions,
    configure,
    connect,
    connect_readonly,
    identify,
    owners,
    readable,
)
from holdproof.db.sqlite.page_checksums import (
    has_checksums,
    hold,
    is_replicated,
    is_tolerated,
    release,
    reseal,
    tolerate,
    unsealed_pages,
)
from holdproof.db.sqlite.reader import InlineReaders, MemoryWorker, SqliteReader
from holdproof.db.sqlite.snapshot import shrink
from holdproof.db.sqlite.tx import SqliteTx, typed
from holdproof.db.tx import NOT_RUN, NotRun, Refused, Tx
from holdproof.db.worker_pool import WorkerPool
from holdproof.errors import BusyError, ForeignTransactionError

_BATCH = 512
_INLINE_READERS = 8
_SHRINKING_SPACE = "telemetry"

T = TypeVar("T")


class SqliteBackend:
    """The parts of one SQLite database."""

    dialect: Dialect = "sqlite"
    notifies = False

    def __init__(
        self,
        path: Path | None,
        writer: WorkerPool,
        reader: WorkerPool,
        inline: InlineReaders | None = None,
        *,
        companions: Companions | None = None,
    ) -> None:
        self.path = path
        self._companions = companions
        self.writer = writer
        self.reader = reader
        self._inline = inline
        self._inode = hold(path) if path is not None else None

    def driver_of(self, connection: Any) -> Any:
        """See Backend; a SQLite file has one writer, which is the store."""
        del connection
        raise ForeignTransactionError("a store on SQLite has its own writer: use store.write(fn) for several changes")

    def write_in(
        self, connection: Any, fn: Callable[[Tx], T | Refused], hooks: Hooks, confirm: Callable[[], None]
    ) -> T:
        """See Backend."""
        del fn, hooks, confirm
        return self.driver_of(connection)  # type: ignore[no-any-return]

    def peek(self, fn: Callable[[Tx], T], budget_s: float) -> T | NotRun:
        """See Backend."""
        return NOT_RUN if self._inline is None else self._inline.run(fn, budget_s)

    def facts(self) -> dict[str, Any]:
        """See Backend."""
        facts: dict[str, Any] = {"backend": "sqlite", "version": apsw.sqlite_lib_version()}
        if self.path is None:
            return {**facts, "path": ":memory:"}
        wal = self.path.with_name(self.path.name + "-wal")
        with readable(self.path):
            sizes = {"database": self.path.stat().st_size, "wal": wal.stat().st_size if wal.exists() else 0}
            details = {"path": str(self.path), "bytes": sizes, "checksums": has_checksums(self.path)}
        return {**facts, **details, "foreign_writer": is_tolerated(self.path)}

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
        if self._inline is not None:
            self._inline.close()
        if self._inode is not None:
            release(self._inode)
            self._inode = None
        if self._companions is not None:
            self._companions.remove()


def check_file(path: Path) -> list[str]:
    """Return what is wrong with a database file: pages whose checksum is wrong, then its structure."""
    return foreign_pages(path) + check_structure(path)


def foreign_pages(path: Path) -> list[str]:
    """Return the pages whose checksum is not that of their content, and what they belong to.

    They are damaged, or another SQLite program moved the write-ahead log into the file. None where Litestream
    replicates the database: it does so all the time.
    """
    companions = Companions(path)
    connection = _connect_to_check(path)
    try:
        connection.execute("PRAGMA checksum_verification=OFF").fetchall()
        with readable(path):
            return [] if is_replicated(connection) else _name_damage(connection, _damage(connection, path))
    except apsw.Error as error:
        return [str(error)]
    finally:
        connection.close()
        companions.remove()


def _connect_to_check(path: Path) -> apsw.Connection:
    """Connect to a file that may be damaged, or lie on media that cannot be written, and leave it as it is."""
    if not os.access(path.parent, os.W_OK):
        return connect_readonly(path, busy_s=10)
    connection = connect(path, busy_s=10, create=False, look=False)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return connection


def read_foreign_pages(path: Path) -> None:
    """Let this process read pages that another SQLite program wrote, to compare their content with the log."""
    with readable(path):
        tolerate(path)


def reseal_file(path: Path) -> int:
    """Write the page checksums of a closed database anew; return how many were wrong. BusyError if it is in use."""
    connection = connect(path, busy_s=1, create=False, look=False)
    try:
        with readable(path):
            return reseal(path, connection)
    except apsw.BusyError as error:
        raise BusyError(f"{path} is in use: close the processes that have the store open", path=str(path)) from error
    except apsw.Error as error:
        raise typed(error, path) from error
    finally:
        connection.close()


def check_structure(path: Path) -> list[str]:
    """Return what SQLite itself finds wrong; on a connection of its own, so that others are not delayed."""
    companions = Companions(path)
    connection = _connect_to_check(path)
    problems: list[str] = []
    try:
        connection.execute(
            "PRAGMA checksum_verification=OFF"
        ).fetchall()  # to continue past the first damage and name all of it
        problems += [str(line) for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]
        for table, rowid, parent, _ in connection.execute("PRAGMA foreign_key_check"):
            problems.append(f"row {rowid} of {table} points to a missing row of {parent}")
    except apsw.Error as error:
        problems.append(str(error))
    finally:
        connection.close()
        companions.remove()
    return problems


def _damage(connection: apsw.Connection, path: Path) -> list[int]:
    """Return the damaged pages of a file.

    A page that is torn in the file may be intact in the write-ahead log: the power failed during a checkpoint, or one
    is running right now. So the log is moved into the file completely before damage is reported.
    """
    pages = list(unsealed_pages(path))
    if not pages:
        return []
    try:
        connection.execute(
            "SELECT 1 FROM sqlite_schema LIMIT 1"
        ).fetchall()  # a new connection does not know of the log before its first read
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
    except apsw.Error:  # a reader in the way, or damage that stays: report the pages as they are
        return pages
    return list(unsealed_pages(path))


def _name_damage(connection: apsw.Connection, pages: list[int]) -> list[str]:
    tables = owners(connection) if pages else {}
    what = "is damaged or was written by another program"
    return [f"page {page} {what}" + (f" ({tables[page]})" if page in tables else "") for page in pages]


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
    readonly: bool = False,
) -> tuple[SqliteBackend, bool]:
    """Open or create a database file, or one in memory; returns the backend and whether it is new."""
    readonly = readonly and path is not None
    companions = Companions(path) if readonly and path else None
    connection = connect_readonly(path, busy_s=busy_s) if readonly and path else connect(path, busy_s=busy_s)
    try:
        new = identify(connection, path, space)
        if new and space == _SHRINKING_SPACE:  # only possible before the first page; freed pages can be returned then
            connection.pragma("auto_vacuum", "incremental")
        if not readonly:
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
        # A file that was removed must not come back as an empty one.
        spare = connect_readonly(path, busy_s=busy_s) if readonly else connect(path, busy_s=busy_s, create=False)
        spare.pragma("query_only", True)
        return spare, SqliteTx(spare, clock, random)

    workers = [SqliteReader(*reading(), limit_s=read_limit_s) for _ in range(readers)]
    writer_pool = WorkerPool("writer", [group], batch=_BATCH)
    reader_pool = WorkerPool("reader", workers, batch=_BATCH, relief=True)
    inline = InlineReaders(reading, most=_INLINE_READERS)
    return SqliteBackend(path, writer_pool, reader_pool, inline, companions=companions), new
