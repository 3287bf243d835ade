"""Nodes of the Merkle Search Tree, as the AT Protocol repository format (version 3) lays them out.

- A key is `collection/record`: two parts of `A-Z a-z 0-9 _ ~ . : -`, one slash, at most 1,024 bytes.
- The layer of a key is the number of leading zero bits of its SHA-256, halved: a fan-out of four.
- A node has keys of one layer in ascending order, a value each, and a subtree (or none) before, between and after
  them; subtrees belong to the layer below. It is `{l: link|null, e: [{p, k, v, t}]}`: `p` bytes are shared with the
  key before, as many as possible, `k` is the rest.
- A value is a plain CID (dag-cbor or raw), a subtree a dag-cbor one.
- A node without keys only leads to the layer below; with nothing at all it is the empty tree.

Reading a tree is mostly parsing nodes, so they are parsed and encoded by their fixed layout instead of through the
general codec; a property test compares the two.
"""

import re
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple, TypeAlias

from holdproof.crypto import cid as cids
from holdproof.crypto.cid import CID
from holdproof.crypto.dagcbor import MAX_SIZE, head
from holdproof.errors import FormatError, InvalidInputError

MAX_KEY = 1024

_PATH = rb"[A-Za-z0-9_~.:-]+/[A-Za-z0-9_~.:-]+"
_KEY = re.compile(_PATH)
_KEYS = re.compile(_PATH + rb"(?:\n" + _PATH + rb")*")
# The fixed parts of a node's DAG-CBOR: map heads, one-letter keys, null, and the head of a link (tag 42, 37 bytes).
_START = b"\xa2\x61e"
_NO_ENTRY = b"\xa2\x61e\x80"
_ENTRY = b"\xa4\x61k"
_NO_CHILD = b"\x61t\xf6\x61v\xd8\x2a\x58\x25\x00"
_CHILD = b"\x61t\xd8\x2a\x58\x25\x00"
_VALUE = b"\x61v\xd8\x2a\x58\x25\x00"
_NO_FIRST = b"\x61l\xf6"
_FIRST = b"\x61l\xd8\x2a\x58\x25\x00"
_SUBTREE = rb"(?:\xf6|\xd8\x2a\x58\x25\x00(\x01\x71\x12\x20.{32}))"
_NUMBER = rb"([\x00-\x17]|\x18.|\x19..)"
# No byte of a number can be part of a key, so an entry matches in one way only and the expression cannot backtrack.
_ENTRIES = re.compile(
    rb"\xa4\x61k([\x41-\x57]|\x58.|\x59..)([A-Za-z0-9_~.:/-]+)\x61p" + _NUMBER + rb"\x61t" + _SUBTREE
    + rb"\x61v\xd8\x2a\x58\x25\x00(\x01[\x71\x55]\x12\x20.{32})",
    re.DOTALL,
)  # fmt: skip
_CLOSE = re.compile(rb"\x61l" + _SUBTREE, re.DOTALL)
_HEADS = [head(2, size) for size in range(MAX_KEY + 1)]
_NUMBERS = {head(0, number): number for number in range(MAX_KEY + 1)}


class Node(NamedTuple):
    """Keys, the value of each, and one subtree more than there are keys: before, between and after them."""

    keys: tuple[str, ...]
    values: tuple[CID, ...]
    children: tuple[CID | None, ...]
    layer: int | None
    """The layer of the keys; None where there is no key."""


EMPTY = Node((), (), (None,), None)


def check_key(key: str) -> bytes:
    """Return the bytes of a valid key; InvalidInputError for any other text."""
    raw = key.encode("utf-8", "replace")
    if len(raw) > MAX_KEY or not _KEY.fullmatch(raw):
        raise InvalidInputError("a tree key is collection/record, in letters, digits and _~.:-", key=key[:100])
    return raw


def layer_of(key: str) -> int:
    """Return the layer of a key; 0 is the lowest."""
    return _zeros(sha256(key.encode()).digest())


def shared_prefix(first: bytes, second: bytes) -> int:
    """Return the length of the longest common prefix."""
    size = min(len(first), len(second))
    # One XOR over both prefixes as numbers: its highest bit is in the first byte that differs.
    differing = int.from_bytes(first[:size], "big") ^ int.from_bytes(second[:size], "big")
    return size - (differing.bit_length() + 7) // 8


