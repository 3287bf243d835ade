"""Records: one version of one object as strict DAG-CBOR.

A record is `{v, id, type, attributes, content, parent, children, version}`; keys of the tree are made of ids.

Rules:
- One object has one byte string; reading refuses every other that would mean the same.
- Records keep to the AT Protocol's data model, which has no floats and no integers beyond 2^53. What it lacks is tagged
  bytes: `{$float}` (8 bytes, big-endian), `{$floats}` (a list of two or more), `{$int}` (two's complement, shortest),
  and `{$tag}` for types that only others know.
- A key that begins with `$` is written with one more `$`, so no data passes for a tag.
- Text or bytes of more than 256 KiB as content are raw blocks, named by `{$text: [links]}` or `{$blob: [links]}`.
- Content and attributes of a subject are one envelope (see object_encryption.py) as content, `{$sealed}`, in pieces
  where it is long; attributes are empty then. Volatile fields are `{$sealed}` likewise.
- What changes all the time (`last_sync`, a vector) is a record of its own, `{v, id, meta}`, under `meta/<id>`: a
  heartbeat leaves the object's CID as it is.
- An id that is no tree key is `~` and base32 of its UTF-8; so is one that begins with `~`. One id has one key.
"""

import base64
import binascii
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from holdproof.content import blocks, encryption
from holdproof.crypto import cid as cids
from holdproof.crypto import dagcbor_fast
from holdproof.crypto.cid import CID
from holdproof.crypto.dagcbor import MAX_SIZE, Value, head
from holdproof.crypto.mst import Get
from holdproof.crypto.mst_node import MAX_KEY
from holdproof.errors import FormatError, InvalidInputError
from holdproof.model.memory import Tagged

OBJECT: Final = "object/"
META: Final = "meta/"
MAX_INT: Final = 2**53 - 1
PIECE: Final = 2**18

_PLAIN_PREFIX = re.compile(r"(?!~)[A-Za-z0-9_~.:-]+")
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_AFTER = "\x7f"
"""Sorts after every character of a key."""
_PLAIN = re.compile(r"(?!~|\.{1,2}$)[A-Za-z0-9_~.:-]+")
_TAG = re.compile(r"(?!floats?$|int$|text$|blob$|sealed$)[a-z][a-z0-9-]{0,30}")
_FIELDS = frozenset({"v", "id", "type", "attributes", "content", "parent", "children", "version"})
_FLOAT = struct.Struct(">d")
_MAX_DEPTH: Final = 100


class ObjectRecord(NamedTuple):
    """What a record says; `content` may still be `Pieces` or `Sealed`."""

    id: str
    type: str
    content: Any
    attributes: dict[str, Any]
    parent: str | None
    children: tuple[str, ...]
    version: int
    subject: str | None = None
    """Whose it is, by handle, where it was opened or is yet to be sealed; a block has it in its envelope."""


class Pieces(NamedTuple):
    """Long content, cut into raw blocks: `text`, `blob`, or `sealed`."""

    kind: str
    links: tuple[CID, ...]


class Sealed(NamedTuple):
    """What only the key of its subject opens."""

    envelope: bytes


# --- keys --------------------------------------------------------------------------------------------------------


def key_of(id: Any) -> str:
    """Return the record part of an object's tree key."""
    if not isinstance(id, str) or not id:
        raise InvalidInputError("an object's id is a text that is not empty", id=str(id)[:100])
    try:
        key = id if _PLAIN.fullmatch(id) else "~" + base64.b32encode(id.encode()).decode().rstrip("=").lower()
    except UnicodeEncodeError as error:
        raise InvalidInputError("an object's id is valid Unicode", id=ascii(id)[:100]) from error
    if len(OBJECT) + len(key) > MAX_KEY:
        raise InvalidInputError(f"an object's key has at most {MAX_KEY} bytes", id=id[:100])
    return key


