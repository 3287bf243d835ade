"""SQLite through apsw: one writer thread with group commit, readers on WAL connections of their own, or all in memory.

Rules:
- `synchronous=FULL`: what was answered survives a power cut. `secure_delete=ON`: what was erased is gone for good.
- A file that is not ours, or was written by a newer Holdfast, is refused before a byte of it changes.
- Readers never block the writer nor wait for it. A read is stopped after `read_limit_s`, and a snapshot is given up
  after a few milliseconds, so the write-ahead log can always be recycled.
- Another process holding the file is waited for with jitter, up to `busy_s`; then a typed error.
"""

import os
import random
import stat
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import apsw

from holdfast.db.clock import Clock, Random
from holdfast.db.groups import GroupWriter, Hooks
from holdfast.db.pump import Job, Pump, deliver
from holdfast.db.sql import Dialect, Query
from holdfast.db.tx import Row, Tx
from holdfast.errors import (
    BusyError,
    ConstraintError,
    CorruptError,
    DatabaseError,
    DiskFullError,
    ExpectationError,
    ForeignFileError,
    HoldfastError,
    InvalidInputError,
    NewerStoreError,
    QueryError,
    ReadLimitError,
    ReadOnlyError,
    UnavailableError,
)

APPLICATION_IDS = {
    "kernel": 0x48466B31,
    "membrane": 0x48466D31,
    "telemetry": 0x48467431,
}  # "HFk1", "HFm1", "HFt1"
FORMAT = 1

_BATCH = 512
_CHECKPOINT_PAGES = 1_000
_WAL_LIMIT_PAGES = 16_000
_SNAPSHOT_S = 0.005

_TYPED: list[tuple[type[apsw.Error], type[HoldfastError]]] = [
    (apsw.ConstraintError, ConstraintError),
    (apsw.BusyError, BusyError),
    (apsw.LockedError, BusyError),
    (apsw.FullError, DiskFullError),
    (apsw.ReadOnlyError, ReadOnlyError),
    (apsw.CorruptError, CorruptError),
    (apsw.NotADBError, ForeignFileError),
    (apsw.CantOpenError, UnavailableError),
    (apsw.PermissionsError, UnavailableError),
    (apsw.IOError, UnavailableError),
    (apsw.InterruptError, ReadLimitError),
    (apsw.TooBigError, InvalidInputError),
    (apsw.SQLError, QueryError),
    (apsw.BindingsError, QueryError),
    (apsw.RangeError, QueryError),
]


def typed(error: apsw.Error, where: object) -> HoldfastError:
    """Our error for one of apsw's."""
    ours = next((ours for theirs, ours in _TYPED if isinstance(error, theirs)), DatabaseError)
    return ours(f"{error} ({where})", sqlite=type(error).__name__)


class SqliteTx(Tx):
    """A transaction on one apsw connection."""

    dialect: ClassVar[Dialect] = "sqlite"
    __slots__ = ("_changes", "_many", "_run", "schema_touched")

    def __init__(self, connection: apsw.Connection, clock: Clock, random: Random) -> None:
        super().__init__(clock, random)
        cursor = connection.cursor()
        self._run, self._many, self._changes = cursor.execute, cursor.executemany, connection.changes
        self.schema_touched = False

    def execute(self, query: Query, /, *, expect: int | None = None, **params: Any) -> None:
        """See Tx."""
        try:
            self._run(query.sqlite, params)
        except apsw.Error as error:
            raise self._break(typed(error, query)) from error
        if query.kind == "other":
            self.schema_touched = True
        if expect is not None and self._changes() != expect:
            raise self._break(ExpectationError(f"{query} touched {self._changes()} rows, expected {expect}"))

    def count(self, query: Query, /, **params: Any) -> int:
        """See Tx."""
        self.execute(query, **params)
        return self._changes()

    def all(self, query: Query, /, **params: Any) -> list[Row]:
        """See Tx."""
        try:
            return self._run(query.sqlite, params).fetchall()
        except apsw.Error as error:
            raise self._break(typed(error, query)) from error

    def many(self, query: Query, rows: Iterable[Mapping[str, Any]], /) -> None:
        """See Tx."""
        try:
            self._many(query.sqlite, rows)
        except apsw.Error as error:
            raise self._break(typed(error, query)) from error

    def script(self, text: str, /) -> None:
        """See Tx."""
        self.schema_touched = True
        try:
            self._run(text)
        except apsw.Error as error:
            raise self._break(typed(error, "script")) from error

    def _break(self, error: HoldfastError) -> HoldfastError:
        self.broken = error
        return error


