"""Folders: creating them so that they survive a power cut (their parent is synced), and the one of a project."""

import errno
import hashlib
import os
from contextlib import suppress
from pathlib import Path

HIDE_ALL = "*\n"
"""The `.gitignore` of a folder of which git takes nothing."""


def make(folder: Path | str) -> None:
    """Create a folder and its missing parents, readable by the owner only; durable when it returns.

    A folder that could not be synced is removed again, because later calls treat an existing folder as durable.
    """
    folder = Path(folder)
    if folder.is_dir():
        return
    for part in (*reversed(folder.parents), folder):
        if part.is_dir():
            continue
        part.mkdir(mode=0o700, exist_ok=True)
        try:
            sync(part.parent)
        except PermissionError:  # a parent that may be written but not read cannot be synced: accepted
            pass
        except OSError:
            with suppress(OSError):
                part.rmdir()
            raise


def sync(folder: Path | str) -> None:
    """Sync a folder: files and folders created, renamed or removed in it are durable when this returns."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system without sync for folders: nothing to wait for
            raise
    finally:
        os.close(handle)


def write_new(path: Path, text: str) -> None:
    """Create a file that only the owner can read: it may come to contain a password."""
    with open(path, "x", encoding="utf-8", opener=_open_private) as file:
        file.write(text)


def write_once(path: Path, text: str) -> None:
    """Create a file unless there is one; of two processes that open a new store at once the first writes it."""
    with suppress(FileExistsError):
        write_new(path, text)


def holds(path: Path, text: str) -> bool:
    """Return whether there is a file with just this text."""
    return path.is_file() and path.read_bytes() == text.encode()


def _open_private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


def find_project(start: str | Path) -> Path | None:
    """Return the nearest folder at or above `start` that has `.holdproof/config.yaml`, None without one."""
    folder = Path(os.path.realpath(start))
    return next((at for at in (folder, *folder.parents) if os.path.lexists(at / ".holdproof" / "config.yaml")), None)


def project_hash(path: str | Path) -> str:
    """Return the id of a project in rows: the first 8 hex digits of the SHA-256 of its resolved path."""
    return hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:8]
