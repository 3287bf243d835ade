"""Protobuf as OTLP uses it for traces, read into the plain values that OTLP's JSON has; pure.

Rules:
- What is no protobuf, or nested deeper than `DEEP`, is FormatError; unknown fields are passed over.
- Ids come out as hex, other bytes as base64, enums and whole numbers as numbers.
- Nothing is read twice, so the work is bounded by the length of the bytes.
"""

import struct
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from holdproof.errors import FormatError

DEEP: Final = 64
_VARINT = 0
_FIXED64 = 1
_BYTES = 2
_FIXED32 = 5
_LONGEST: Final = 10


class Field(NamedTuple):
    """A field of a message: its name in JSON, how it is read, and whether there may be many."""

    name: str
    kind: str
    many: bool = False


_Message = dict[int, Field]
_ATTRIBUTES: Final = Field("attributes", "KeyValue", many=True)
MESSAGES: Final[dict[str, _Message]] = {
    "Request": {1: Field("resourceSpans", "ResourceSpans", many=True)},
    "ResourceSpans": {1: Field("resource", "Resource"), 2: Field("scopeSpans", "ScopeSpans", many=True)},
    "Resource": {1: _ATTRIBUTES},
    "ScopeSpans": {1: Field("scope", "Scope"), 2: Field("spans", "Span", many=True)},
    "Scope": {1: Field("name", "text"), 2: Field("version", "text"), 3: _ATTRIBUTES},
    "Span": {
        1: Field("traceId", "id"),
        2: Field("spanId", "id"),
        3: Field("traceState", "text"),
        4: Field("parentSpanId", "id"),
        5: Field("name", "text"),
        6: Field("kind", "int"),
        7: Field("startTimeUnixNano", "fixed"),
        8: Field("endTimeUnixNano", "fixed"),
        9: _ATTRIBUTES,
        10: Field("droppedAttributesCount", "int"),
        11: Field("events", "Event", many=True),
        12: Field("droppedEventsCount", "int"),
        13: Field("links", "Link", many=True),
        14: Field("droppedLinksCount", "int"),
        15: Field("status", "Status"),
    },
    "Event": {1: Field("timeUnixNano", "fixed"), 2: Field("name", "text"), 3: _ATTRIBUTES},
    "Link": {1: Field("traceId", "id"), 2: Field("spanId", "id"), 3: Field("traceState", "text"), 4: _ATTRIBUTES},
    "Status": {2: Field("message", "text"), 3: Field("code", "int")},
    "KeyValue": {1: Field("key", "text"), 2: Field("value", "AnyValue")},
    "AnyValue": {
        1: Field("stringValue", "text"),
        2: Field("boolValue", "bool"),
        3: Field("intValue", "int"),
        4: Field("doubleValue", "double"),
        5: Field("arrayValue", "ArrayValue"),
        6: Field("kvlistValue", "KeyValueList"),
        7: Field("bytesValue", "bytes"),
    },
    "ArrayValue": {1: Field("values", "AnyValue", many=True)},
    "KeyValueList": {1: Field("values", "KeyValue", many=True)},
}
_WIRES: Final = {"int": _VARINT, "bool": _VARINT, "fixed": _FIXED64, "double": _FIXED64}


def decode(data: bytes, message: str = "Request", depth: int = 0) -> dict[str, Any]:
    """Return the fields of a message by their names in JSON."""
    if depth > DEEP:
        raise FormatError(f"OTLP: values are nested deeper than {DEEP}")
    fields = MESSAGES[message]
    decoded = dict[str, Any]()
    for number, wire, raw in _fields(data):
        field = fields.get(number)
        # Unknown fields are newer than this code; a known one of the wrong wire type is treated alike.
        if field is None or wire != _WIRES.get(field.kind, _BYTES):
            continue
        value = _value(field.kind, raw, depth)
        if field.many:
            decoded.setdefault(field.name, []).append(value)
        else:
            decoded[field.name] = value
    return decoded


def _value(kind: str, raw: Any, depth: int) -> Any:
    read = _READERS.get(kind)
    return decode(raw, kind, depth + 1) if read is None else read(raw)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise FormatError("OTLP: a text is not UTF-8") from error


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "text": _text,
    "id": bytes.hex,
    "int": lambda raw: raw - (1 << 64) if raw >> 63 else raw,
    "bool": bool,
    "fixed": lambda raw: int.from_bytes(raw, "little"),
    "double": lambda raw: struct.unpack("<d", raw)[0],
    "bytes": lambda raw: b64encode(raw).decode(),
}


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and content of each field."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, wire, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise FormatError(f"OTLP: no protobuf: wire type {wire}")
        # Checked before slicing: Python would silently give fewer bytes.
        if size > len(data) - at:
            raise FormatError("OTLP: a field is longer than its message")
        yield tag >> 3, wire, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for n, byte in enumerate(data[at : at + _LONGEST]):
        value |= (byte & 0x7F) << (7 * n)
        # The high bit says that another byte follows.
        if byte < 0x80:
            return value & (2**64 - 1), at + n + 1
    raise FormatError("OTLP: a number has no end")


def encode_partial(rejected: int, message: str) -> bytes:
    """Return an ExportTraceServiceResponse that says how many spans were refused, and why."""
    # Field 1 is the count, field 2 the message, both inside field 1 of the response.
    text = message.encode()
    inner = b"\x08" + _number(rejected) + b"\x12" + _number(len(text)) + text
    return b"\x0a" + _number(len(inner)) + inner


def _number(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