class SqliteLink:
    """The writer's connection, as the group writer uses it."""

    def __init__(self, connection: apsw.Connection, tx: SqliteTx, *, busy_s: float) -> None:
        self.tx: SqliteTx = tx
        self._connection = connection
        self._run = connection.cursor().execute
        self._busy_s, self._patience = busy_s, 0.0
        self._wal_pages = 0
        connection.set_busy_handler(self._wait)
        connection.set_wal_hook(self._grown)

    def _wait(self, tries: int) -> bool:
        if time.monotonic() >= self._patience:
            return False
        time.sleep(random.uniform(0.0002, min(0.02, 0.001 * (tries + 1))))  # noqa: S311 (jitter)
        return True

    def _grown(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _do(self, statement: str) -> None:
        try:
            self._run(statement)
        except apsw.Error as error:
            raise typed(error, statement) from error

    def begin(self, *, serializable: bool = False) -> None:
        """See Link; SQLite's one writer is always serializable."""
        del serializable
        self._patience = time.monotonic() + self._busy_s
        self.tx.schema_touched = False
        self._do("BEGIN IMMEDIATE")

    def settle(self) -> None:
        """See Link; nothing is pipelined here."""

    def commit(self) -> None:
        """See Link."""
        self._do("COMMIT")

    def rollback(self) -> None:
        """See Link."""
        if self._connection.in_transaction:
            self._do("ROLLBACK")

    def savepoint(self) -> None:
        """See Link."""
        self._do("SAVEPOINT op")

    def release(self) -> None:
        """See Link."""
        self._do("RELEASE op")

    def restore(self) -> bool:
        """See Link: a full disk or failing I/O may have rolled back everything by itself."""
        if not self._connection.in_transaction:
            return False
        self._do("ROLLBACK TO op")
        self._do("RELEASE op")
        return True

    def mark(self) -> int:
        """See Link."""
        return self._connection.total_changes()

    def wrote(self, mark: int) -> bool:
        """See Link."""
        connection = self._connection
        return connection.total_changes() != mark or self.tx.schema_touched or not connection.in_transaction

    def retryable(self, error: BaseException) -> bool:
        """See Link."""
        del error
        return False

    def tidy(self) -> None:
        """See Link: move the write-ahead log into the file, and insist once it has grown large."""
        if self._wal_pages < _CHECKPOINT_PAGES:
            return
        insist = self._wal_pages >= _WAL_LIMIT_PAGES
        self._patience = time.monotonic() + (0.1 if insist else 0)
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if insist else apsw.SQLITE_CHECKPOINT_PASSIVE
        try:
            self._connection.wal_checkpoint(mode=mode)
        except apsw.Error:  # busy readers, a full disk: the log stays, the next commit tries again
            return

    def close(self) -> None:
        """See Link."""
        self._connection.close()


class SqliteReader:
    """The worker for reads: a batch shares one snapshot, for a few milliseconds at most."""

    def __init__(self, connection: apsw.Connection, tx: SqliteTx, *, limit_s: float) -> None:
        self.progress, self._tx, self._connection = 0, tx, connection
        self._run = connection.cursor().execute
        self._limit_s, self._until = limit_s, float("inf")
        connection.set_progress_handler(self._overdue, 20_000)

    def _overdue(self) -> bool:
        return time.monotonic() > self._until

    def pause_s(self) -> float:
        """Reads start at once."""
        return 0.0

    def handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Run a batch on one snapshot; what is left when it has become old goes back."""
        self._tx.renew()
        done: list[Job[Any]] = []
        taken, began = 0, time.monotonic()
        now = began
        try:
            self._run("BEGIN")
            for job in jobs:
                taken += 1
                if job.box.claim(job.ticket):
                    self._until = now + self._limit_s
                    self._one(job)
                    done.append(job)
                now = time.monotonic()
                if now - began > _SNAPSHOT_S:
                    break
        except apsw.Error as error:
            raise typed(error, "read") from error
        finally:
            self._until = float("inf")
            if self._connection.in_transaction:
                self._run("ROLLBACK")
        deliver(done)
        return jobs[taken:]

    def _one(self, job: Job[Any]) -> None:
        self.progress += 1
        try:
            job.result = job.fn(self._tx)
        except BaseException as error:
            job.error = error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class MemoryWorker:
    """Everything on one connection: reads see what is committed, between groups."""

    def __init__(self, connection: apsw.Connection, writer: GroupWriter, reader: SqliteReader) -> None:
        self._connection, self._writer, self._reader = connection, writer, reader

    @property
    def progress(self) -> int:
        """See Worker."""
        return self._writer.progress + self._reader.progress

    def pause_s(self) -> float:
        """Memory has no disk to wait for."""
        return 0.0

    def handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Reads first, then the writes as a group."""
        reads = [job for job in jobs if job.reads]
        if reads:
            self._connection.pragma("query_only", True)
            try:
                while reads:
                    reads = self._reader.handle(reads)
            finally:
                self._connection.pragma("query_only", False)
        writes = [job for job in jobs if not job.reads]
        return self._writer.handle(writes) if writes else []

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class SqliteBackend:
    """The parts of one SQLite database."""

    dialect: Dialect = "sqlite"
    notifies = False

    def __init__(self, path: Path | None, writer: Pump, reader: Pump) -> None:
        self.path, self.writer, self.reader = path, writer, reader

    def facts(self) -> dict[str, Any]:
        """See Backend."""
        facts: dict[str, Any] = {"backend": "sqlite", "version": apsw.sqlite_lib_version()}
        if self.path is None:
            return {**facts, "path": ":memory:"}
        wal = self.path.with_name(self.path.name + "-wal")
        sizes = {"database": self.path.stat().st_size, "wal": wal.stat().st_size if wal.exists() else 0}
        return {**facts, "path": str(self.path), "bytes": sizes}

    def check(self) -> list[str]:
        """See Backend; on a connection of its own, so that a long check holds up nobody."""
        if self.path is None:
            return []
        connection = _connect(self.path, busy_s=10)
        try:
            found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
            orphans = connection.execute("PRAGMA foreign_key_check").fetchall()
            return found + [f"row {row[1]} of {row[0]} points to a missing row of {row[2]}" for row in orphans]
        except apsw.Error as error:
            return [str(error)]
        finally:
            connection.close()

    def close(self) -> None:
        """See Backend; the workers close their connections themselves."""


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
    connection = _connect(path, busy_s=busy_s)
    try:
        new = _identify(connection, path, space)
        _configure(connection)
    except apsw.Error as error:
        connection.close()
        raise typed(error, path) from error
    except BaseException:
        connection.close()
        raise
    tx = SqliteTx(connection, clock, random)
    group = GroupWriter(SqliteLink(connection, tx, busy_s=busy_s), hooks)
    if path is None:
        reader = SqliteReader(connection, tx, limit_s=read_limit_s)
        pump = Pump("memory", [MemoryWorker(connection, group, reader)], batch=_BATCH)
        return SqliteBackend(None, pump, pump), new
    links = [_connect(path, busy_s=busy_s) for _ in range(readers)]
    for link in links:
        link.pragma("query_only", True)
    workers = [SqliteReader(link, SqliteTx(link, clock, random), limit_s=read_limit_s) for link in links]
    reading = Pump("reader", workers, batch=_BATCH, relief=True)
    return SqliteBackend(path, Pump("writer", [group], batch=_BATCH), reading), new


def _connect(path: Path | None, *, busy_s: float) -> apsw.Connection:
    if path is not None and not path.exists():
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise UnavailableError(f"cannot create {path}: {error.strerror}", path=str(path)) from error
    try:
        if path is not None and not stat.S_ISREG(path.stat().st_mode):
            raise ForeignFileError(f"{path} is not a file", path=str(path))
        connection = apsw.Connection(":memory:" if path is None else str(path), statementcachesize=256)
    except OSError as error:
        raise UnavailableError(f"cannot open {path}: {error.strerror}", path=str(path)) from error
    except apsw.Error as error:
        raise typed(error, path) from error
    connection.set_busy_timeout(round(busy_s * 1000))
    return connection


def _identify(connection: apsw.Connection, path: Path | None, space: str) -> bool:
    """Whether the file is new; refuses, untouched, what is not ours or newer than we are."""
    ours = APPLICATION_IDS[space]
    found = connection.pragma("application_id")
    if found == 0 and not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall():
        return True
    if found != ours:
        kind = next((name for name, number in APPLICATION_IDS.items() if number == found), None)
        what = f"is the {kind} database of a Holdfast store" if kind else "is a database of another program"
        raise ForeignFileError(f"{path} {what}, not a {space} database", path=str(path))
    version = connection.pragma("user_version")
    if version > FORMAT:
        raise NewerStoreError(f"{path} has format {version}, this Holdfast knows {FORMAT}", path=str(path))
    return False


def claim(tx: Tx, space: str) -> None:
    """Mark a new file as ours, in the same transaction as its first migration."""
    tx.script(f"PRAGMA application_id={APPLICATION_IDS[space]}; PRAGMA user_version={FORMAT}")


def _configure(connection: apsw.Connection) -> None:
    for name, value in (
        ("journal_mode", "wal"),
        ("synchronous", "full"),
        ("foreign_keys", True),
        ("secure_delete", True),
        ("trusted_schema", False),
        ("journal_size_limit", _CHECKPOINT_PAGES * 4096),
        ("cell_size_check", True),
    ):
        connection.pragma(name, value)
