"""Files of a legacy folder: listed without following links, read in pieces, named as keys.

Rules:
- Links, pipes, sockets and devices are skipped and counted; nothing outside the folder is ever read.
- A name that is not a valid key is percent-encoded, so that no two files get the same key.
"""

import os
import re
import stat
import string
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from holdproof.errors import BlobKeyError, FormatError
from holdproof.model.blobs import MOST_KEY_BYTES, check_key

PIECE: Final = 1 << 20
_PLAIN: Final = frozenset(string.ascii_letters + string.digits + "-_.")
_QUOTED: Final = re.compile("%[0-9A-Fa-f]{2}")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that becomes a blob."""

    path: Path
    key: str
    size: int
    sha256: str
    content_type: str | None = None


def pieces(path: Path) -> Iterator[bytes]:
    """Read a regular file in pieces; raises OSError for a link, FormatError for a device."""
    # O_NONBLOCK: opening a pipe must not wait for a writer.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise FormatError(f"{path} is not a regular file", path=str(path))
        while piece := file.read(PIECE):
            yield piece


def small(path: Path, most: int) -> bytes:
    """Read a file of limited size."""
    data = bytearray()
    for piece in pieces(path):
        data += piece
        if len(data) > most:
            raise FormatError(f"{path} is larger than {most} bytes", path=str(path), most=most)
    return bytes(data)


def hashed(path: Path, key: str, content_type: str | None = None) -> SourceFile:
    """Compute size and hash of a file."""
    digest = sha256()
    size = 0
    for piece in pieces(path):
        digest.update(piece)
        size += len(piece)
    return SourceFile(path, key, size, digest.hexdigest(), content_type)


def walk(folder: Path, skipped: Counter[str]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Every file below a folder with its path in parts, sorted; anything else is counted in `skipped`."""
    # A stack of its own instead of recursion: folders may be nested deeper than Python calls itself.
    above: tuple[str, ...] = ()
    stack = [(entry, above) for entry in _entries(folder)]
    while stack:
        entry, above = stack.pop()
        parts = (*above, entry.name)
        if entry.is_symlink():
            skipped["links"] += 1
        elif entry.is_dir(follow_symlinks=False):
            stack += [(each, parts) for each in _entries(entry.path)]
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path), parts
        else:
            skipped["pipes, sockets and devices"] += 1


def _entries(folder: str | Path) -> list["os.DirEntry[str]"]:
    """Return what a folder holds, the last one first: it is taken from the end."""
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: os.fsencode(entry.name), reverse=True)


def key_of(*parts: str) -> str:
    """The key of a file by its path; unique among the files of a source."""
    key = "/".join(map(_part, parts))
    # A key that is too long becomes a hash below a name that no encoded part can have.
    if len(key.encode()) <= MOST_KEY_BYTES:
        return check_key(key)
    digest = sha256(os.fsencode("/".join(parts))).hexdigest()
    return check_key(f"{_part(parts[0])}/%00long/{digest}")


def _part(part: str) -> str:
    try:
        if not _QUOTED.search(part):
            check_key(part)
            return part
    except BlobKeyError:
        pass
    raw = os.fsencode(part)
    plain = "".join(_character(each) for each in part) if part.isprintable() else _bytes(raw)
    try:
        return check_key(plain)
    except BlobKeyError:  # reserved, or too long once it is written out
        return f"%{raw[0]:02X}" + _bytes(raw[1:]) if len(raw) < 80 else f"%{sha256(raw).hexdigest()}"


def _character(each: str) -> str:
    return each if each not in "%\\:" else "".join(f"%{byte:02X}" for byte in each.encode())


def _bytes(raw: bytes) -> str:
    return "".join(chr(each) if chr(each) in _PLAIN else f"%{each:02X}" for each in raw)
