"""Page checksums: SQLite's `cksumvfs` keeps one at the end of every page, so that a flipped bit is an error.

Rules:
- Our connections write checksums when they move the write-ahead log into the file. Another SQLite program that does
  so leaves pages whose checksum is that of an older content: *unsealed* pages. They cannot be told from damage by
  themselves; whether the content is right is decided by comparing it with the log (`holdproof verify`).
- Reading an unsealed page is an error, unless the file is replicated by Litestream, which moves the log all the time,
  or verification has found the pages and reads on (`tolerate`).
- `reseal` writes the checksums anew, once the content was found right.
- While this process has a database open, its file is read through a descriptor that stays open as long: closing any
  descriptor of a file drops all POSIX locks of the process on it, also those of SQLite's own connections.
"""

import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import apsw
import apsw.sqlite_extra

from holdproof.errors import CorruptError

CHECKSUM_BYTES: Final = 8
_RESERVED_AT: Final = 20
_PAGE_SIZE_AT: Final = slice(16, 18)
LITESTREAM: Final = {
    "_litestream_lock": "CREATE TABLE _litestream_lock (id INTEGER)",
    "_litestream_seq": "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)",
}
"""The tables that Litestream makes in every database it replicates, with their exact definitions."""

_Inode = tuple[int, int]
_TOLERATED: Final[set[_Inode]] = set()
_DESCRIPTORS: Final[dict[_Inode, list[int]]] = {}
"""An open descriptor of each file that is in use here, and how many users it has."""
_LOCK: Final = threading.Lock()


@cache
def checksums() -> str | None:
    """Register SQLite's checksum layer (a VFS) once and return its name; None if apsw was built without it."""
    if not apsw.sqlite_extra.has("cksumvfs"):
        return None
    _load_checksums().close()
    return "cksmvfs"


def _load_checksums() -> apsw.Connection:
    default = apsw.vfs_names()[0]
    connection = apsw.Connection(":memory:")
    apsw.sqlite_extra.load(connection, "cksumvfs")
    apsw.set_default_vfs(default)  # loading made it the default; other users of apsw in this process must not get it
    return connection


def _inode(path: Path | str) -> _Inode:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def hold(path: Path) -> _Inode:
    """Keep a descriptor of a file open until `release`; call it before SQLite's own connections are closed."""
    with _LOCK:
        inode = _inode(path)
        if inode not in _DESCRIPTORS:
            _DESCRIPTORS[inode] = [os.open(path, os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY), 0]
        _DESCRIPTORS[inode][1] += 1
        return inode


def release(inode: _Inode) -> None:
    """Close the descriptor once nobody holds it; only then are all connections of this process closed too."""
    with _LOCK:
        entry = _DESCRIPTORS[inode]
        entry[1] -= 1
        if not entry[1]:
            os.close(_DESCRIPTORS.pop(inode)[0])


@contextmanager
def _descriptor(path: Path) -> Iterator[int]:
    inode = hold(path)
    try:
        yield _DESCRIPTORS[inode][0]
    finally:
        release(inode)


def has_checksums(path: Path) -> bool:
    """Return whether the pages of a file end in checksums: byte 20 of its header counts the reserved bytes."""
    with _descriptor(path) as file:
        header = os.pread(file, _RESERVED_AT + 1, 0)
    return len(header) > _RESERVED_AT and header[_RESERVED_AT] == CHECKSUM_BYTES


def unsealed_pages(path: Path) -> Iterator[int]:
    """Yield the numbers of all pages in the file whose checksum is not that of their content."""
    if not has_checksums(path):
        return
    loader = _load_checksums()  # loading also defines verify_checksum() on that connection
    try:
        for number, page in _pages(path):
            if loader.execute("SELECT verify_checksum(?)", (page,)).get == 0:
                yield number
    finally:
        loader.close()