def key_ranges(prefix: Any) -> list[tuple[str, str]]:
    """Return the ranges of keys, each from its start and before its end, whose ids begin with a prefix; no others do.

    Five bits make a letter of a key that is encoded, so that a prefix may end within one.
    """
    # Before it is encoded: no id is longer, and megabytes would take seconds.
    if not isinstance(prefix, str) or len(prefix) > MAX_KEY:
        raise InvalidInputError(f"a prefix is a text of at most {MAX_KEY} characters", prefix=str(prefix)[:100])
    if not prefix:
        return [("", _AFTER)]
    ranges = [(prefix, prefix + _AFTER)] if _PLAIN_PREFIX.fullmatch(prefix) else []
    try:
        data = prefix.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError("a prefix is valid Unicode", prefix=ascii(prefix)[:100]) from error
    whole, rest = divmod(8 * len(data), 5)
    text = base64.b32encode(data).decode()
    stem = "~" + text[:whole].lower()
    if rest == 0:
        return [*ranges, (stem, stem + _AFTER)]
    first = _BASE32.index(text[whole])
    letters = sorted(_BASE32[first : first + 2 ** (5 - rest)].lower())
    return [*ranges, *((stem + letter, stem + letter + _AFTER) for letter in letters)]


def id_of(key: str) -> str:
    """Return the id that a key stands for; FormatError where it is the key of none."""
    if not key.startswith("~"):
        return key
    text = key[1:].upper()
    try:
        id = base64.b32decode(text + "=" * (-len(text) % 8)).decode()
        # Base32 has several spellings of one text; only the one that we write counts.
        if key_of(id) == key:
            return id
    except (binascii.Error, UnicodeDecodeError, InvalidInputError):
        pass
    raise FormatError("not the key of an object", key=key[:100])


# --- records -----------------------------------------------------------------------------------------------------


def encode(record: ObjectRecord) -> dict[CID, bytes]:
    """Return the blocks of a record, its own last."""
    encoded_blocks: dict[CID, bytes] = {}
    content = _cut(record.content, encoded_blocks)
    # Put together by hand, in the order of DAG-CBOR: half the time of the codec, and a property test holds them equal.
    parts = (
        b"\xa8\x61v\x01\x62id",
        _encoded(record.id),
        b"\x64type",
        _encoded(record.type),
        b"\x66parent",
        _encoded(record.parent),
        b"\x67content",
        _encoded(lower(record.content) if content is None else content),
        b"\x67version",
        _encoded(record.version),
        b"\x68children",
        _encoded(list(record.children)),
        b"\x6aattributes",
        _encoded(lower(record.attributes)),
    )
    block = b"".join(parts)
    if len(block) > MAX_SIZE:
        raise InvalidInputError("no DAG-CBOR: larger than a block may be", size=len(block), limit=MAX_SIZE)
    encoded_blocks[cids.of(block)] = block
    return encoded_blocks


def _encoded(value: Value) -> bytes:
    """Return a field, as it stands in its record."""
    if type(value) is str:
        raw = _utf8(value)
        return head(3, len(raw)) + raw
    if value is None:
        return b"\xf6"
    if type(value) is int and 0 <= value < 2**64:
        return head(0, value)
    return b"\x80" if value == [] else dagcbor_fast.encode(value)


def decode(data: bytes) -> ObjectRecord:
    """Return a record from untrusted bytes."""
    fields = dagcbor_fast.decode(data)
    if not isinstance(fields, dict) or fields.keys() != _FIELDS or fields["v"] != 1:
        raise FormatError("record: not exactly the eight fields of version 1")
    id, kind, parent, children, version = (fields[name] for name in ("id", "type", "parent", "children", "version"))
    if not isinstance(id, str) or not isinstance(kind, str) or not isinstance(parent, str | None):
        raise FormatError("record: id, type or parent is no text")
    if not isinstance(children, list) or not all(isinstance(child, str) for child in children):
        raise FormatError("record: children are not a list of ids", id=id)
    if type(version) is not int or not 0 <= version <= MAX_INT:
        raise FormatError("record: a version that is no whole number", id=id)
    attributes = lift(fields["attributes"])
    if not isinstance(attributes, dict):
        raise FormatError("record: attributes are no map", id=id)
    content = _pieces(fields["content"]) or lift(fields["content"])
    if attributes and is_sealed(content):
        raise FormatError("record: attributes beside sealed content", id=id)
    return ObjectRecord(id, kind, content, attributes, parent, tuple(str(child) for child in children), version)


