"""Durable file operations: synced when a call returns, hashed while copied, system errors as typed errors."""

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
from typing import TYPE_CHECKING, BinaryIO

from holdproof import folders
from holdproof.errors import DiskFullError, ReadOnlyError, UnavailableError
from holdproof.lazy import lazy_module

if TYPE_CHECKING:
    from holdproof.model import backup
else:
    backup = lazy_module("holdproof.model.backup")

_CHUNK = 1 << 20
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors for lack of space: on the disk, in the user's quota, or in the file."""
_CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def translated(path: Path | str) -> Iterator[None]:
    """Raise DiskFullError, ReadOnlyError or UnavailableError for an OSError inside the block."""
    try:
        yield
    except OSError as error:
        kind = ReadOnlyError if error.errno in _CLOSED else UnavailableError
        kind = DiskFullError if error.errno in FULL else kind
        raise kind(f"{error.filename or path}: {error.strerror or error}", path=str(path)) from error


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading; OSError for a pipe or a device, without waiting for it."""
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read(path: Path, most: int, *, regular: bool = False) -> bytes:
    """Read a whole file of at most `most` bytes; `regular` refuses pipes and devices. OSError if it is larger."""
    with open_file(path) if regular else path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, "file too large", str(path))
    return data


def write(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write a file durably; an existing one is replaced atomically, and a failure leaves no temporary file.

    Only for one writer at a time: the temporary name is fixed, so that a crash leaves one such file at most. The file
    has this mode whatever the umask, and nothing is written through a link in the place of the temporary file.
    """
    aside = path.with_name(f".{path.name}.new")
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    os.fchmod(handle, mode)
    _fill_and_rename(handle, str(aside), path, data)


def exchange(path: Path, data: bytes) -> None:
    """Write a file durably, as `write` does, safe for several writers at once; readable by the owner only."""
    _fill_and_rename(*tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent), path, data)


def _fill_and_rename(handle: int, aside: str, path: Path, data: bytes) -> None:
    """Write data to a temporary file and rename it to `path`; durable when it returns."""
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
    # If only this fails the file stays: the one it replaced is gone already.
    folders.sync(path.parent)


def private(name: str, flags: int) -> int:
    """Open a file as the `opener` of `open()`; new files are readable by the owner only."""
    return os.open(name, flags, 0o600)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a lock file during the block, against other threads and processes."""
    folders.make(path.parent)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def create(path: Path, data: bytes) -> None:
    """Create a file and sync its content; OSError if it exists. Syncing the folder is up to the caller."""
    folders.make(path.parent)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def deliver(path: Path, pieces: Iterable[bytes]) -> int:
    """Write pieces to a file atomically, readable by the owner only; returns the number of bytes.

    A device or a pipe is written to directly.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            return sum(file.write(piece) for piece in pieces)
    # A name has at most 255 bytes: a long one is cut, so that the temporary name still fits.
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            size = sum(file.write(piece) for piece in pieces)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return size


def copy(source: Path, target: Path) -> "backup.Entry":
    """Copy a file durably; returns hash and length of the bytes written. OSError if the target exists."""
    folders.make(target.parent)
    digest = sha256()
    size = 0
    with source.open("rb") as reader:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as writer:
            # Hashed from the same read as written: the source may change meanwhile, the entry still fits the copy.
            while chunk := reader.read(_CHUNK):
                writer.write(chunk)
                digest.update(chunk)
                size += len(chunk)
            writer.flush()
            os.fsync(writer.fileno())
    return backup.Entry(digest.hexdigest(), size)


def entry(path: Path) -> "backup.Entry":
    """Return hash and length of a file."""
    digest = sha256()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return backup.Entry(digest.hexdigest(), size)


def files(folder: Path, *, hidden: bool = False) -> list[Path]:
    """Return every file below a folder, sorted; hidden ones, which are temporary, only if `hidden` is set."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    if hidden:
        return sorted(paths)
    return sorted(path for path in paths if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def sync_tree(folder: Path) -> None:
    """Sync every folder below this one, and the folder itself."""
    for path, _, _ in os.walk(folder):
        folders.sync(Path(path))


def remove_tree(folder: Path) -> None:
    """Remove a folder and its content; errors are ignored."""
    shutil.rmtree(folder, ignore_errors=True)


def shred(path: Path) -> None:
    """Overwrite a file and remove it; on copy-on-write disks the overwriting reaches only new blocks."""
    try:
        if path.is_symlink():  # overwriting would destroy the file it points to
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
