"""Strict DAG-CBOR encoder and decoder: one value has one byte string. This is the reference for `dagcbor_fast`.

- Values are None, bool, int (-2^64 to 2^64 - 1), finite float, str, bytes, CID, list, and dict with str keys:
  exactly these types; a subclass, tuple or bytearray is refused, never coerced.
- Integers and lengths take their shortest form; nothing has an indefinite length.
- Map keys are unique and sorted: shorter first, then by bytes.
- Floats are 64 bits wide, never NaN or infinite; -0.0 is kept and is not 0.0.
- Text is valid UTF-8. The only tag is 42, a link: a byte string of 0x00 and a CID.
- Nesting is at most 128 deep, a block at most `max_size` bytes (1 MiB by default), parsed to its last byte.
"""

import struct
from functools import lru_cache
from math import isfinite
from typing import TypeAlias

from holdproof.crypto import cid as cids
from holdproof.crypto.cid import CID
from holdproof.errors import FormatError, InvalidInputError

Value: TypeAlias = "bool | int | float | str | bytes | CID | list[Value] | dict[str, Value] | None"

MAX_DEPTH = 128
MAX_SIZE = 2**20

# The eight major types of CBOR: the upper three bits of an item's first byte.
_UINT, _NINT, _BYTES, _TEXT, _LIST, _MAP, _LINK, _SIMPLE = range(8)
_FALSE = 0xF4
_TRUE = 0xF5
_NULL = 0xF6
_FLOAT64 = 0xFB
_TAG_42 = b"\xd8\x2a"
_PLAIN_LINKS = (b"\x58\x25\x00" + cids.CBOR_PREFIX, b"\x58\x25\x00" + cids.RAW_PREFIX)
_FLOAT = struct.Struct(">Bd")
_WIDTHS = {24: (1, 24), 25: (2, 2**8), 26: (4, 2**16), 27: (8, 2**32)}  # bytes, least number that needs them
_SMALL = [[bytes([major << 5 | number]) for number in range(24)] for major in range(8)]


def encode(value: Value, *, max_size: int = MAX_SIZE) -> bytes:
    """Encode a value; InvalidInputError where DAG-CBOR cannot represent it or it is too large."""
    parts: list[bytes] = []
    try:
        _write(value, parts, 0)
    except UnicodeEncodeError as error:
        raise InvalidInputError("no DAG-CBOR: a lone surrogate in a text") from error
    data = b"".join(parts)
    if len(data) > max_size:
        raise InvalidInputError("no DAG-CBOR: larger than a block may be", size=len(data), limit=max_size)
    return data


def decode(data: bytes, *, max_size: int = MAX_SIZE) -> Value:
    """Decode a block of untrusted bytes; FormatError unless it is the canonical encoding of a value."""
    if len(data) > max_size:
        raise FormatError("DAG-CBOR: larger than a block may be", size=len(data), limit=max_size)
    try:
        value, end = _read(data, 0, 0)
    except IndexError as error:  # a first byte past the end: checked by Python, not once more at each place
        raise FormatError("DAG-CBOR: cut short", size=len(data)) from error
    except UnicodeDecodeError as error:
        raise FormatError("DAG-CBOR: a text that is not UTF-8", size=len(data)) from error
    if end != len(data):
        raise FormatError("DAG-CBOR: bytes after the value", size=len(data), end=end)
    return value


def head(major: int, number: int) -> bytes:
    """Return the shortest head of a major type, for formats that assemble blocks themselves."""
    if number < 24:
        return _SMALL[major][number]
    if number < 2**8:
        return bytes((major << 5 | 24, number))
    if number < 2**16:
        return (major << 5 | 25).to_bytes(1, "big") + number.to_bytes(2, "big")
    if number < 2**32:
        return (major << 5 | 26).to_bytes(1, "big") + number.to_bytes(4, "big")
    return (major << 5 | 27).to_bytes(1, "big") + number.to_bytes(8, "big")


