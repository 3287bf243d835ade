"""Folders in which something is being made, which nobody takes for the whole and the next maker empties."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdproof import folders
from holdproof.content import disk
from holdproof.errors import BusyError
from holdproof.upkeep.backups.backup_list import PARTIAL


@contextmanager
def locked_folder(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold an exclusive lock on a folder; without `wait` BlockingIOError if somebody else has it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


@contextmanager
def partial_folder(target: Path, what: str | None = None) -> Iterator[Path]:
    """Create and lock an empty folder beside the target; removed if anything fails. BusyError names `what` is made."""
    partial = target.with_name(f"{target.name}{PARTIAL}")
    folders.make(partial)
    handle = os.open(partial, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (
                os.fstat(handle).st_ino != partial.stat().st_ino
            ):  # renamed meanwhile: what has its name now is another's
                raise OSError(errno.EBUSY, "taken")
        except OSError as error:
            name = what or str(target)
            raise BusyError(f"another backup into {name} is under way", path=name) from error
        for leftover in partial.iterdir():  # of a backup that was killed
            disk.remove_tree(leftover) if leftover.is_dir() and not leftover.is_symlink() else leftover.unlink()
        try:
            yield partial
        except BaseException:
            disk.remove_tree(partial)
            raise
    finally:
        os.close(handle)
