"""Disks that are full: a real file system with so many pages left, or files that may grow to so many bytes.

A small file system in memory needs root, and its ENOSPC is the real one, for data, folders and names. Without root the
system's limit on the size of a file does for files what a full disk would, at any byte.
"""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

PAGE: Final = 4096
_LARGE: Final = 1 << 30


class Room(Protocol):
    """A folder whose disk can be made full."""

    name: str
    step: int
    """How much more is given at each try."""

    def only(self, bytes_left: int) -> AbstractContextManager[None]:
        """Leave that much, for as long as the context lasts."""
        ...

    def close(self) -> None:
        """Undo what was done to the folder."""
        ...


class Ceiling:
    """No file may grow beyond so many bytes; for the whole process, so it must have nothing else to do."""

    name, step = "file size", 1500

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def only(self, bytes_left: int) -> Iterator[None]:
        """See Room."""
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, most))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    def close(self) -> None:
        """Nothing to undo."""


class Volume:
    """A file system of its own, in memory."""

    name, step = "full volume", PAGE

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        _mount("-t", "tmpfs", "-o", f"size={_LARGE},mode=700", "holdproof-proof", str(folder))

    @contextmanager
    def only(self, bytes_left: int) -> Iterator[None]:
        """See Room."""
        facts = os.statvfs(self.folder)
        used = (facts.f_blocks - facts.f_bfree) * facts.f_frsize
        _mount("-o", f"remount,size={max(PAGE, used + bytes_left)}", str(self.folder))
        try:
            yield
        finally:
            _mount("-o", f"remount,size={_LARGE}", str(self.folder))

    def close(self) -> None:
        """Take it away; nothing on it may be open."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


def can_mount(folder: Path) -> bool:
    """Whether we may have a file system of our own."""
    if os.geteuid() != 0:
        return False
    try:
        Volume(folder).close()
    except (OSError, subprocess.CalledProcessError):
        return False
    return True
