"""Read Parquet files that `parquet.write` made: for the check of an archive, from bytes that nobody vouches for.

Rules:
- Only what that writer writes is read: one plain page of a column in a group, compressed with gzip. Anything else is a
  FormatError, as is a length that leads out of the file.
- Memory is bounded by a group: nothing is unpacked further than its header says, and that is bounded.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Final

from holdproof.content.parquet import ParquetColumn
from holdproof.errors import FormatError
from holdproof.model.times import to_text

_MAGIC: Final = b"PAR1"
_MOST_FOOTER: Final = 16 << 20
_MOST_PAGE: Final = 256 << 20
_MOST_ROWS: Final = 1 << 20
_DEPTH: Final = 16
_MALFORMED: Final = (struct.error, IndexError, KeyError, TypeError, ValueError, OverflowError, zlib.error)

Struct = dict[int, Any]
"""A Thrift struct: its values by the numbers of its fields."""


def read(file: BinaryIO, columns: Sequence[ParquetColumn]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the groups of rows of a file that has exactly these columns; FormatError for any other file."""
    try:
        for group in _groups(file, columns):
            count = _count(group[3], _MOST_ROWS)
            cells = [_column(file, column, chunk, count) for column, chunk in zip(columns, group[1], strict=True)]
            yield [*zip(*cells, strict=True)]
    except _MALFORMED as error:
        raise FormatError(f"not a Parquet file as Holdproof writes it: {error}") from error


def _groups(file: BinaryIO, columns: Sequence[ParquetColumn]) -> list[Struct]:
    size = file.seek(0, 2)
    file.seek(0)
    if size < 12 or file.read(4) != _MAGIC:
        raise ValueError("it does not begin as one")
    file.seek(size - 8)
    (length,) = struct.unpack("<I", file.read(4))
    if file.read(4) != _MAGIC or not 0 < length <= min(size - 12, _MOST_FOOTER):
        raise ValueError("it does not end as one")
    file.seek(size - 8 - length)
    footer = _Compact(file.read(length)).struct()
    names = [(each[4].decode(), each[1], each[3]) for each in footer[2][1:]]
    expected = [(each.name, 6 if each.kind == "text" else 2, int(each.optional)) for each in columns]
    if names != expected:
        raise ValueError("it has other columns")
    groups: list[Struct] = footer.get(4, [])
    return groups


def _column(file: BinaryIO, column: ParquetColumn, chunk: Struct, count: int) -> list[Any]:
    """Return the values of a column in a group."""
    about = chunk[3]
    packed = _count(about[7], _MOST_PAGE)
    file.seek(_count(about[9], 1 << 62))
    data = file.read(packed)
    if len(data) != packed or about[4] != 2:
        raise ValueError("a column is cut off, or packed otherwise")
    parser = _Compact(data)
    header = parser.struct()
    if header[1] != 0 or header[5][1] != count or header[5][2] != 0:
        raise ValueError("a page is of another kind")
    body = _unpack(data[parser.at :], _count(header[2], _MOST_PAGE))
    is_there, at = _levels(body, count) if column.optional else ([True] * count, 0)
    return _values(body, at, is_there, _TAKES[column.kind])


def _unpack(data: bytes, length: int) -> bytes:
    machine = zlib.decompressobj(wbits=31)
    body = machine.decompress(data, length + 1)
    if len(body) != length or not machine.eof or machine.unused_data:
        raise ValueError("a page has another length than its header says")
    return body


def _levels(body: bytes, count: int) -> tuple[list[bool], int]:
    """Return which values are there, and where the values begin."""
    (length,) = struct.unpack_from("<I", body)
    if length > len(body) - 4:
        raise ValueError("a page is cut off")
    parser = _Compact(body[4 : 4 + length])
    flags: list[bool] = []
    while parser.at < length:
        header = parser.varint()
        run = header >> 1
        if header & 1 or run > count - len(flags):
            raise ValueError("which values are there is written otherwise")
        flags += [bool(parser.byte())] * run
    if len(flags) != count:
        raise ValueError("a page has another number of values than its group")
    return flags, 4 + length


Take = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value at a place; returns it, and the place behind it."""


def _values(body: bytes, at: int, is_there: Sequence[bool], take: Take) -> list[Any]:
    values: list[Any] = []
    for there in is_there:
        value = None
        if there:
            value, at = take(body, at)
        values.append(value)
    if at != len(body):
        raise ValueError("a page has more than its values")
    return values


def _take_text(body: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<I", body, at)
    end = at + 4 + length
    if end > len(body):
        raise ValueError("a text is cut off")
    return body[at + 4 : end].decode(), end


def _take_number(body: bytes, at: int) -> tuple[int, int]:
    (number,) = struct.unpack_from("<q", body, at)
    return number, at + 8


def _take_moment(body: bytes, at: int) -> tuple[str, int]:
    micros, end = _take_number(body, at)
    return to_text(micros), end


_TAKES: Final[dict[str, Take]] = {"text": _take_text, "number": _take_number, "moment": _take_moment}


def _count(value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError("a length that no file of ours has")
    return value


class _Compact:
    """Thrift's compact protocol, as far as a footer and a header of a page need it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def byte(self) -> int:
        value = self._data[self.at]
        self.at += 1
        return value

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number without an end")

    def struct(self, depth: int = 0) -> Struct:
        """Read a struct to its end."""
        if depth > _DEPTH:
            raise ValueError("nested too deeply")
        fields: Struct = {}
        number = 0
        while head := self.byte():
            # Fields of ours are numbered close to each other: the difference always stands in the head.
            if not head >> 4:
                raise ValueError("a field numbered otherwise")
            number += head >> 4
            fields[number] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind in (5, 6):
            zigzag = self.varint()
            return (zigzag >> 1) ^ -(zigzag & 1)
        if kind == 8:
            length = self.varint()
            value = self._data[self.at : self.at + length]
            if len(value) != length:
                raise ValueError("a text is cut off")
            self.at += length
            return value
        if kind == 9:
            return self._list(depth)
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError(f"a value of kind {kind}")

    def _list(self, depth: int) -> list[Any]:
        head = self.byte()
        count = self.varint() if head >> 4 == 15 else head >> 4
        kind = head & 15
        if kind not in (5, 8, 12):
            raise ValueError("a list of something else")
        # Every item takes a byte at least, so that a false count ends with the data.
        return [self._value(kind, depth + 1) for _ in range(count)]
