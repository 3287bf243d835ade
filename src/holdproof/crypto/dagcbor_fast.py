"""DAG-CBOR through `libipld` where it is installed: the contract of `dagcbor`, three to four times as fast.

`libipld` alone is not strict: it writes bytes that look like a CID as a link and -0.0 as 0.0, takes subclasses and
deep nesting, reads integers that are not minimal and 32-bit floats, and gives links back as bytes. So:

- A value is walked before it is written: exact types only, floats, bytes and depth left to the norm where in doubt.
- A block counts as read only if it has no byte pair of a link and encodes back to exactly itself.
- Whatever fails a guard, and every error, goes to `dagcbor`: it alone refuses and it alone says why.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from holdproof.crypto import dagcbor
from holdproof.crypto.dagcbor import MAX_DEPTH, MAX_SIZE, Value

_SCALARS = frozenset({str, int, bool, type(None)})
_NO_CONTAINER = bytes(byte for byte in range(256) if not 0x80 <= byte < 0xC0)
_ERRORS = (ValueError, TypeError, OverflowError, RecursionError)


def encode(value: Value, *, max_size: int = MAX_SIZE) -> bytes:
    """Return the block of a value, as `dagcbor.encode` gives it."""
    library = _library()
    if library is not None and _is_safe(value, 0):
        try:
            data = library[0](value)
        except _ERRORS:
            return dagcbor.encode(value, max_size=max_size)
        if not _has_link(data) and len(data) <= max_size:  # else bytes may have been taken for a link
            return data
    return dagcbor.encode(value, max_size=max_size)


def decode(data: bytes, *, max_size: int = MAX_SIZE) -> Value:
    """Return the value of a block, as `dagcbor.decode` gives it."""
    library = _library()
    if library is not None and not _has_link(data) and len(data) <= max_size:
        try:
            value = library[1](data)
            if library[0](value) == data and _is_shallow(data, value):
                return value
        except _ERRORS:
            pass
    return dagcbor.decode(data, max_size=max_size)


@cache
def _library() -> tuple[Callable[[Value], bytes], Callable[[bytes], Value]] | None:
    try:
        library: Any = import_module("libipld")
    except ImportError:  # absent, or built for another Python
        return None
    return library.encode_dag_cbor, library.decode_dag_cbor


def _has_link(data: bytes) -> bool:
    """Return whether the byte pair of a link occurs anywhere; looking for one byte first is five times as fast."""
    return 0xD8 in data and b"\xd8\x2a" in data


def _is_safe(value: Value, depth: int) -> bool:  # noqa: PLR0911 - plain loops: half the time of generators
    """Return whether `libipld` writes this value as the norm does; links among bytes are seen afterwards."""
    kind = type(value)
    if kind in _SCALARS or kind is bytes:
        return True
    if depth >= MAX_DEPTH:
        return False
    if kind is dict:
        for key, item in value.items():  # type: ignore[union-attr]
            if type(key) is not str or (type(item) not in _SCALARS and not _is_safe(item, depth + 1)):
                return False
        return True
    if kind is list:
        for item in value:  # type: ignore[union-attr]  # noqa: SIM110
            if type(item) not in _SCALARS and not _is_safe(item, depth + 1):
                return False
        return True
    return kind is float and value != 0.0


def _is_shallow(data: bytes, value: Value) -> bool:
    """Return whether a value that was read is nested no deeper than allowed: mostly there are too few heads for it."""
    return len(data.translate(None, _NO_CONTAINER)) <= MAX_DEPTH or _is_safe(value, 0)
