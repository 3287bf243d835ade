"""Database files: connecting, telling ours from others, page checksums.

Every page carries a checksum (SQLite's `cksumvfs`), so a flipped bit is an error where it is read, not a wrong answer.
"""

import os
import random
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import apsw
import apsw.sqlite_extra

from holdproof import folders
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
WAL_KEPT_BYTES = 16 << 20  # well over one checkpoint, so that the log is reused instead of cut and grown

INCREMENTAL = 2  # SQLite's auto_vacuum: pages can be cut off the end of the file, when somebody asks for it
_CHECKSUM_BYTES = 8
_RESERVED_AT = 20


def connect(path: Path | None, *, busy_s: float, create: bool = True) -> apsw.Connection:
    """A connection to a file, made if it is missing and may be, or to a new database in memory."""
    if path is None:
        return _connection(":memory:")
    _refuse_unspeakable(path)
    try:
        if create and not path.exists():
            _make(path)
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise ForeignFileError(f"{path} is not a file", path=str(path))
        if (facts.st_dev, facts.st_ino) in INHERITED:
            raise ForkedError(f"{path} was open when this process was forked; SQLite cannot open it here again")
        connection = _connection(str(path), _vfs(path))
        connection.set_busy_timeout(round(busy_s * 1000))
        if facts.st_size == 0:
            _format(connection, path)
    except OSError as error:
        kind = DiskFullError if error.errno in FULL else UnavailableError
        raise kind(f"cannot open {path}: {error.strerror}", path=str(path)) from error
    except apsw.Error as error:
        raise typed(error, path) from error
    return connection


def _refuse_unspeakable(path: Path) -> None:
    """SQLite takes names in UTF-8 only; other programs and systems may have made others."""
    try:
        name = str(path)
        name.encode()
    except UnicodeEncodeError as error:
        shown = name.encode(errors="backslashreplace").decode()
        raise UnavailableError(
            f"cannot open {shown}: no database can have a name that is not UTF-8", path=shown
        ) from error
    if "\0" in name:
        raise UnavailableError(f"cannot open {name!r}: no file has a NUL in its name", path=repr(name))


def _format(connection: apsw.Connection, path: Path) -> None:
    """What can be said of a file only before it has a page."""
    try:
        if checksums():
            connection.reserve_bytes("main", _CHECKSUM_BYTES)
        connection.pragma("auto_vacuum", INCREMENTAL)
    except apsw.Error as error:
        raise typed_by_disk(error, connection, path) from error


def typed_by_disk(error: apsw.Error, connection: apsw.Connection, path: Path) -> HoldproofError:
    """Our error for one of apsw's, where what the disk said is known: no room is told apart from other trouble."""
    if isinstance(error, apsw.FullError):
        return DiskFullError(f"{path}: no room on the disk", path=str(path))
    return typed(error, path, connection)


def _connection(name: str, vfs: str | None = None) -> apsw.Connection:
    connection = apsw.Connection(name, vfs=vfs, statementcachesize=256)
    # A plan follows from its query alone. Else SQLite would plan a join anew for every set of parameters.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return connection


INHERITED: Final[set[tuple[int, int]]] = set()
"""Files that were open when this process was forked. POSIX locks are not inherited, but SQLite's memory of them is: a
second opening would believe in locks it does not have, and lose data."""


def _make(path: Path) -> None:
    """An empty file for the owner only, in folders for the owner only."""
    folders.make(path.parent)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


@cache
def checksums() -> str | None:
    """The name of the file system layer that keeps page checksums, registered once; None where it was not shipped."""
    if not apsw.sqlite_extra.has("cksumvfs"):
        return None
    _load_checksums().close()
    return "cksmvfs"


def _load_checksums() -> apsw.Connection:
    default = apsw.vfs_names()[0]
    connection = apsw.Connection(":memory:")
    apsw.sqlite_extra.load(connection, "cksumvfs")
    apsw.set_default_vfs(default)  # other users of apsw in this process keep what they had
    return connection


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Our error where a database file is read or synced past SQLite, and cannot be."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise DiskFullError(f"{path}: no room on the disk", path=str(path)) from error
        raise UnavailableError(f"cannot read {path}: {error.strerror}", path=str(path)) from error


def has_checksums(path: Path) -> bool:
    """Whether the pages of that file end in checksums: SQLite's header says how many bytes are reserved."""
    with readable(path), path.open("rb") as file:
        header = file.read(_RESERVED_AT + 1)
    return len(header) > _RESERVED_AT and header[_RESERVED_AT] == _CHECKSUM_BYTES


def _vfs(path: Path) -> str | None:
    name = checksums()
    if name is None and has_checksums(path):
        raise UnavailableError(f"{path} has page checksums, which this build of apsw cannot keep", path=str(path))
    return name


def damaged_pages(connection: apsw.Connection, path: Path) -> Iterator[int]:
    """The numbers of all pages in the file whose checksum is wrong."""
    if not has_checksums(path):
        return
    size = connection.pragma("page_size")
    loader = _load_checksums()  # loading gives a connection the function as well
    with readable(path), path.open("rb") as file:
        for number, page in enumerate(iter(lambda: file.read(size), b""), 1):
            if len(page) == size and loader.execute("SELECT verify_checksum(?)", (page,)).get == 0:
                yield number
    loader.close()


def owners(connection: apsw.Connection) -> dict[int, str]:
    """Which table or index each page belongs to, as far as the damage lets it be told."""
    asked = "SELECT d.pageno, s.type || ' ' || s.name FROM dbstat d JOIN sqlite_schema s ON s.name = d.name"
    try:
        return {int(page): str(name) for page, name in connection.execute(asked)}
    except apsw.Error:
        return {}


def identify(connection: apsw.Connection, path: Path | None, space: str) -> bool:
    """Whether the file is new; refuses, untouched, what is not ours or newer than we are."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # another program's log is not ours to tidy
    ours = APPLICATION_IDS[space]
    found = connection.pragma("application_id")
    if found == 0 and not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall():
        new = True
    elif found != ours:
        kind = next((name for name, number in APPLICATION_IDS.items() if number == found), None)
        what = f"is the {kind} database of a Holdproof store" if kind else "is a database of another program"
        raise ForeignFileError(f"{path} {what}, not a {space} database", path=str(path))
    else:
        new = False
    version = connection.pragma("user_version")
    if version > FORMAT:
        raise NewerStoreError(f"{path} has format {version}, this Holdproof knows {FORMAT}", path=str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    return new


def claim(tx: Tx, space: str) -> None:
    """Mark a new file as ours, in the same transaction as its first migration."""
    tx.script(f"PRAGMA application_id={APPLICATION_IDS[space]}; PRAGMA user_version={FORMAT}")


def configure(connection: apsw.Connection, *, busy_s: float) -> None:
    """Settings of the writing connection; the busy timeout was set before.

    Where several processes make one database at once, the change to WAL does not wait for the others by itself.
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
        ("journal_size_limit", WAL_KEPT_BYTES),
        ("cell_size_check", True),
    ):
        connection.pragma(name, value)
