"""Database files: connecting, and recognising Holdproof's own."""

import os
import random
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

import apsw
import apsw.sqlite_extra

from holdproof import folders
from holdproof.db.sqlite.page_checksums import (
    CHECKSUM_BYTES,
    checksums,
    has_checksums,
    settle,
    writes_checksums,
)
from holdproof.db.sqlite.tx import FULL, typed
from holdproof.db.tx import Tx
from holdproof.errors import (
    DiskFullError,
    ForeignFileError,
    ForkedError,
    HoldproofError,
    NewerStoreError,
    UnavailableError,
)

APPLICATION_IDS = {"kernel": 0x48466B31, "membrane": 0x48466D31, "telemetry": 0x48467431}  # "HFk1", "HFm1", "HFt1"
FORMAT = 1
WAL_SIZE_BYTES = 16 << 20  # well over one checkpoint, so that the log is reused instead of truncated and grown

INCREMENTAL = 2  # SQLite's auto_vacuum: free pages can be returned on request
_READ_WRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


def connect(path: Path | None, *, busy_s: float, create: bool = True, look: bool = True) -> apsw.Connection:
    """Connect to a file, created if it is missing and `create`, or to a new database in memory.

    It looks whether page checksums count there, unless `look` is false because nothing may be read yet.
    """
    if path is None:
        return _connection(":memory:")
    _refuse_bad_name(path)
    try:
        if create and not path.exists():
            _create(path)
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise ForeignFileError(f"{path} is not a file", path=str(path))
        if (facts.st_dev, facts.st_ino) in INHERITED:
            raise ForkedError(f"{path} was open when this process was forked; SQLite cannot open it here again")
        connection = _connection(str(path), _vfs(path))
        connection.set_busy_timeout(round(busy_s * 1000))
        if facts.st_size == 0:
            _format(connection, path)
            if path.stat().st_size and not writes_checksums(connection):
                # Another process made the file meanwhile, and this connection has its first page from the write-ahead
                # log. It would move pages into the file without checksums; one that is opened now does not.
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.close()
                return connect(path, busy_s=busy_s, create=create, look=look)
        elif look:
            _settle(connection)
    except OSError as error:
        kind = DiskFullError if error.errno in FULL else UnavailableError
        raise kind(f"cannot open {path}: {error.strerror}", path=str(path)) from error
    except apsw.Error as error:
        raise typed(error, path) from error
    return connection


def _settle(connection: apsw.Connection) -> None:
    """Decide whether page checksums are verified on this connection, without changing a file of another program."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    try:
        settle(connection)
    except apsw.NotADBError:  # told by `identify`, which knows what was expected
        pass
    except BaseException:
        connection.close()
        raise
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)


def connect_readonly(path: Path, *, busy_s: float) -> apsw.Connection:
    """Connect to an existing file without writing to it.

    In a folder that can be written SQLite still keeps its `-wal` and `-shm` files there while it reads, since others
    may write; see `Companions`. On media that cannot be written nobody does, so that the file counts as immutable.
    """
    _refuse_bad_name(path)
    options = "mode=ro"
    try:
        if not os.access(path.parent, os.W_OK):
            wal = path.with_name(f"{path.name}-wal")
            # Immutable means that the log is not read: what is only there would be missing without a word.
            if wal.exists() and wal.stat().st_size:
                raise UnavailableError(
                    f"{wal} holds commits and cannot be written: copy the store to a disk that can be", path=str(wal)
                )
            options = "mode=ro&immutable=1"
        flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READONLY
        connection = _connection(f"file:{quote(str(path))}?{options}", _vfs(path), flags)
        connection.set_busy_timeout(round(busy_s * 1000))
        connection.pragma("query_only", True)
        _settle(connection)
    except OSError as error:
        raise UnavailableError(f"cannot open {path}: {error.strerror}", path=str(path)) from error
    except apsw.Error as error:
        raise typed(error, path) from error
    return connection


class Companions:
    """The files that SQLite keeps beside a database in use, for readers who leave a folder as it was.

    A connection that only reads makes them and cannot remove them. Where there were none before it came, `remove` lets
    SQLite remove them by its own rules: only the last connection does, so that nobody loses what is in use.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wal = path.with_name(f"{path.name}-wal")
        self._shm = path.with_name(f"{path.name}-shm")
        self._were_here = os.path.lexists(self._wal) or os.path.lexists(self._shm)

    def remove(self) -> None:
        """Remove the files if there were none before; called when the readers are closed, never raises."""
        with suppress(apsw.Error, OSError):
            if self._were_here or not self._shm.exists() or not os.access(self._path, os.W_OK):
                return
            # Commits of somebody who came meanwhile: theirs to move into the file.
            if self._wal.exists() and self._wal.stat().st_size:
                return
            options = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE
            connection = _connection(f"file:{quote(str(self._path))}?mode=rw", _vfs(self._path), options)
            try:
                # A connection takes part in the protocol from its first read on.
                connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
            finally:
                connection.close()