def _pages(path: Path) -> Iterator[tuple[int, bytes]]:
    with _descriptor(path) as file:
        (size,) = struct.unpack(">H", os.pread(file, 18, 0)[_PAGE_SIZE_AT])
        size = 65_536 if size == 1 else size
        number = 1
        while len(page := os.pread(file, size, (number - 1) * size)) == size:
            yield number, page
            number += 1


def tolerate(path: Path) -> None:
    """Let this process read unsealed pages of a file from now on: somebody is about to compare their content."""
    _TOLERATED.add(_inode(path))


def is_tolerated(path: Path) -> bool:
    """Return whether this process reads unsealed pages of the file."""
    try:
        return _inode(path) in _TOLERATED
    except OSError:
        return False


def writes_checksums(connection: apsw.Connection) -> bool:
    """Return whether a connection writes checksums: once it has read or written the first page in the file itself."""
    return checksums() is None or connection.execute("PRAGMA checksum_verification").get == "1"


def is_replicated(connection: apsw.Connection) -> bool:
    """Return whether Litestream replicates the database, by the tables that it makes."""
    names = ", ".join(f"'{name}'" for name in LITESTREAM)
    query = f"SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name IN ({names}) LIMIT 1"  # noqa: S608
    return bool(connection.execute(query).fetchall())


def settle(connection: apsw.Connection) -> bool:
    """Stop the verification of checksums where unsealed pages are expected; return whether it was stopped.

    Verified first: a file that nobody else touches never has its schema read without.
    """
    try:
        if not is_tolerated(Path(connection.filename)) and not is_replicated(connection):
            return False
    except apsw.IOError as error:
        if not is_unsealed(error):
            raise
        _verify(connection, "OFF")
        if not is_replicated(connection):
            _verify(connection, "ON")
            return False
    _verify(connection, "OFF")
    return True


def _verify(connection: apsw.Connection, switch: str) -> None:
    connection.execute(f"PRAGMA checksum_verification={switch}").fetchall()


def is_unsealed(error: apsw.Error) -> bool:
    """Return whether a read failed because of a page's checksum."""
    return getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA


class ToleratedPageError(CorruptError):
    """An unsealed page that may be read; the connection no longer verifies, so the read succeeds when repeated."""


def tolerated(error: apsw.Error, connection: apsw.Connection) -> ToleratedPageError | None:
    """Return the error that asks for a repetition, if the read failed at an unsealed page that may be read."""
    if is_unsealed(error) and settle(connection):
        return ToleratedPageError("a page was written by another SQLite program; read it again")
    return None


def checksum(page: bytes) -> bytes:
    """Return the checksum of a page: what its last eight bytes should be (docs/format.md)."""
    s1 = 0
    s2 = 0
    words = iter(struct.unpack(f"<{(len(page) - CHECKSUM_BYTES) // 4}I", page[:-CHECKSUM_BYTES]))
    for first, second in zip(words, words, strict=True):
        s1 = (s1 + first + s2) & 0xFFFFFFFF
        s2 = (s2 + second + s1) & 0xFFFFFFFF
    return struct.pack("<II", s1, s2)


def reseal(path: Path, connection: apsw.Connection) -> int:
    """Write the checksum of every unsealed page of a closed database anew; return how many there were.

    The given connection keeps others out. Killed at any moment, the content is as before; run it again then.
    """
    connection.execute("PRAGMA locking_mode=EXCLUSIVE; PRAGMA checksum_verification=OFF").fetchall()
    # One file without a write-ahead log: what was in the log gets its checksums by being moved.
    connection.execute("PRAGMA journal_mode=DELETE; BEGIN EXCLUSIVE").fetchall()
    with _descriptor(path) as file:
        pages = list(unsealed_pages(path))
        size = next((len(page) for _, page in _pages(path)), 0)
        for number in pages:
            page = os.pread(file, size, (number - 1) * size)
            os.pwrite(file, checksum(page), number * size - CHECKSUM_BYTES)
        os.fsync(file)
        connection.execute("ROLLBACK").fetchall()
    _TOLERATED.discard(_inode(path))
    return len(pages)
