"""Reading a skill file: once, whole, and through no link.

Rules:
- A path is made absolute by its words alone. Where its folder really lies is found out once, when it is approved.
- From there on every folder on the way, and the file itself, is opened without following links: whoever puts a link in
  the place of one of them is refused, not followed.
- Only a regular file is read: no pipe, device, socket or folder; none of them can make the reader wait.
- It is read once, up to a bound; what is checked are the bytes that were read.
"""

import errno
import os
import stat
from typing import Final

from holdproof.errors import InvalidInputError, NotFoundError, UnavailableError

MOST_BYTES: Final = 8 << 20
_MOST_PATH: Final = 1_000
# Where the system has it, a folder on the way need not be readable, only passable.
_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK: Final = 1 << 20


class NotAFileError(Exception):
    """There is something else than a file of bounded size: a link on the way, a pipe, too much."""


def absolute(path: str | os.PathLike[str]) -> str:
    """Return the name a skill goes by: its absolute path, as it is written."""
    text = os.path.abspath(os.fspath(path))
    if not text.isprintable() or len(text.encode(errors="replace")) > _MOST_PATH:
        raise InvalidInputError(f"a skill has a printable path of at most {_MOST_PATH} bytes", path=ascii(text)[:200])
    return text


def place_of(path: str) -> str:
    """Return where a file lies, without links on the way; the file itself is not looked at."""
    folder, name = os.path.split(path)
    return absolute(os.path.join(os.path.realpath(folder), name))


def exists(path: str) -> bool:
    """Return whether there is anything at all, be it a link that leads nowhere."""
    return os.path.lexists(path)


def read(place: str, *, most: int = MOST_BYTES) -> bytes:
    """Return the bytes of a file; NotFoundError if there is none, NotAFileError if it is anything else."""
    try:
        return _read(place, most)
    except FileNotFoundError as error:
        raise NotFoundError(f"{place}: no such file", path=place) from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK, errno.ENXIO):
            raise NotAFileError("a link, or no folder, is on the way to it") from error
        raise UnavailableError(f"{place}: {error.strerror}", path=place) from error


def _read(place: str, most: int) -> bytes:
    *folders, name = place.strip("/").split("/")
    at = os.open("/", _FOLDER)
    try:
        for folder in folders:
            below = os.open(folder, _FOLDER, dir_fd=at)
            os.close(at)
            at = below
        # Looked at before it is opened, since opening a device may do something; and after, since it may be another.
        _refuse_odd(os.stat(name or ".", dir_fd=at, follow_symlinks=False))
        handle = os.open(name, _FILE, dir_fd=at)
    finally:
        os.close(at)
    try:
        _refuse_odd(os.fstat(handle))
        return _whole(handle, most)
    finally:
        os.close(handle)


def _refuse_odd(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise NotAFileError("it is a link")
    if not stat.S_ISREG(status.st_mode):
        raise NotAFileError("it is no regular file")


def _whole(handle: int, most: int) -> bytes:
    pieces = []
    size = 0
    while size <= most and (piece := os.read(handle, min(_CHUNK, most + 1 - size))):
        pieces.append(piece)
        size += len(piece)
    if size > most:
        raise NotAFileError(f"it has more than {most} bytes")
    return b"".join(pieces)
