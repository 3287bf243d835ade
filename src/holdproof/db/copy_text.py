"""PostgreSQL's COPY text, read without a server: lines of tab-separated values, each in the text form of its type.

The values become what they are on SQLite: times ISO-8601 with microseconds and `Z`, JSON as text, truth 0 or 1, whole
numerics as ints.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from holdproof.db.tx import Row
from holdproof.errors import CorruptError

_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)
_MEANING: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_NULL: Final = b"\\N"


def load_time(data: bytes) -> str:
    """Read a timestamp with time zone, in UTC because the session is: 2026-01-31 12:00:00.5+00."""
    text = data.decode()
    return f"{text[:10]}T{text[11:19]}.{text[20:-3]:0<6}Z"


def load_number(data: bytes) -> int | float:
    """Read a numeric: an int if it is whole."""
    text = data.decode()
    return int(text) if text.lstrip("-").isdigit() else float(text)


def load_truth(data: bytes) -> int:
    """Read a boolean as 0 or 1."""
    return int(data == b"t")


def load_blob(data: bytes) -> bytes:
    """Read bytes in hex."""
    return bytes.fromhex(data[2:].decode())


_LOADERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "boolean": load_truth,
    "bytea": load_blob,
    "bigint": int,
    "smallint": int,
    "integer": int,
    "real": float,
    "double precision": float,
    "timestamp with time zone": load_time,
    "numeric": load_number,
}


def parse(chunks: Iterable[bytes], types: list[str]) -> Iterator[Row]:
    """Yield the rows of a table whose columns have these types; CorruptError for a line that is none."""
    loaders = [_LOADERS.get(name, bytes.decode) for name in types]
    for line in _lines(chunks):
        values = line.split(b"\t")
        if len(values) != len(loaders):
            raise CorruptError("a row of the copied table has another number of columns", columns=len(values))
        try:
            row = tuple(
                None if value == _NULL else load(_unescaped(value)) for load, value in zip(loaders, values, strict=True)
            )
        except ValueError as error:
            raise CorruptError(f"a value of the copied table is not of its column's type: {error}") from error
        yield row


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _unescaped(value: bytes) -> bytes:
    if b"\\" not in value:
        return value
    return _ESCAPE.sub(lambda match: _MEANING.get(match[1], match[1]), value)