def _refuse_bad_name(path: Path) -> None:
    """Raise UnavailableError for a path that SQLite cannot open: it takes UTF-8 without NUL only."""
    try:
        name = str(path)
        name.encode()
    except UnicodeEncodeError as error:
        readable_name = name.encode(errors="backslashreplace").decode()
        raise UnavailableError(
            f"cannot open {readable_name}: the name of a database must be UTF-8", path=readable_name
        ) from error
    if "\0" in name:
        raise UnavailableError(f"cannot open {name!r}: no file has a NUL in its name", path=repr(name))


def _format(connection: apsw.Connection, path: Path) -> None:
    """Set what can only be set before a file has its first page."""
    try:
        if checksums():
            connection.reserve_bytes("main", CHECKSUM_BYTES)
        connection.pragma("auto_vacuum", INCREMENTAL)
    except apsw.Error as error:
        raise typed_by_disk(error, connection, path) from error


def typed_by_disk(error: apsw.Error, connection: apsw.Connection, path: Path) -> HoldproofError:
    """Return Holdproof's error for one of apsw's, telling a full disk apart from other I/O errors."""
    if isinstance(error, apsw.FullError):
        return DiskFullError(f"{path}: no space left on the disk", path=str(path))
    return typed(error, path, connection)


def _connection(name: str, vfs: str | None = None, flags: int = _READ_WRITE) -> apsw.Connection:
    connection = apsw.Connection(name, flags=flags, vfs=vfs, statementcachesize=256)
    # Plan by the query alone. Otherwise SQLite would plan a join anew for every set of parameters.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return connection


INHERITED: Final[set[tuple[int, int]]] = set()
"""Files that were open when this process was forked. POSIX locks are not inherited, but SQLite's memory of them is: a
connection made here would rely on locks it does not have, and lose data."""


def _create(path: Path) -> None:
    """Create an empty file, and its folders, with access for the owner only."""
    folders.make(path.parent)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Translate errors of reading or syncing a database file without SQLite."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise DiskFullError(f"{path}: no space left on the disk", path=str(path)) from error
        raise UnavailableError(f"cannot read {path}: {error.strerror}", path=str(path)) from error


def _vfs(path: Path) -> str | None:
    name = checksums()
    if name is None and has_checksums(path):
        raise UnavailableError(f"{path} has page checksums, which this build of apsw cannot keep", path=str(path))
    return name


def owners(connection: apsw.Connection) -> dict[int, str]:
    """Return which table or index each page belongs to, as far as the damage allows."""
    query = "SELECT d.pageno, s.type || ' ' || s.name FROM dbstat d JOIN sqlite_schema s ON s.name = d.name"
    try:
        return {int(page): str(name) for page, name in connection.execute(query)}
    except apsw.Error:
        return {}


def identify(connection: apsw.Connection, path: Path | None, space: str) -> bool:
    """Return whether the file is new; raises, before any change, for files of others and of newer versions."""
    connection.config(
        apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1
    )  # closing must not checkpoint the log of another program
    expected = APPLICATION_IDS[space]
    application_id = connection.pragma("application_id")
    if application_id == 0 and not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall():
        new = True
    elif application_id != expected:
        kind = next((name for name, number in APPLICATION_IDS.items() if number == application_id), None)
        what = f"is the {kind} database of a Holdproof store" if kind else "is a database of another program"
        raise ForeignFileError(f"{path} {what}, not a {space} database", path=str(path))
    else:
        new = False
    version = connection.pragma("user_version")
    if version > FORMAT:
        raise NewerStoreError(
            f"{path} has format {version}, this version reads {FORMAT}; upgrade holdproof", path=str(path)
        )
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    return new


def claim(tx: Tx, space: str) -> None:
    """Write Holdproof's application id and format version into a new file."""
    tx.script(f"PRAGMA application_id={APPLICATION_IDS[space]}; PRAGMA user_version={FORMAT}")


def configure(connection: apsw.Connection, *, busy_s: float) -> None:
    """Apply the settings of the writing connection.

    Retries for `busy_s`: the change to WAL ignores the busy timeout when several processes create one database.
    """
    deadline = time.monotonic() + busy_s
    while True:
        try:
            return _set(connection)
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(0.002, 0.02))  # noqa: S311 (jitter)


def _set(connection: apsw.Connection) -> None:
    for name, value in (
        ("journal_mode", "wal"),
        ("synchronous", "full"),
        ("fullfsync", True),  # macOS: fsync alone leaves data in the drive's cache
        ("checkpoint_fullfsync", True),
        ("foreign_keys", True),
        ("secure_delete", True),
        ("trusted_schema", False),
        ("journal_size_limit", WAL_SIZE_BYTES),
        ("cell_size_check", True),
    ):
        connection.pragma(name, value)
