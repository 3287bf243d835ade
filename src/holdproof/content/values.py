"""Values: anything DAG-CBOR can say, stored once under its CID; lists and long texts grow at the price of their end.

Rules:
- The same value has the same CID, wherever and however often it is put.
- A list is a Merkle list: an append writes O(log n) small blocks, and every older CID stays what it was.
- Text and bytes of more than 256 KiB are cut into a Merkle list of pieces; they are read whole again.
- A value is one block `{value}`, or `{list}`, `{text}` or `{bytes}` with a link to a Merkle list: its kind is part of
  it, so that a list never passes for something else.
- What belongs to a subject is sealed first, `{sealed}` or, where it is long, `{sealed-pieces}`; of a list each element,
  `{sealed-list}`, so that it grows as others do. It has another CID each time, and is gone when the subject is erased.
- Floats are kept, unlike in records; anything DAG-CBOR has no word for is refused before anything is written.
- Nothing removes values: whoever keeps a CID keeps the value.
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
# Texts and bytes longer than this are split into pieces, so that no block comes near its limit of 1 MiB.
_LONG: Final = 2**18

_MOST: Final = 1 << 30

Kind = Literal["value", "list", "text", "bytes", "sealed", "sealed-pieces", "sealed-list"]


def put(tx: Tx, value: Value, *, subject: str | None = None) -> str:
    """Store a value; its CID. A list becomes one that can grow. What is put for a `subject` goes with its erasure."""
    if subject is not None:
        return _seal(tx, value, encryption.label(tx, subject))
    if type(value) is list:
        return _store(tx, "list", mlist.build(value))
    # Long texts and bytes become lists of pieces, so that no block exceeds the limit.
    if type(value) in (str, bytes):
        data = _encode(value) if isinstance(value, str) else cast("bytes", value)
        if len(data) > _LONG:
            return _store(tx, "text" if isinstance(value, str) else "bytes", mlist.build(_pieces(data)))
    block = dagcbor_fast.encode({"value": value})
    cid = cids.of(block)
    blocks.put(tx, {cid: block})
    return str(cid)


def get(tx: Tx, cid: str) -> Value:
    """Return a whole value, every block of it hashed."""
    kind, content = _open(tx, cid)
    if kind == "value":
        return content
    if kind == "sealed":
        return _unsealed(tx, cast("bytes", content))
    items = list(mlist.walk(blocks.getter(tx), cast("CID", content)))
    if kind == "sealed-list":
        return _elements(tx, items[1:])
    if kind == "sealed-pieces":
        return _unsealed(tx, b"".join(cast("list[bytes]", items)))
    if kind == "list":
        return items
    data = b"".join(cast("list[bytes]", items))
    return data if kind == "bytes" else data.decode()


def append(tx: Tx, cid: str, items: Iterable[Value]) -> str:
    """Return the list with more elements at its end; the CID of the longer one, the old one stays."""
    kind, root = _list(tx, cid)
    get = blocks.getter(tx)
    if kind == "list":
        return _store(tx, kind, mlist.append(get, root, items))
    # The first element has no content; its envelope names the subject.
    [first] = mlist.walk(get, root, 0, 1)
    handle = encryption.subject_of(cast("bytes", first))
    encryption.check_alive(tx, handle)
    sealed = [encryption.seal_for(tx, handle, _bytes(item)) for item in items]
    return _store(tx, kind, mlist.append(get, root, sealed))


def length(tx: Tx, cid: str) -> int:
    """Return how many elements a list has, from its top block alone."""
    kind, root = _list(tx, cid)
    return mlist.length(blocks.getter(tx), root) - (kind == "sealed-list")


def slice(tx: Tx, cid: str, start: int = 0, end: int | None = None) -> list[Value]:
    """Some elements of a list; blocks outside the range are not even read."""
    kind, root = _list(tx, cid)
    get = blocks.getter(tx)
    if kind == "list":
        return list(mlist.walk(get, root, start, end))
    return _elements(tx, mlist.walk(get, root, *_shifted(start, end)))


def parse(text: str) -> CID:
    """Return a CID that somebody gave; InvalidInputError where it is none of ours."""
    parsed = cids.given(text)
    if not parsed.raw.startswith(cids.CBOR_PREFIX):
        raise InvalidInputError("the CID names no dag-cbor block of SHA-256", cid=text)
    return parsed


def _store(tx: Tx, kind: Kind, elements: mlist.List) -> str:
    block = dagcbor_fast.encode({kind: elements.root})
    cid = cids.of(block)
    blocks.put(tx, {**elements.blocks, cid: block})
    return str(cid)


def _open(tx: Tx, cid: str) -> tuple[Kind, Value]:
    block = dagcbor_fast.decode(blocks.get(tx, parse(cid)))
    if isinstance(block, dict) and len(block) == 1:
        [(kind, value)] = block.items()
        inline = kind == "value" or (kind == "sealed" and isinstance(value, bytes))
        if inline or (kind in _LINKED and isinstance(value, CID)):
            return cast("Kind", kind), value
    raise InvalidInputError("the block is not a value", cid=cid)


_LINKED: Final = frozenset({"list", "text", "bytes", "sealed-pieces", "sealed-list"})


def _list(tx: Tx, cid: str) -> tuple[Kind, CID]:
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
    """Return a value under its subject's key; of a list, a first element without content says whose it is."""
    if type(value) is list:
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
    """Return where elements are behind the first one, which has none of the list's."""
    return start + 1 if start >= 0 else start, end if end is None or end < 0 else end + 1
