"""Write flat tables as Apache Parquet, for DuckDB, pandas, Spark and their like: rows in, bytes out.

Rules:
- A value is text, a whole number or a moment; a column says whether it may be absent.
- Each group of rows is written as it comes, so memory is bounded by a group, whatever the length of the table.
- Pages are of version 1, plain and compressed with gzip: what every reader reads. Nothing else of the format is needed,
  and a library for all of it has 25 to 140 MB.
"""

import gzip
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal

from holdproof.model.times import to_micros

_MAGIC: Final = b"PAR1"
_GZIP: Final = 2
_PLAIN: Final = 0
_RLE: Final = 3

Kind = Literal["text", "number", "moment"]


@dataclass(frozen=True, slots=True)
class ParquetColumn:
    """A column: its name, what is in it, and whether a row may have nothing there."""

    name: str
    kind: Kind
    optional: bool


def write(
    columns: Sequence[ParquetColumn], groups: Iterable[Sequence[Sequence[Any]]], *, name: str = "trail"
) -> Iterator[bytes]:
    """Yield the bytes of a file with these groups of rows; a moment is our text of it, absent is None."""
    yield _MAGIC
    offset = len(_MAGIC)
    row_groups: list[bytes] = []
    total = 0
    for rows in groups:
        if not rows:
            continue
        chunks: list[bytes] = []
        size = 0
        for at, column in enumerate(columns):
            page, length = _page(column, [row[at] for row in rows])
            chunks.append(_chunk(column, len(rows), offset, len(page), length))
            size += length
            offset += len(page)
            yield page
        row_groups.append(_struct((1, _list(_STRUCT, chunks)), (2, _i64(size)), (3, _i64(len(rows)))))
        total += len(rows)
    footer = _struct(
        (1, _i32(1)),
        (2, _list(_STRUCT, [_struct((4, _text(name)), (5, _i32(len(columns)))), *map(_element, columns)])),
        (3, _i64(total)),
        (4, _list(_STRUCT, row_groups)),
        (6, _text("holdproof")),
    )
    yield footer + struct.pack("<I", len(footer)) + _MAGIC


# --- values ------------------------------------------------------------------------------------------------------


def _page(column: ParquetColumn, values: Sequence[Any]) -> tuple[bytes, int]:
    """Return a column of a group as its one page, and how long it is before compression, both with the header."""
    levels = _levels([value is not None for value in values]) if column.optional else b""
    body = levels + b"".join(_value(column.kind, value) for value in values if value is not None)
    # Without a time inside: the same rows give the same file.
    packed = gzip.compress(body, mtime=0)
    about = _struct((1, _i32(len(values))), (2, _i32(_PLAIN)), (3, _i32(_RLE)), (4, _i32(_RLE)))
    header = _struct((1, _i32(0)), (2, _i32(len(body))), (3, _i32(len(packed))), (5, (_STRUCT, about)))
    return header + packed, len(header) + len(body)


def _value(kind: Kind, value: Any) -> bytes:
    if kind == "text":
        # A lone surrogate is no UTF-8; it is shown as what it is.
        data = str(value).encode(errors="backslashreplace")
        return struct.pack("<I", len(data)) + data
    return struct.pack("<q", to_micros(value) if kind == "moment" else value)


def _levels(present: Sequence[bool]) -> bytes:
    """Return which values are there, in runs of the same."""
    runs = b"".join(_varint(len([*run]) << 1) + bytes([is_there]) for is_there, run in groupby(present))
    return struct.pack("<I", len(runs)) + runs


# --- what the footer says ----------------------------------------------------------------------------------------


def _element(column: ParquetColumn) -> bytes:
    is_text = column.kind == "text"
    fields = [(1, _i32(6 if is_text else 2)), (3, _i32(int(column.optional))), (4, _text(column.name))]
    if is_text:
        fields += [(6, _i32(0)), (10, (_STRUCT, _struct((1, (_STRUCT, _struct())))))]
    if column.kind == "moment":
        micros = _struct((2, (_STRUCT, _struct())))
        in_utc = _struct((1, (_TRUE, b"")), (2, (_STRUCT, micros)))
        fields += [(6, _i32(10)), (10, (_STRUCT, _struct((8, (_STRUCT, in_utc)))))]
    return _struct(*fields)


def _chunk(column: ParquetColumn, count: int, offset: int, packed: int, length: int) -> bytes:
    about = _struct(
        (1, _i32(6 if column.kind == "text" else 2)),
        (2, _list(_I32, [_zigzag(_PLAIN), _zigzag(_RLE)])),
        (3, _list(_BINARY, [_varint(len(column.name.encode())) + column.name.encode()])),
        (4, _i32(_GZIP)),
        (5, _i64(count)),
        (6, _i64(length)),
        (7, _i64(packed)),
        (9, _i64(offset)),
    )
    return _struct((2, _i64(offset)), (3, (_STRUCT, about)))


# --- Thrift's compact protocol: a value is its type and its bytes ------------------------------------------------

_TRUE: Final = 1
_I32: Final = 5
_I64: Final = 6
_BINARY: Final = 8
_LIST: Final = 9
_STRUCT: Final = 12


def _struct(*fields: tuple[int, tuple[int, bytes]]) -> bytes:
    data = b""
    last = 0
    for number, (kind, value) in fields:
        data += bytes([number - last << 4 | kind]) + value
        last = number
    return data + b"\0"


def _list(kind: int, values: Sequence[bytes]) -> tuple[int, bytes]:
    count = len(values)
    head = bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + _varint(count)
    return _LIST, head + b"".join(values)


def _i32(value: int) -> tuple[int, bytes]:
    return _I32, _zigzag(value)


def _i64(value: int) -> tuple[int, bytes]:
    return _I64, _zigzag(value)


def _text(value: str) -> tuple[int, bytes]:
    return _BINARY, _varint(len(value.encode())) + value.encode()


def _zigzag(value: int) -> bytes:
    return _varint(value << 1)  # nothing here is negative


def _varint(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])
