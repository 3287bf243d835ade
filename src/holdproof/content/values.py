"""Values: anything DAG-CBOR can represent, stored once under its CID; appending to a list costs only its end.

Rules:
- The same value has the same CID, wherever and however often it is put.
- A list is a Merkle list: an append writes O(log n) small blocks, and every older CID stays what it was.
- Text and bytes of more than 256 KiB are stored as a Merkle list of pieces, and read as one value.
- A value is one block `{value}`, or `{list}`, `{text}` or `{bytes}` with a link to a Merkle list: its kind is part of
  it, so that a list never passes for something else.
- A subject's value is encrypted first, `{sealed}` or, where it is long, `{sealed-pieces}`; of a list each element,
  `{sealed-list}`, so that it can grow. Its CID differs each time, and it is unreadable once the subject is erased.
- Floats are allowed, unlike in records; what DAG-CBOR cannot represent is refused before anything is written.
- Nothing removes values: a CID stays valid.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, cast

from holdproof.content import blocks, encryption
from holdproof.crypto import cid as cids
from holdproof.crypto import dagcbor_fast, mlist
from holdproof.crypto.cid import CID
from holdproof.crypto.dagcbor import Value
from holdproof.db import Tx
from holdproof.errors import InvalidInputError

PIECE: Final = 2**16
_LONG: Final = 2**18

_MOST: Final = 1 << 30

Kind = Literal["value", "list", "text", "bytes", "sealed", "sealed-pieces", "sealed-list"]


def put(tx: Tx, value: Value, *, subject: str | None = None) -> str:
    """Store a value and return its CID; a list can be appended to. A `subject`'s value is erased with the subject."""
    if subject is not None:
        return _seal(tx, value, encryption.label(tx, subject))
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
    """Return a whole value; every block of it is verified."""
    kind, content = _open(tx, cid)
    if kind == "value":
        return content
    if kind == "sealed":
        return _unsealed(tx, cast("bytes", content))
    items = list(mlist.walk(blocks.getter(tx), cast("CID", content)))
    if kind == "sealed-list":
        # The first element only names the subject.
        return _elements(tx, items[1:])
    if kind == "sealed-pieces":
        return _unsealed(tx, b"".join(cast("list[bytes]", items)))
    if kind == "list":
        return items
    data = b"".join(cast("list[bytes]", items))
    return data if kind == "bytes" else data.decode()


def append(tx: Tx, cid: str, items: Iterable[Value]) -> str:
    """Append elements to a list and return the CID of the longer list; the old CID stays valid."""
    kind, root = _list(tx, cid)
    get = blocks.getter(tx)
    if kind == "list":
        return _store(tx, kind, mlist.append(get, root, items))
    [first] = mlist.walk(get, root, 0, 1)
    handle = encryption.subject_of(cast("bytes", first))
    # Also locks the subject against an erasure until the commit.
    encryption.check_alive(tx, handle)
    sealed = [encryption.seal_for(tx, handle, _bytes(item)) for item in items]
    return _store(tx, kind, mlist.append(get, root, sealed))


def length(tx: Tx, cid: str) -> int:
    """Return the number of elements of a list; reads its top block alone."""
    kind, root = _list(tx, cid)
    return mlist.length(blocks.getter(tx), root) - (kind == "sealed-list")


def slice(tx: Tx, cid: str, start: int = 0, end: int | None = None) -> list[Value]:
    """Return a range of a list; blocks outside the range are not read."""
    kind, root = _list(tx, cid)
    get = blocks.getter(tx)
    if kind == "list":
        return list(mlist.walk(get, root, start, end))
    return _elements(tx, mlist.walk(get, root, *_shifted(start, end)))


def parse(text: str) -> CID:
    """Parse the CID of a value; InvalidInputError for any other text or kind of CID."""
    cid = cids.parse_argument(text)
    if not cid.raw.startswith(cids.CBOR_PREFIX):
        raise InvalidInputError("the CID names no dag-cbor block of SHA-256", cid=text)
    return cid


def _store(tx: Tx, kind: Kind, elements: mlist.List) -> str:
    """Store a Merkle list and the block that names its kind; returns the CID of that block."""
    block = dagcbor_fast.encode({kind: elements.root})
    cid = cids.of(block)
    blocks.put(tx, {**elements.blocks, cid: block})
    return str(cid)


def _open(tx: Tx, cid: str) -> tuple[Kind, Value]:
    """Read the top block of a value; returns its kind and its content, or the link to a list."""
    top = dagcbor_fast.decode(blocks.get(tx, parse(cid)))
    if isinstance(top, dict) and len(top) == 1:
        [(kind, value)] = top.items()
        inline = kind == "value" or (kind == "sealed" and isinstance(value, bytes))
        if inline or (kind in _LINKED and isinstance(value, CID)):
            return cast("Kind", kind), value
    raise InvalidInputError("the block is not a value", cid=cid)


_LINKED: Final = frozenset({"list", "text", "bytes", "sealed-pieces", "sealed-list"})


def _list(tx: Tx, cid: str) -> tuple[Kind, CID]:
    """Return kind and root of a list; InvalidInputError for any other value."""
    kind, root = _open(tx, cid)
    if kind not in ("list", "sealed-list"):
        raise InvalidInputError(f"the value is no list ({kind})", cid=cid)
    return kind, cast("CID", root)


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError("no DAG-CBOR: a lone surrogate in a text") from error


def _pieces(data: bytes) -> Iterator[Value]:
    return (data[at : at + PIECE] for at in range(0, len(data), PIECE))


# --- what belongs to a subject -----------------------------------------------------------------------------------


def _seal(tx: Tx, value: Value, handle: str) -> str:
    """Store a value encrypted under its subject's key."""
    if type(value) is list:
        # A first, empty element names the subject, so that an empty list can be appended to as well.
        sealed = [encryption.seal_for(tx, handle, data) for data in (b"", *map(_bytes, value))]
        return _marked(tx, handle, _store(tx, "sealed-list", mlist.build(sealed)))
    envelope = encryption.seal_for(tx, handle, dagcbor_fast.encode(value, max_size=_MOST))
    if len(envelope) > _LONG:
        return _marked(tx, handle, _store(tx, "sealed-pieces", mlist.build(_pieces(envelope))))
    block = dagcbor_fast.encode({"sealed": envelope})
    cid = cids.of(block)
    blocks.put(tx, {cid: block})
    return _marked(tx, handle, str(cid))


def _marked(tx: Tx, handle: str, cid: str) -> str:
    encryption.mark(tx, handle, cid, "values")
    return cid


def _bytes(value: Value) -> bytes:
    return dagcbor_fast.encode(value)


def _unsealed(tx: Tx, envelope: bytes) -> Value:
    return dagcbor_fast.decode(encryption.open(tx, envelope), max_size=_MOST)


def _elements(tx: Tx, sealed: Iterable[Value]) -> list[Value]:
    return [_unsealed(tx, cast("bytes", envelope)) for envelope in sealed]


def _shifted(start: int, end: int | None) -> tuple[int, int | None]:
    """Shift a range by the first stored element, which is not part of the list."""
    return start + 1 if start >= 0 else start, end if end is None or end < 0 else end + 1