def link(cid: CID) -> bytes:
    """Encode a CID as a link (tag 42)."""
    return _TAG_42 + head(_BYTES, len(cid.raw) + 1) + b"\x00" + cid.raw


def _write(value: Value, parts: list[bytes], depth: int) -> None:
    """Append the encoding of a value to `parts`; the most frequent types are checked first."""
    kind = type(value)
    if kind is str:
        text = value.encode()  # type: ignore[union-attr]
        parts.append(head(_TEXT, len(text)) + text)
    elif kind is dict:
        _write_map(value, parts, depth + 1)  # type: ignore[arg-type]
    elif kind is int:
        parts.append(_integer(value))  # type: ignore[arg-type]
    elif value is None:
        parts.append(b"\xf6")
    elif kind is bool:
        parts.append(b"\xf5" if value else b"\xf4")
    elif kind is list:
        _check_depth(depth + 1)
        parts.append(head(_LIST, len(value)))  # type: ignore[arg-type]
        for item in value:  # type: ignore[union-attr]
            _write(item, parts, depth + 1)
    elif kind is bytes:
        parts.append(head(_BYTES, len(value)) + value)  # type: ignore[arg-type, operator]
    elif kind is CID:
        parts.append(link(value))  # type: ignore[arg-type]
    elif kind is float and isfinite(value):  # type: ignore[arg-type]
        parts.append(_FLOAT.pack(_FLOAT64, value))
    else:
        raise InvalidInputError("no DAG-CBOR: a value of another kind, or not finite", kind=kind.__name__)


def _write_map(value: dict[str, Value], parts: list[bytes], depth: int) -> None:
    _check_depth(depth)
    parts.append(head(_MAP, len(value)))
    for key, item in sorted([(_key(key), item) for key, item in value.items()], key=_encoded_key):
        parts.append(key)
        _write(item, parts, depth)


def _encoded_key(pair: tuple[bytes, Value]) -> bytes:
    key, _ = pair
    return key


@lru_cache(4096)
def _key(key: str) -> bytes:
    """Encode a key, head included."""
    # The head starts with the length: compared as bytes, encoded keys are in DAG-CBOR's order, shorter first.
    if type(key) is not str:
        raise InvalidInputError("no DAG-CBOR: a map key that is not a text", kind=type(key).__name__)
    text = key.encode()
    return head(_TEXT, len(text)) + text


def _integer(value: int) -> bytes:
    if 0 <= value < 2**64:
        return head(_UINT, value)
    if -(2**64) <= value < 0:
        return head(_NINT, -1 - value)
    raise InvalidInputError("no DAG-CBOR: an integer of more than 64 bits", bits=value.bit_length())


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InvalidInputError("no DAG-CBOR: nested too deeply", limit=MAX_DEPTH)


def _read(data: bytes, at: int, depth: int) -> tuple[Value, int]:  # noqa: PLR0911 - one return for each major type
    """Decode the item at an offset; returns it and the offset after it."""
    first = data[at]
    at += 1
    major = first >> 5
    number = first & 0x1F
    if major == _SIMPLE:
        return _read_simple(data, at, first)
    if number > 23:
        number, at = _argument(data, at, number)
    if major == _TEXT:
        end = at + number
        if end > len(data):
            raise FormatError("DAG-CBOR: cut short", at=at)
        return data[at:end].decode(), end
    if major == _MAP:
        return _read_map(data, at, number, depth + 1)
    if major == _UINT:
        return number, at
    if major == _LIST:
        _check_room(data, at, number, depth + 1)
        items: list[Value] = []
        for _ in range(number):
            first = data[at]
            if first < 24:  # a small integer: no call
                items.append(first)
                at += 1
                continue
            item, at = _read(data, at, depth + 1)
            items.append(item)
        return items, at
    if major == _BYTES:
        end = at + number
        if end > len(data):
            raise FormatError("DAG-CBOR: cut short", at=at)
        return data[at:end], end
    if major == _NINT:
        return -1 - number, at
    return _read_link(data, at, number)


