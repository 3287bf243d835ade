"""Where a log is published: a folder that a web server serves, or a bucket.

Rules:
- A file is there as a whole or not at all, and everybody may read it.
- The checkpoint is replaced only if it is still the one that was read (`swap`): of two that publish at once one is
  refused. In a folder that is a lock, in a bucket a conditional request.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from holdproof import folders
from holdproof.content import disk
from holdproof.errors import ConflictError, MissingExtraError
from holdproof.upkeep import bucket_address

CHECKPOINT: Final = "checkpoint"
MOST_BYTES: Final = 1 << 16
"""A checkpoint is smaller than this."""


class StoredCheckpoint(NamedTuple):
    """A checkpoint that is published, and what tells it from another one."""

    data: bytes
    version: object


def something_else(where: str) -> ConflictError:
    """Return the error for a place whose checkpoint is none."""
    return ConflictError(f"{where} holds something else: name a place of its own for the log", target=where)


class LogTarget(Protocol):
    """A place for the files of one log."""

    where: str

    def checkpoint(self) -> StoredCheckpoint | None:
        """Return the published checkpoint; None where there is none, ConflictError for a file that cannot be one."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a file durably; one of that name is replaced."""
        ...

    def swap(self, data: bytes, before: StoredCheckpoint | None) -> None:
        """Publish a checkpoint in the place of the one before; ConflictError where another one is there."""
        ...

    def drop_partials(self, path: str) -> None:
        """Remove the partial tiles of a tile that is full."""
        ...


class LogFolder:
    """A folder; see LogTarget."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        self._path = path

    def checkpoint(self) -> StoredCheckpoint | None:
        """See LogTarget."""
        try:
            return StoredCheckpoint(disk.read(self._path / CHECKPOINT, MOST_BYTES, regular=True), None)
        except FileNotFoundError:
            return None
        except OSError as error:
            # A pipe, a device, or a file that is too large to be one.
            if error.errno in (errno.EINVAL, errno.EFBIG):
                raise something_else(self.where) from error
            raise

    def put(self, path: str, data: bytes) -> None:
        """See LogTarget."""
        file = self._path / path
        _make(file.parent)
        disk.write(file, data, mode=0o644)

    def swap(self, data: bytes, before: StoredCheckpoint | None) -> None:
        """See LogTarget; the folder is locked while somebody publishes."""
        del before
        disk.write(self._path / CHECKPOINT, data, mode=0o644)

    def drop_partials(self, path: str) -> None:
        """See LogTarget."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._path / f"{path}.p")


def _make(folder: Path) -> None:
    """Create a folder with its missing parents, which a web server of another user may enter all."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folders.make(folder)
    folder.chmod(0o755)


@contextmanager
def opened(target: str | os.PathLike[str]) -> Iterator[LogTarget]:
    """Open the target that a text names: a folder, which is created, or `s3://bucket/prefix`."""
    address = bucket_address.parse(target)
    if address is not None:
        try:
            from holdproof.upkeep.publishing.bucket import LogBucket  # noqa: PLC0415 (an optional extra)
        except ImportError as error:
            raise MissingExtraError("S3 needs its client: pip install 'holdproof[s3]'") from error
        yield LogBucket(address)
        return
    path = Path(os.path.abspath(os.path.expanduser(target)))
    with disk.translated(path):
        _make(path)
        handle = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield LogFolder(path)
        finally:
            os.close(handle)
