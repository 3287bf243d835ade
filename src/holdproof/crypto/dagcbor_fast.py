"""DAG-CBOR through `libipld` where it is installed: same results as `dagcbor`, three to four times as fast.

`libipld` alone is not strict: it writes bytes that look like a CID as a link and -0.0 as 0.0, takes subclasses and
deep nesting, reads integers that are not minimal and 32-bit floats, and gives links back as bytes. So:

- A value is checked before it is encoded: exact types only; doubtful floats, bytes and depths go to `dagcbor`.
- A decoded block is accepted only if it has no byte pair of a link and encodes back to exactly itself.
- Whatever fails a check, and every error, goes to `dagcbor`: it alone refuses input and explains why.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from holdproof.crypto import dagcbor
from holdproof.crypto.dagcbor import MAX_DEPTH, MAX_SIZE, Value

_SCALARS = frozenset({str, int, bool, type(None)})
# Every byte that cannot be the head of a list or a map.
_NO_CONTAINER = bytes(byte for byte in range(256) if not 0x80 <= byte < 0xC0)
_ERRORS = (ValueError, TypeError, OverflowError, RecursionError)


def encode(value: Value, *, max_size: int = MAX_SIZE) -> bytes:
    """Encode a value; result and errors are those of `dagcbor.encode`."""
    library = _library()
    if library is not None and _is_safe(value, 0):
        library_encode, _ = library
        try:
            data = library_encode(value)
        except _ERRORS:
            return dagcbor.encode(value, max_size=max_size)
        # libipld writes bytes that look like a CID as a link; without the link's byte pair it cannot have done so.
        if not _has_link(data) and len(data) <= max_size:
            return data
    return dagcbor.encode(value, max_size=max_size)


def decode(data: bytes, *, max_size: int = MAX_SIZE) -> Value:
    """Decode a block; result and errors are those of `dagcbor.decode`."""
    library = _library()
    if library is not None and not _has_link(data) and len(data) <= max_size:
        library_encode, library_decode = library
        try:
            value = library_decode(data)
            # The round trip rejects every encoding that is not canonical; only depth is left to check.
            if library_encode(value) == data and _is_shallow(data, value):
                return value
        except _ERRORS:
            pass
    return dagcbor.decode(data, max_size=max_size)


@cache
def _library() -> tuple[Callable[[Value], bytes], Callable[[bytes], Value]] | None:
    """Return encoder and decoder of `libipld`; None where it is not installed."""
    try:
        libipld: Any = import_module("libipld")
    except ImportError:  # absent, or built for another Python
        return None
    return libipld.encode_dag_cbor, libipld.decode_dag_cbor


def _has_link(data: bytes) -> bool:
    """Return whether the byte pair of a link (tag 42) occurs anywhere."""
    # Looking for one byte first is five times as fast, and most blocks do not have it.
    return 0xD8 in data and b"\xd8\x2a" in data


def _is_safe(value: Value, depth: int) -> bool:  # noqa: PLR0911 - plain loops: half the time of generators
    """Return whether `libipld` encodes this value as `dagcbor` does, apart from bytes that look like a link."""
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
    # libipld drops the sign of -0.0; CIDs, subclasses and other types are for `dagcbor` to encode or refuse.
    return kind is float and value != 0.0


def _is_shallow(data: bytes, value: Value) -> bool:
    """Return whether a decoded value is nested no deeper than allowed."""
    # Most blocks have fewer bytes that could be a container's head than the allowed depth: no walk needed.
    return len(data.translate(None, _NO_CONTAINER)) <= MAX_DEPTH or _is_safe(value, 0)