def _read_map(data: bytes, at: int, count: int, depth: int) -> tuple[Value, int]:
    _check_room(data, at, 2 * count, depth)
    members: dict[str, Value] = {}
    last = b""
    for _ in range(count):
        start = at
        number = data[at] - 0x60
        at += 1
        if not 0 <= number < 24:
            if not 24 <= number < 32:
                raise FormatError("DAG-CBOR: a map key that is not a text", at=start)
            number, at = _argument(data, at, number)
        end = at + number
        encoded = data[start:end]
        # Encoded keys compare in DAG-CBOR's order; equal ones are refused by the same test.
        if encoded <= last:
            raise FormatError("DAG-CBOR: map keys out of order, or twice the same", at=start)
        last = encoded
        key = data[at:end].decode()
        number = data[end] - 0x60
        if 0 <= number < 24:  # a short text, by far the most common: read without another call
            at = end + 1 + number
            members[key] = data[end + 1 : at].decode()
        elif number < 24 - 0x60:  # a small integer
            members[key] = number + 0x60
            at = end + 1
        else:
            members[key], at = _read(data, end, depth)
    # Slices past the end are silently short: one test here instead of one per key and text.
    if at > len(data):
        raise FormatError("DAG-CBOR: cut short", at=at)
    return members, at


def _read_simple(data: bytes, at: int, first: int) -> tuple[Value, int]:
    if first == _NULL:
        return None, at
    if first in (_TRUE, _FALSE):
        return first == _TRUE, at
    if first != _FLOAT64:
        raise FormatError("DAG-CBOR: a float that is not 64 bits wide, or another simple value", at=at - 1)
    if at + 8 > len(data):
        raise FormatError("DAG-CBOR: cut short", at=at)
    value: float = _FLOAT.unpack_from(data, at - 1)[1]
    if not isfinite(value):
        raise FormatError("DAG-CBOR: a float that is not finite", at=at - 1)
    return value, at + 8


def _read_link(data: bytes, at: int, tag: int) -> tuple[CID, int]:
    if tag != 42:
        raise FormatError("DAG-CBOR: a tag other than 42", at=at, tag=tag)
    end = at + 3 + cids.PLAIN_LENGTH
    if data.startswith(_PLAIN_LINKS, at) and end <= len(data):  # the usual kinds of CID: no parsing
        return CID(data[at + 3 : end]), end
    # Checked before reading: a tag here would recurse, however deep the tags nest.
    if data[at] >> 5 != _BYTES:
        raise FormatError("DAG-CBOR: a link that is not a byte string", at=at)
    raw, end = _read(data, at, MAX_DEPTH)
    if raw[:1] != b"\x00":  # type: ignore[index]
        raise FormatError("DAG-CBOR: a link that does not begin with 0x00", at=at)
    return cids.parse(raw[1:]), end  # type: ignore[index, arg-type]


def _argument(data: bytes, at: int, width: int) -> tuple[int, int]:
    """Decode the number that follows a head of more than one byte; returns it and the offset after it."""
    if width == 24 and (number := data[at]) > 23:
        return number, at + 1
    if width not in _WIDTHS:
        raise FormatError("DAG-CBOR: an indefinite or reserved length", at=at)
    length, least = _WIDTHS[width]
    end = at + length
    if end > len(data):
        raise FormatError("DAG-CBOR: cut short", at=at)
    number = int.from_bytes(data[at:end], "big")
    if number < least:
        raise FormatError("DAG-CBOR: a number not in its shortest form", at=at)
    return number, end


def _check_room(data: bytes, at: int, items: int, depth: int) -> None:
    """Refuse nesting that is too deep, and counts that would make a loop longer than the data."""
    if depth > MAX_DEPTH:
        raise FormatError("DAG-CBOR: nested too deeply", at=at, limit=MAX_DEPTH)
    if items > len(data) - at:
        raise FormatError("DAG-CBOR: more items announced than there are bytes", at=at, items=items)