def encode_meta(id: str, meta: Mapping[str, Any] | Sealed) -> tuple[CID, bytes]:
    """Return the block of an object's volatile fields."""
    body: Value = {"$sealed": meta.envelope} if isinstance(meta, Sealed) else lower(dict(meta))
    block = dagcbor_fast.encode({"v": 1, "id": id, "meta": body})
    return cids.of(block), block


def decode_meta(data: bytes) -> tuple[str, dict[str, Any] | Sealed]:
    """Id and volatile fields, from untrusted bytes."""
    fields = dagcbor_fast.decode(data)
    if not isinstance(fields, dict) or fields.keys() != {"v", "id", "meta"} or fields["v"] != 1:
        raise FormatError("record: not exactly the three fields of volatile data")
    id = fields["id"]
    meta = _envelope(fields["meta"]) or lift(fields["meta"])
    if not isinstance(id, str) or not isinstance(meta, dict | Sealed):
        raise FormatError("record: volatile data without an id, or no map")
    return id, meta


def whole(record: ObjectRecord, get: Get) -> ObjectRecord:
    """Return the record with its content put together from its pieces, each hashed."""
    pieces = record.content
    if not isinstance(pieces, Pieces):
        return record
    data = b"".join([blocks.require(get, link) for link in pieces.links])
    if pieces.kind == "sealed":
        return record._replace(content=_envelope({"$sealed": data}))
    try:
        return record._replace(content=data.decode() if pieces.kind == "text" else data)
    except UnicodeDecodeError as error:
        raise FormatError("record: pieces of a text that are not UTF-8", id=record.id) from error


def is_sealed(content: Any) -> bool:
    """Return whether content is an envelope, whole or in pieces."""
    return isinstance(content, Sealed) or (isinstance(content, Pieces) and content.kind == "sealed")


