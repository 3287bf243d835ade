"""What the rows of threads hold: the state of a checkpoint, references, names and JSON, each in one way only.

States are DAG-CBOR, put together by hand: they are written with every checkpoint, and always have the same shape.
"""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, NamedTuple

from holdproof import validation
from holdproof.crypto import dagcbor_fast
from holdproof.crypto.dagcbor import head
from holdproof.errors import FormatError, InvalidInputError
from holdproof.memory.threads import channel_values
from holdproof.memory.threads.channel_values import BlockRef, InlineRef, ListRef, LruCache, Ref

_LONGEST: Final = 2_000
_MOST: Final = 2**26
_NULL: Final = b"\xf6"
_JSON: Final[Callable[[Any], str]] = json.JSONEncoder(allow_nan=False, sort_keys=True, separators=(",", ":")).encode


REFS: Final[LruCache[dict[str, Ref]]] = LruCache(512)
"""The references of the last checkpoints that were put, by the hash of their rows, which says all about them."""


class CheckpointState(NamedTuple):
    """What the `state` of a checkpoint's row says."""

    refs: dict[str, Ref]
    own: bytes
    needs: tuple[str, ...]
    """Channels that must be looked for in earlier checkpoints of the same line."""
    parent_h: bytes | None


def encode(state: CheckpointState) -> bytes:
    """Return a state as it is written."""
    if not isinstance(state.own, bytes):
        raise InvalidInputError("the state of a checkpoint is bytes")
    # DAG-CBOR orders map keys by length, then bytewise: one state has one encoding and one hash.
    named = sorted(((name("channel", channel).encode(), ref) for channel, ref in state.refs.items()), key=_order)
    channels = b"".join([head(5, len(named)), *(head(3, len(key)) + key + encode_ref(ref) for key, ref in named)])
    needs = b"".join([head(4, len(state.needs)), *(_text(name("channel", each)) for each in sorted(state.needs))])
    parent = _NULL if state.parent_h is None else _bytes(state.parent_h)
    return b"".join([b"\xa4\x61c", channels, b"\x61n", needs, b"\x61p", parent, b"\x61s", _bytes(state.own)])


def decode(blob: bytes) -> CheckpointState:
    """Return the state in a checkpoint's row; FormatError where it is none."""
    match dagcbor_fast.decode(blob, max_size=_MOST):
        case {"c": dict(refs), "n": list(needs), "p": (bytes() | None) as parent_h, "s": bytes(own)} if _sorted(needs):
            values = {channel: channel_values.decode(ref) for channel, ref in refs.items()}
            return CheckpointState(values, own, tuple(map(str, needs)), parent_h)
    raise FormatError("the state of a checkpoint is malformed")


def refs_of(h: bytes, blob: bytes) -> dict[str, Ref]:
    """Return the references in the state of a row with that hash, remembered where this process put it."""
    # What is decoded here is not kept: nobody has compared the hash with the row.
    refs = REFS.get(h)
    return decode(blob).refs if refs is None else refs


def _sorted(needs: list[Any]) -> bool:
    return all(isinstance(each, str) for each in needs) and needs == sorted(needs)


def encode_ref(ref: Ref) -> bytes:
    """Return a reference as it is written."""
    match ref:
        case InlineRef(tag, data):
            return b"\x83\x00" + _text(tag) + _bytes(data)
        case BlockRef(tag, digest):
            return b"\x83\x01" + _text(tag) + _bytes(digest)
        case ListRef(tag, root, size, tail):
            closed = (_NULL if root is None else _bytes(root)) + head(0, size)
            return b"\x85\x02" + _text(tag) + closed + _bytes(b"".join(tail))


def decode_ref(value: bytes) -> Ref:
    """Return the reference in a row of `thread_writes`."""
    return channel_values.decode(dagcbor_fast.decode(value, max_size=_MOST))


def row_hash(line: str, ids: tuple[str, str | None, str | None], metadata: str, state: bytes) -> bytes:
    """What `h` of a checkpoint's row must be: line, own id, parent's id, run's id and the rest; a copy has the same."""
    return sha256(_JSON([line, *ids, metadata, sha256(state).hexdigest()]).encode()).digest()


def name(what: str, text: Any, *, least: int = 1) -> str:
    """Return a name that a framework chose."""
    return validation.words(what, text, least=least, most=_LONGEST)


def json_text(value: Any, what: str = "the value") -> str:
    """JSON as it is stored: one text for one value."""
    return validation.to_json(what, value, _JSON)


def _order(named: tuple[bytes, Ref]) -> tuple[int, bytes]:
    return len(named[0]), named[0]


def _text(text: str) -> bytes:
    data = text.encode()
    return head(3, len(data)) + data


def _bytes(data: bytes) -> bytes:
    return head(2, len(data)) + data
