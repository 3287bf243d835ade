"""Nodes of the Merkle Search Tree, as the AT Protocol repository format (version 3) lays them out.

- A key is `collection/record`: two parts of `A-Z a-z 0-9 _ ~ . : -`, one slash, at most 1,024 bytes.
- The layer of a key is the number of leading zero bits of its SHA-256, halved: a fan-out of four.
- A node holds keys of one layer in ascending order, a value each, and a subtree (or none) before, between and after
  them; subtrees belong to the layer below. It is `{l: link|null, e: [{p, k, v, t}]}`: `p` bytes are shared with the
  key before, as many as possible, `k` is the rest.
- A value is a plain CID (dag-cbor or raw), a subtree a dag-cbor one.
- A node without keys only hands down to the layer below; with nothing at all it is the empty tree.

Nodes are most of what a loading tree reads, so they are parsed and written by their fixed layout instead of through the
general codec; a property test holds the two equal.
"""

import re
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from holdfast.crypto import cid as cids
from holdfast.crypto.cid import CID
from holdfast.crypto.dagcbor import MAX_SIZE, head
from holdfast.errors import FormatError, InvalidInputError

MAX_KEY = 1024

_PATH = rb"[A-Za-z0-9_~.:-]+/[A-Za-z0-9_~.:-]+"
_KEY = re.compile(_PATH)
_KEYS = re.compile(_PATH + rb"(?:\n" + _PATH + rb")*")
_ENTRY = b"\xa4\x61k"
_NO_CHILD, _CHILD = b"\x61t\xf6\x61v\xd8\x2a\x58\x25\x00", b"\x61t\xd8\x2a\x58\x25\x00"
_VALUE = b"\x61v\xd8\x2a\x58\x25\x00"
_NO_LEFT, _LEFT = b"\x61l\xf6", b"\x61l\xd8\x2a\x58\x25\x00"
_SUBTREE = rb"(?:\xf6|\xd8\x2a\x58\x25\x00(\x01\x71\x12\x20.{32}))"
_SHARED = rb"\x61p([\x00-\x17]|\x18[\x18-\xff]|\x19[\x01-\x04].)"
_TAIL = re.compile(
    _SHARED + rb"\x61t" + _SUBTREE + rb"\x61v\xd8\x2a\x58\x25\x00(\x01[\x71\x55]\x12\x20.{32})", re.DOTALL
)
_CLOSE = re.compile(rb"\x61l" + _SUBTREE, re.DOTALL)


class Node(NamedTuple):
    """Keys, the value of each, and one subtree more than there are keys: before, between and after them."""

    keys: tuple[str, ...]
    values: tuple[CID, ...]
    children: tuple[CID | None, ...]
    layer: int | None
    """The layer of the keys; None where there is no key."""


EMPTY = Node((), (), (None,), None)


def check_key(key: str) -> bytes:
    """The bytes of a valid key; InvalidInputError for any other."""
    raw = key.encode("utf-8", "replace")
    if len(raw) > MAX_KEY or not _KEY.fullmatch(raw):
        raise InvalidInputError("a tree key is collection/record, in letters, digits and _~.:-", key=key[:100])
    return raw


def layer_of(key: str) -> int:
    """How high above the lowest layer a key stands."""
    return _zeros(sha256(key.encode()).digest())


def shared_prefix(left: bytes, right: bytes) -> int:
    """How many bytes two keys begin with in common."""
    size = min(len(left), len(right))
    differing = int.from_bytes(left[:size], "big") ^ int.from_bytes(right[:size], "big")
    return size - (differing.bit_length() + 7) // 8


def encode(node: Node) -> bytes:
    """The block of a node."""
    keys, values, children, _ = node
    parts = [b"\xa2\x61e", head(4, len(keys))]
    last = ""
    for at, key in enumerate(keys):
        child = children[at + 1]
        parts.append(_entry_head(last, key))
        parts += (_NO_CHILD, values[at].raw) if child is None else (_CHILD, child.raw, _VALUE, values[at].raw)
        last = key
    first = children[0]
    parts += (_NO_LEFT,) if first is None else (_LEFT, first.raw)
    return b"".join(parts)


