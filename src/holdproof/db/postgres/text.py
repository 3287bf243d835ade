"""PostgreSQL's text formats, both ways, so that rows are the same tuples as on SQLite.

Times become ISO-8601 with microseconds and `Z`, JSON stays text, truth is 0 or 1, whole numerics are ints.
"""

from collections.abc import Callable
from typing import Any

from holdproof.db.copy_text import load_blob, load_number, load_time, load_truth
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


# By PostgreSQL's type number (pg_type.oid).
_LOADERS: dict[int, Callable[[bytes], Any]] = {
    16: load_truth,
    17: load_blob,
    20: int,
    21: int,
    23: int,
    26: int,
    700: float,
    701: float,
    1184: load_time,
    1700: load_number,
}


def loader(oid: int) -> Callable[[bytes], Any]:
    """Return the function that reads a column's type; types without one of their own come as text."""
    return _LOADERS.get(oid, bytes.decode)
