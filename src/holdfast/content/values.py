"""Values: anything DAG-CBOR can say, stored once under its CID; lists and long texts grow at the price of their end.

Rules:
- The same value has the same CID, wherever and however often it is put.
- A list is a Merkle list: an append writes O(log n) small blocks, and every older CID stays what it was.
- Text and bytes of more than 256 KiB are cut into a Merkle list of pieces; they are read whole again.
- A value is one block `{value}`, or `{list}`, `{text}` or `{bytes}` with a link to a Merkle list: its kind is part of
  it, so that a list never passes for something else.
- Floats are kept, unlike in records; anything DAG-CBOR has no word for is refused before anything is written.
- Nothing removes values: whoever keeps a CID keeps the value.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, cast

from holdfast.content import blocks
from holdfast.crypto import cid as cids
from holdfast.crypto import dagcbor_fast, mlist
from holdfast.crypto.cid import CID
from holdfast.crypto.dagcbor import Value
from holdfast.db import Tx
from holdfast.errors import InvalidInputError

PIECE: Final = 2**16
_LONG: Final = 2**18

Kind = Literal["value", "list", "text", "bytes"]


def put(tx: Tx, value: Value) -> str:
    """Store a value; its CID. A list becomes one that can grow."""
    if type(value) is list:
        return _store(tx, "list", mlist.build(value))
    if type(value) in (str, bytes):
        data = _encode(value) if isinstance(value, str) else cast("bytes", value)
        if len(data) > _LONG:
            return _store(tx, "text" if isinstance(value, str) else "bytes", mlist.build(_pieces(data)))
    block = dagcbor_fast.encode({"value": value})
    cid = cids.of(block)
    blocks.put(tx, {cid: block})
    return str(cid)


def get(tx: Tx, cid: str) -> Value:
    """A whole value, every block of it hashed."""
    kind, found = _open(tx, cid)
    if kind == "value":
        return found
    items = list(mlist.walk(blocks.getter(tx), cast("CID", found)))
    if kind == "list":
        return items
    data = b"".join(cast("list[bytes]", items))
    return data if kind == "bytes" else data.decode()


def append(tx: Tx, cid: str, items: Iterable[Value]) -> str:
    """The list with more elements at its end; the CID of the longer one, the old one stays."""
    return _store(tx, "list", mlist.append(blocks.getter(tx), _list(tx, cid), items))


def length(tx: Tx, cid: str) -> int:
    """How many elements a list has, from its top block alone."""
    return mlist.length(blocks.getter(tx), _list(tx, cid))


def slice(tx: Tx, cid: str, start: int = 0, end: int | None = None) -> list[Value]:
    """Some elements of a list; blocks outside the range are not even read."""
    return list(mlist.walk(blocks.getter(tx), _list(tx, cid), start, end))


def parse(text: str) -> CID:
    """A CID that somebody gave; InvalidInputError where it is none of ours."""
    found = cids.given(text)
    if not found.raw.startswith(cids.CBOR_PREFIX):
        raise InvalidInputError("the CID names no dag-cbor block of SHA-256", cid=text)
    return found


def _store(tx: Tx, kind: Kind, made: mlist.List) -> str:
    block = dagcbor_fast.encode({kind: made.root})
    cid = cids.of(block)
    blocks.put(tx, {**made.blocks, cid: block})
    return str(cid)


def _open(tx: Tx, cid: str) -> tuple[Kind, Value]:
    found = dagcbor_fast.decode(blocks.get(tx, parse(cid)))
    if isinstance(found, dict) and len(found) == 1:
        [(kind, value)] = found.items()
        if kind == "value" or (kind in ("list", "text", "bytes") and isinstance(value, CID)):
            return cast("Kind", kind), value
    raise InvalidInputError("the block is not a value", cid=cid)


def _list(tx: Tx, cid: str) -> CID:
    kind, root = _open(tx, cid)
    if kind != "list":
        raise InvalidInputError(f"the value is no list ({kind})", cid=cid)
    return cast("CID", root)


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError("no DAG-CBOR: a lone surrogate in a text") from error


def _pieces(data: bytes) -> Iterator[Value]:
    return (data[at : at + PIECE] for at in range(0, len(data), PIECE))