@lru_cache(2**14)
def _entry_head(last: str, key: str) -> bytes:
    """An entry up to its subtree; remembered, because an update rewrites whole nodes for one changed link."""
    raw = key.encode()
    shared = shared_prefix(last.encode(), raw)
    return b"".join((_ENTRY, head(2, len(raw) - shared), raw[shared:], b"\x61p", head(0, shared)))


def parse(data: bytes) -> Node:
    """A node from untrusted bytes; FormatError where it is not the one encoding of a well-formed one."""
    if data[:3] != b"\xa2\x61e" or len(data) > MAX_SIZE:
        raise FormatError("tree node: not one, or too large", size=len(data))
    keys: list[bytes] = []
    values: list[bytes] = []
    children: list[bytes | None] = [None]
    try:
        at = _parse_entries(data, keys, values, children)
    except IndexError as error:
        raise FormatError("tree node: cut short", size=len(data)) from error
    end = _CLOSE.match(data, at)
    if end is None or end.end() != len(data):
        raise FormatError("tree node: malformed, or bytes after its end", at=at)
    children[0] = end[1]
    subtrees = tuple([None if raw is None else CID(raw) for raw in children])
    texts, layer = _check_keys(keys)
    return Node(texts, tuple(cids.trusted(values)), subtrees, layer)


def _parse_entries(data: bytes, keys: list[bytes], values: list[bytes], children: list[bytes | None]) -> int:
    """Read the entries into the lists; where they end."""
    count, at = _head(data, 3, 0x80)
    last = b""
    match = _TAIL.match
    for _ in range(count):
        size = data[at + 3] - 0x40
        start = at + 4
        if not 0 <= size < 24:
            size, start = _head(data, at + 3, 0x40)
        end = start + size
        tail = match(data, end)
        if tail is None or data[at : at + 3] != _ENTRY:
            raise FormatError("tree node: a malformed entry", at=at)
        prefix, child, value = tail.groups()
        shared = prefix[0] if len(prefix) == 1 else int.from_bytes(prefix[1:], "big")
        # to share all it can with the last key and yet be another is what makes it the greater one, too
        if shared > len(last) or size == 0 or (shared < len(last) and data[start] <= last[shared]):
            raise FormatError("tree node: keys out of order, or a prefix not shared", at=at)
        last = last[:shared] + data[start:end]
        keys.append(last)
        values.append(value)
        children.append(child)
        at = tail.end()
    return at


def _zeros(digest: bytes) -> int:
    """Leading zero bits, in pairs."""
    return 0 if digest[0] > 0x3F else (256 - int.from_bytes(digest, "big").bit_length()) // 2


def _check_keys(keys: list[bytes]) -> tuple[tuple[str, ...], int | None]:
    """Texts and layer of a node's keys, if all are keys of one layer; looked at together, which is faster."""
    if not keys:
        return (), None
    lines = b"\n".join(keys)
    if not _KEYS.fullmatch(lines) or (len(lines) > MAX_KEY and max(map(len, keys)) > MAX_KEY):
        raise FormatError("tree node: a key that is not collection/record", keys=len(keys))
    digests = [sha256(key).digest() for key in keys]
    layer = _zeros(min(digests))
    if layer and layer != _zeros(max(digests)):  # the smaller the digest, the more zeros
        raise FormatError("tree node: keys of several layers", keys=len(keys))
    return tuple(lines.decode("ascii").split("\n")), layer


def _head(data: bytes, at: int, major: int) -> tuple[int, int]:
    """The number of a head of a major type, in its shortest form and below 2^16, and where it ends."""
    number = data[at] - major
    if 0 <= number < 24:
        return number, at + 1
    if number == 24 and data[at + 1] > 23:
        return data[at + 1], at + 2
    if number == 25 and data[at + 1] > 0:
        return data[at + 1] << 8 | data[at + 2], at + 3
    raise FormatError("tree node: a malformed length", at=at)