def links(data: bytes) -> Iterator[CID]:
    """Yield every link in a dag-cbor block."""
    waiting: list[Value] = [dagcbor_fast.decode(data)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, CID):
            yield value
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _cut(content: Any, encoded_blocks: dict[CID, bytes]) -> Value:
    """Long content as links to its pieces, which are added to the blocks; None where it is short and in the open."""
    name = {str: "$text", bytes: "$blob", Sealed: "$sealed"}.get(type(content))
    if name is None or (name != "$sealed" and len(content) <= PIECE // 4):
        return None
    # Cut by bytes, not characters: a piece need not be valid UTF-8 by itself.
    data = _utf8(content) if isinstance(content, str) else content.envelope if name == "$sealed" else content
    if len(data) <= PIECE:
        return {name: data} if name == "$sealed" else None
    cut = [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
    named = [cids.of_raw(piece) for piece in cut]
    encoded_blocks.update(zip(named, cut, strict=True))
    return {name: list(named)}


def _pieces(content: Value) -> Pieces | Sealed | None:
    if not isinstance(content, dict) or len(content) != 1:
        return None
    [(key, named)] = content.items()
    if key not in ("$text", "$blob", "$sealed"):
        return None
    if key == "$sealed" and isinstance(named, bytes):
        return _envelope(content)
    if not isinstance(named, list) or len(named) < 2:
        raise FormatError("record: content in pieces without a list of them")
    links = tuple(link for link in named if isinstance(link, CID) and link.raw.startswith(cids.RAW_PREFIX))
    if len(links) != len(named):
        raise FormatError("record: a piece of content that is no link to raw bytes")
    return Pieces(key[1:], links)


def _envelope(value: Value) -> Sealed | None:
    """Return an envelope, None where a value is none."""
    if not isinstance(value, dict) or value.keys() != {"$sealed"}:
        return None
    data = value["$sealed"]
    if not isinstance(data, bytes) or not encryption.is_sealed(data):
        raise FormatError("record: sealed, but no envelope")
    return Sealed(data)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError("no DAG-CBOR: a lone surrogate in a text") from error


# --- values ------------------------------------------------------------------------------------------------------


def lower(value: Any, depth: int = 0) -> Value:
    """Return a value within the AT Protocol's data model; InvalidInputError where a type has no place in a record."""
    kind = type(value)
    if depth > _MAX_DEPTH:
        raise InvalidInputError("a record is not nested so deeply", limit=_MAX_DEPTH)
    if kind is str or value is None or kind is bool or kind is bytes or kind is CID:
        lowered: Value = value
    elif kind is int:
        lowered = value if -MAX_INT <= value <= MAX_INT else {"$int": _int_bytes(value)}
    elif kind is float:
        lowered = {"$float": _FLOAT.pack(value)}
    elif kind is list:
        # Vectors are common in attributes: eight bytes a number instead of a tagged map each.
        if len(value) > 1 and all(type(item) is float for item in value):
            lowered = {"$floats": struct.pack(f">{len(value)}d", *value)}
        else:
            lowered = [lower(item, depth + 1) for item in value]
    elif kind is dict:
        lowered = {_escape(key): lower(item, depth + 1) for key, item in value.items()}
    elif kind is Tagged:
        if not _TAG.fullmatch(value.tag) or type(value.data) is not bytes:
            raise InvalidInputError("a tag is a short word of its own, its data bytes", tag=str(value.tag)[:100])
        lowered = {f"${value.tag}": value.data}
    else:
        raise InvalidInputError("a record has no place for a value of this type", type=kind.__name__)
    return lowered


def lift(value: Value) -> Any:
    """Return the value that `lower` was given; FormatError for what it never gives."""
    if isinstance(value, list):
        items = [lift(item) for item in value]
        if len(items) > 1 and all(type(item) is float for item in items):
            raise FormatError("record: floats that are not packed")
        return items
    if isinstance(value, dict):
        if len(value) == 1:
            [(key, item)] = value.items()
            if key.startswith("$") and not key.startswith("$$"):
                return _untag(key[1:], item)
        return {_unescape(key): lift(item) for key, item in value.items()}
    if type(value) is float or (type(value) is int and not -MAX_INT <= value <= MAX_INT):
        raise FormatError("record: a float, or an integer beyond 2^53, that is not tagged")
    return value


def _untag(tag: str, data: Value) -> Any:
    if isinstance(data, bytes):
        if tag in _UNTAG:
            return _UNTAG[tag](data)
        if _TAG.fullmatch(tag):
            return Tagged(tag, data)
    raise FormatError("record: a tag without its bytes, or one that is reserved", tag=tag[:100])


def _int_bytes(value: int) -> bytes:
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)


def _read_int(data: bytes) -> int:
    value = int.from_bytes(data, "big", signed=True)
    if -MAX_INT <= value <= MAX_INT or _int_bytes(value) != data:
        raise FormatError("record: a tagged integer that needs no tag, or is not in its shortest form")
    return value


def _read_float(data: bytes) -> float:
    if len(data) != 8:
        raise FormatError("record: a float that has not eight bytes")
    value: float = _FLOAT.unpack(data)[0]
    return value


def _read_floats(data: bytes) -> list[float]:
    if len(data) % 8 or len(data) < 16:
        raise FormatError("record: packed floats that have not eight bytes each, or are fewer than two")
    return list(struct.unpack(f">{len(data) // 8}d", data))


_UNTAG: Final[dict[str, Callable[[bytes], Any]]] = {"float": _read_float, "floats": _read_floats, "int": _read_int}


def _escape(key: Any) -> str:
    if type(key) is not str:
        raise InvalidInputError("no record: a map key that is not a text", type=type(key).__name__)
    return f"${key}" if key.startswith("$") else key


def _unescape(key: str) -> str:
    if not key.startswith("$"):
        return key
    if not key.startswith("$$"):
        raise FormatError("record: a tag beside other keys", key=key[:100])
    return key[1:]
