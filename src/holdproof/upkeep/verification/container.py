"""Open a zip from somebody else: its directory is bounded and walked before a library builds an object for each member.

Rules:
- The file is untrusted. `zipfile` reads a directory whole and builds an object for each member: a file of 57 MiB with
  1.3 million of them cost 408 MiB. So the directory has at most so many members and so many bytes, it has exactly the
  members that it counts, and it ends where the record of the end begins.
- No byte stands before or after the zip: other programs might read those instead.
- There is no second record of the end (zip64): the two could count differently.
- Members are stored or deflated: other methods could expand without bound, or need libraries that a verifier lacks.
"""

import io
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from holdproof.errors import FormatError

MOST_BYTES: Final = 64 << 20
_END: Final = struct.Struct("<4s4H2LH")
_END_MARK: Final = b"PK\x05\x06"
_LOCATOR_MARK: Final = b"PK\x06\x07"
_LOCATOR_BYTES: Final = 20
_ENTRY_MARK: Final = b"PK\x01\x02"
_ENTRY_BYTES: Final = 46
_LENGTHS: Final = struct.Struct("<3H")
_LENGTHS_AT: Final = 28
"""Where an entry of the directory has the lengths of its name, its extra fields and its comment."""
_MOST_ENTRY: Final = 512
"""The bytes that an entry has on average at most: names of members are short, and nothing needs extra fields."""
_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})


@contextmanager
def opened(data: bytes, what: str, *, most_members: int) -> Iterator[zipfile.ZipFile]:
    """Open a zip whose directory keeps the rules above; FormatError names `what` it was to be."""
    _check_directory(data, what, most_members)
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, RuntimeError, ValueError) as error:
        # An entry that asks for a version of the format that there is not, a name that is no text, a cut extra field.
        raise FormatError(f"not a {what}: {error}") from error
    with archive:
        members = archive.infolist()
        if any(each.compress_type not in _METHODS for each in members):
            raise FormatError(f"{what}: a member is neither stored nor deflated")
        if min((each.header_offset for each in members), default=0):
            raise FormatError(f"{what}: there are bytes before the zip")
        yield archive


def _check_directory(data: bytes, what: str, most_members: int) -> None:
    """Raise FormatError unless the directory is bounded, whole, and right before the end of the file."""
    if len(data) > MOST_BYTES:
        raise FormatError(f"a {what} has at most {MOST_BYTES} bytes", length=len(data))
    at = len(data) - _END.size
    if at < 0 or not data.startswith(_END_MARK, at):
        cause = "there are bytes after the zip" if _END_MARK in data[-(1 << 16) - _END.size :] else "it is no zip"
        raise FormatError(f"not a {what}: {cause}")
    _, disk, first_disk, here, count, length, offset, comment = _END.unpack_from(data, at)
    is_split = disk or first_disk or here != count or comment
    if is_split or data.startswith(_LOCATOR_MARK, max(at - _LOCATOR_BYTES, 0)):
        raise FormatError(f"not a {what}: a zip in parts, with a comment, or of the large format (zip64)")
    if count > most_members or length > count * _MOST_ENTRY:
        raise FormatError(f"{what}: a member twice, or too many", count=count, most=most_members)
    start = at - length
    if start != offset:
        raise FormatError(f"{what}: there are bytes before the zip")
    if _count(data, start, at) != count:
        raise FormatError(f"not a {what}: its directory does not have the {count} members that it counts")


def _count(data: bytes, start: int, end: int) -> int:
    """Return how many entries a directory has; -1 where it does not consist of whole ones."""
    count = 0
    while start < end:
        if not data.startswith(_ENTRY_MARK, start) or start + _ENTRY_BYTES > end:
            return -1
        start += _ENTRY_BYTES + sum(_LENGTHS.unpack_from(data, start + _LENGTHS_AT))
        count += 1
    return count if start == end else -1
