"""PostgreSQL's text formats, both ways, so that rows are the same tuples as on SQLite.

Times become ISO-8601 with microseconds and `Z`, JSON stays text, truth is 0 or 1, whole numerics are ints.
"""

from collections.abc import Callable
from typing import Any

from holdproof.errors import InvalidInputError

Value = bytes | None


def dump(name: str, value: Any) -> tuple[Value, int]:
    """Return a parameter as bytes and their format (0 text, 1 binary); InvalidInputError if no column can store it."""
    if value is None:
        return None, 0
    kind = type(value)
    if kind is str:
        try:
            data = value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInputError(f"{name} is not valid Unicode: {error.reason}", parameter=name) from error
        if b"\0" in data:
            raise InvalidInputError(f"{name} contains a NUL character, which PostgreSQL cannot store", parameter=name)
        return data, 0
    if kind is int or kind is float:
        return repr(value).encode(), 0
    if kind is bool:
        return (b"1" if value else b"0"), 0
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value), 1
    if isinstance(value, str | int | float):  # an enum, or a number type of another library
        plain = next(base for base in (str, int, float) if isinstance(value, base))
        return dump(name, plain.__str__(value) if plain is str else plain(value))
    raise InvalidInputError(f"{name} has type {kind.__name__}, which no column can store", parameter=name)


def _time(data: bytes) -> str:
    text = data.decode()  # 2026-01-31 12:00:00.5+00, in UTC because the session is
    return f"{text[:10]}T{text[11:19]}.{text[20:-3]:0<6}Z"


def _number(data: bytes) -> int | float:
    text = data.decode()
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _truth(data: bytes) -> int:
    return int(data == b"t")


def _blob(data: bytes) -> bytes:
    return bytes.fromhex(data[2:].decode())


# By PostgreSQL's type number (pg_type.oid).
_LOADERS: dict[int, Callable[[bytes], Any]] = {
    16: _truth,
    17: _blob,
    20: int,
    21: int,
    23: int,
    26: int,
    700: float,
    701: float,
    1184: _time,
    1700: _number,
}


def loader(oid: int) -> Callable[[bytes], Any]:
    """Return the function that reads a column's type; types without one of their own come as text."""
    return _LOADERS.get(oid, bytes.decode)