def encode(node: Node) -> bytes:
    """Encode a node as a block."""
    keys, values, children, _ = node
    parts = [b"\xa2\x61e", head(4, len(keys))]
    last = ""
    for at, key in enumerate(keys):
        child = children[at + 1]
        parts.append(_entry_head(last, key))
        parts += (_NO_CHILD, values[at].raw) if child is None else (_CHILD, child.raw, _VALUE, values[at].raw)
        last = key
    first = children[0]
    parts += (_NO_FIRST,) if first is None else (_FIRST, first.raw)
    return b"".join(parts)


@lru_cache(2**14)
def _entry_head(last: str, key: str) -> bytes:
    """Encode an entry up to its subtree; cached, because an update rewrites whole nodes for one changed link."""
    raw = key.encode()
    shared = shared_prefix(last.encode(), raw)
    return b"".join((_ENTRY, head(2, len(raw) - shared), raw[shared:], b"\x61p", head(0, shared)))


def parse(data: bytes) -> Node:
    """Parse a node from untrusted bytes; FormatError unless it is the one encoding of a well-formed node."""
    keys, values, children, layer = read(data)
    # One decode for all keys: joined by a byte that no key contains.
    texts = tuple(b"\n".join(keys).decode("ascii").split("\n")) if keys else ()
    subtrees = tuple([None if raw is None else CID(raw) for raw in children])
    return Node(texts, tuple(cids.trusted(values)), subtrees, layer)


RawNode: TypeAlias = tuple[list[bytes], list[bytes], list[bytes | None], int | None]
"""A node in bytes: keys, values, subtrees, layer."""


def read(data: bytes) -> RawNode:
    """Parse a node without creating objects for keys and CIDs; checks all that `parse` does."""
    if len(data) > MAX_SIZE:
        raise FormatError("tree node: too large", size=len(data))
    # Six elements per entry: the bytes before it, then its five groups (head and rest of the key, length of the shared
    # prefix, subtree, value); last the bytes after the last entry.
    parts = _ENTRIES.split(data)
    if len(parts) == 1:
        return _without_keys(data)
    rests = parts[2::6]
    if parts[0] != _START + head(4, len(rests)) or any(parts[6:-1:6]):
        raise FormatError("tree node: not one, or a malformed entry", size=len(data))
    end = _CLOSE.fullmatch(parts[-1])
    if end is None:
        raise FormatError("tree node: malformed, or bytes after its end", size=len(data))
    keys = _join_keys(parts[1::6], rests, parts[3::6])
    return keys, parts[5::6], [end[1], *parts[4::6]], _check_keys(keys)


def _without_keys(data: bytes) -> RawNode:
    """Parse a node without entries."""
    end = _CLOSE.fullmatch(data, len(_NO_ENTRY))
    if end is None or not data.startswith(_NO_ENTRY):
        raise FormatError("tree node: not one, or malformed", size=len(data))
    return [], [], [end[1]], None


def _join_keys(heads: list[bytes], rests: list[bytes], shared: list[bytes]) -> list[bytes]:
    """Return the full keys of compressed entries: each shares a prefix with the key before it."""
    keys: list[bytes] = []
    last = b""
    size = 0
    try:
        for first, rest, raw in zip(heads, rests, shared, strict=True):
            number = _NUMBERS[raw]
            # One comparison checks both the longest shared prefix and the order: after the shared bytes, the first
            # byte must be greater than the last key's (or that key must have ended).
            if _HEADS[len(rest)] != first or number > size or (number < size and rest[0] <= last[number]):
                raise FormatError("tree node: keys out of order, a prefix not shared, or a wrong length")
            last = last[:number] + rest
            size = len(last)
            keys.append(last)
    except (IndexError, KeyError) as error:
        raise FormatError("tree node: a key too long, or a number not in its shortest form") from error
    return keys


def _zeros(digest: bytes) -> int:
    """Return the number of leading zero bits, halved."""
    return 0 if digest[0] > 0x3F else (256 - int.from_bytes(digest, "big").bit_length()) // 2


def _check_keys(keys: list[bytes]) -> int:
    """Return the layer of a node's keys; FormatError unless all are valid keys of one layer."""
    # One regular expression over all keys, and min and max of the digests, instead of a call per key.
    lines = b"\n".join(keys)
    if not _KEYS.fullmatch(lines) or (len(lines) > MAX_KEY and max(map(len, keys)) > MAX_KEY):
        raise FormatError("tree node: a key that is not collection/record", keys=len(keys))
    digests = [sha256(key).digest() for key in keys]
    layer = _zeros(min(digests))
    # The smaller the digest, the more zeros: `layer` is the highest; if it is 0, so are all others.
    if layer and layer != _zeros(max(digests)):
        raise FormatError("tree node: keys of several layers", keys=len(keys))
    return layer
