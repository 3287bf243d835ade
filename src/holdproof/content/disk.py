"""File operations: hashed while copying, durable when a call returns, errors typed."""

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from holdproof import folders
from holdproof.errors import DiskFullError, ReadOnlyError, UnavailableError
from holdproof.model.backup import Entry

_CHUNK = 1 << 20
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""System errors that mean no space: on the disk, in the user's quota, or for the size of a file."""
_CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def translated(path: Path | str) -> Iterator[None]:
    """Translate system errors into Holdproof's."""
    try:
        yield
    except OSError as error:
        kind = ReadOnlyError if error.errno in _CLOSED else UnavailableError
        kind = DiskFullError if error.errno in FULL else kind
        raise kind(f"{error.filename or path}: {error.strerror or error}", path=str(path)) from error


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading; OSError for a pipe or device, on which a reader could wait forever."""
    # Non-blocking: opening a pipe without a writer would wait forever.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read(path: Path, most: int, *, regular: bool = False) -> bytes:
    """Return the content of a file of bounded size; `regular` refuses pipes and devices."""
    with open_file(path) if regular else path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, "file too large", str(path))
    return data


def write(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write a file durably; an existing one is replaced atomically, and a failure leaves no temporary file."""
    aside = path.with_name(f".{path.name}.new")
    _replace(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), str(aside), path, data)


def exchange(path: Path, data: bytes) -> None:
    """Write a file durably like `write`, safe for concurrent writers; readable by the owner only."""
    _replace(*tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent), path, data)


def _replace(handle: int, aside: str, path: Path, data: bytes) -> None:
    """Fill a temporary file and rename it into place; durable when it returns.

    If only the rename cannot be synced the new file stays: the old one is already replaced.
    """
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise
    # The rename is durable only once the folder is synced.
    folders.sync(path.parent)


def private(name: str, flags: int) -> int:
    """Open a file as an `opener` does, created with access for the owner only."""
    return os.open(name, flags, 0o600)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock file, across threads and processes."""
    folders.make(path.parent)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def create(path: Path, data: bytes) -> None:
    """Create a file and sync it; the caller syncs its folder."""
    folders.make(path.parent)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def deliver(path: Path, pieces: Iterable[bytes]) -> int:
    """Write bytes to a file atomically, for the owner only; returns how many. A device or pipe is written directly."""
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            return sum(file.write(piece) for piece in pieces)
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            size = sum(file.write(piece) for piece in pieces)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return size


def copy(source: Path, target: Path) -> Entry:
    """Copy a file durably; hash and length are those of the bytes written."""
    folders.make(target.parent)
    digest = sha256()
    size = 0
    with source.open("rb") as reading:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as writing:
            while chunk := reading.read(_CHUNK):
                writing.write(chunk)
                digest.update(chunk)
                size += len(chunk)
            writing.flush()
            os.fsync(writing.fileno())
    return Entry(digest.hexdigest(), size)


def entry(path: Path) -> Entry:
    """Return hash and length of a file."""
    digest = sha256()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return Entry(digest.hexdigest(), size)


def files(folder: Path, *, hidden: bool = False) -> list[Path]:
    """Return every file below a folder, sorted; hidden ones are temporary and omitted unless `hidden`."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    if hidden:
        return sorted(paths)
    return sorted(path for path in paths if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def sync_tree(folder: Path) -> None:
    """Make every folder below this one durable."""
    for path, _, _ in os.walk(folder):
        folders.sync(Path(path))


def remove_tree(folder: Path) -> None:
    """Remove a folder and all in it, as far as possible."""
    shutil.rmtree(folder, ignore_errors=True)


def shred(path: Path) -> None:
    """Overwrite a file and remove it; on copy-on-write disks the overwriting reaches only new blocks."""
    try:
        if path.is_symlink():  # its target belongs to somebody else
            path.unlink()
            return
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            for start in range(0, size, _CHUNK):
                file.write(bytes(min(_CHUNK, size - start)))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()
        folders.sync(path.parent)
    except FileNotFoundError:
        return
