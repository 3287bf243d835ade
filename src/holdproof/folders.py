"""Folders that are still there after a power cut: a new one is durable only once the folder it lies in is synced."""

import errno
import os
from contextlib import suppress
from pathlib import Path


def make(folder: Path | str) -> None:
    """A folder and those above it, where they are missing, for the owner only; durable when it returns.

    One that could not be made durable is taken away again: what is there is believed to be there for good.
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
        except PermissionError:  # a folder one may write into but not list: nothing more can be done
            pass
        except OSError:
            with suppress(OSError):
                part.rmdir()
            raise


def sync(folder: Path | str) -> None:
    """Make what came into a folder, or went, durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that keeps no folders back
            raise
    finally:
        os.close(handle)
