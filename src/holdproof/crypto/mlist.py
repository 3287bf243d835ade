"""Merkle lists: growing values, such as the messages of a conversation, named by one CID.

An append costs O(log n) small blocks instead of another copy; old roots stay valid, and share all but the right edge.

- Elements are DAG-CBOR values of at most 1 MiB less 64 bytes and 126 levels; larger ones belong into a block of
  their own.
- Every block is `{c, h, n}`: content, height, number of elements below. At height 0 the content is the elements,
  above it is number and link of each child in turn, all one height lower. The root is such a block, too.
- Leaves are filled from the left: the next element joins the last leaf while that has fewer than 16 elements and
  the elements' bytes stay within 8 KiB (a larger element has a leaf of its own). So a rewritten leaf is small, and
  where it ends follows from the elements alone.
- Nodes are filled from the left, 32 children each; only nodes on the right edge may have fewer, and the top has two or
  more. The empty list is the empty leaf. So the same elements give the same root, however they were appended.
- Reading checks each block: its hash, its form, and that height and number are what the parent announced. `verify`
  rebuilds the list from its elements and so checks the shape as a whole.
- A missing or wrong block is a ProofError, a malformed one a FormatError.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeGuard

from holdproof.crypto import cid as cids
from holdproof.crypto import dagcbor, dagcbor_fast
from holdproof.crypto.cid import CID
from holdproof.crypto.dagcbor import Value, head
from holdproof.crypto.mst import Get
from holdproof.errors import FormatError, InvalidInputError, ProofError

LEAF_ITEMS = 16
LEAF_BYTES = 2**13
FAN_OUT = 32
MAX_ELEMENT = dagcbor.MAX_SIZE - 64
MAX_HEIGHT = 12


class Child(NamedTuple):
    """A subtree: how many elements it has, and its block."""

    size: int
    cid: CID


class List(NamedTuple):
    """A root, and the blocks that were created for it."""

    root: CID
    blocks: dict[CID, bytes]


class _Block(NamedTuple):
    height: int
    size: int
    elements: list[Value]
    children: list[Child]


def build(elements: Iterable[Value]) -> List:
    """Build a list."""
    return _Builder().extend(elements)


def append(get: Get, root: CID, elements: Iterable[Value]) -> List:
    """Append elements to a list; returns the new root and only the new blocks."""
    return _Builder.resume(get, root).extend(elements)


def length(get: Get, root: CID) -> int:
    """Return the number of elements."""
    return _fetch(get, root).size


def element(get: Get, root: CID, index: int) -> Value:
    """Return one element, reading one block of each height; InvalidInputError for an index outside the list."""
    block = _fetch(get, root)
    if not 0 <= index < block.size:
        raise InvalidInputError("the list has no such index", index=index, length=block.size)
    while block.height:
        for child in block.children:
            if index < child.size:
                break
            index -= child.size
        block = _fetch(get, child.cid, block.height - 1, child.size)
    return block.elements[index]


def walk(get: Get, root: CID, start: int = 0, end: int | None = None) -> Iterator[Value]:
    """Yield the elements of a range, in order; blocks outside it are not fetched."""
    block = _fetch(get, root)
    if start < 0 or (end is not None and end < 0):
        raise InvalidInputError("a range of a list has no negative bounds", start=start, end=end)
    yield from _walk(get, block, start, block.size if end is None else min(end, block.size))


def verify(get: Get, root: CID) -> int:
    """Read a list in full and check its shape; returns its length, raises FormatError for any other shape."""
    builder = _Builder()
    count = 0
    for item in walk(get, root):
        builder.add(item)
        builder.blocks.clear()  # only the root is compared: memory stays bounded however long the list
        count += 1
    if builder.finish() != root:
        raise FormatError("list: not the shape that its elements give", cid=str(root))
    return count


class _Builder:
    """A list under construction: the open leaf, and for each height the children of the open node."""

    def __init__(self) -> None:
        self.leaf: list[bytes] = []
        self.size = 0
        self.rows: list[list[Child]] = []
        self.blocks: dict[CID, bytes] = {}

    @classmethod
    def resume(cls, get: Get, root: CID) -> "_Builder":
        """Return a builder that continues an existing list."""
        builder = cls()
        block = _fetch(get, root)
        builder.rows = [[] for _ in range(block.height)]
        # Down the right edge: the last child of each node is still open, all others are final.
        while block.height:
            *closed, last = block.children
            builder.rows[block.height - 1] = closed
            block = _fetch(get, last.cid, block.height - 1, last.size)
        builder.leaf = [_encode(item) for item in block.elements]
        builder.size = sum(map(len, builder.leaf))
        return builder

    def extend(self, elements: Iterable[Value]) -> List:
        for item in elements:
            self.add(item)
        return List(self.finish(), self.blocks)

    def add(self, item: Value) -> None:
        data = _encode(item)
        if self.leaf and (len(self.leaf) == LEAF_ITEMS or self.size + len(data) > LEAF_BYTES):
            self._push(0, self._close_leaf())
            self.leaf = []
            self.size = 0
        self.leaf.append(data)
        self.size += len(data)

    def finish(self) -> CID:
        """Close the open leaf and all open nodes; returns the root."""
        last = self._close_leaf()
        height = 0
        while height < len(self.rows):
            self._push(height, last)
            last = self._close_row(height)
            height += 1
        return last.cid

    def _push(self, row: int, child: Child) -> None:
        """Add a child to the open node of a height; a full node is closed first and becomes a child above."""
        if row == len(self.rows):
            self.rows.append([])
        if len(self.rows[row]) == FAN_OUT:
            self._push(row + 1, self._close_row(row))
            self.rows[row] = []
        self.rows[row].append(child)

    def _close_leaf(self) -> Child:
        return self._store(0, len(self.leaf), [head(4, len(self.leaf)), *self.leaf])

    def _close_row(self, row: int) -> Child:
        children = self.rows[row]
        parts = [head(4, 2 * len(children))]
        for child in children:
            parts += (head(0, child.size), dagcbor.link(child.cid))
        return self._store(row + 1, sum(child.size for child in children), parts)

    def _store(self, height: int, count: int, content: list[bytes]) -> Child:
        # The map {c, h, n} written by hand: the elements are encoded already.
        data = b"".join((b"\xa3\x61c", *content, b"\x61h", head(0, height), b"\x61n", head(0, count)))
        cid = cids.of(data)
        self.blocks[cid] = data
        return Child(count, cid)


def _encode(item: Value) -> bytes:
    """Encode an element as part of a leaf."""
    # Encoded inside two lists, whose heads are cut off: in a leaf it is two levels down, and depth is limited there.
    return dagcbor_fast.encode([[item]], max_size=MAX_ELEMENT + 2)[2:]


def _walk(get: Get, block: _Block, start: int, end: int) -> Iterator[Value]:
    if block.height == 0:
        yield from block.elements[start:end]
        return
    first = 0
    for child in block.children:
        if first >= end:
            return
        if first + child.size > start:
            below = _fetch(get, child.cid, block.height - 1, child.size)
            yield from _walk(get, below, max(0, start - first), end - first)
        first += child.size


def _fetch(get: Get, cid: CID, height: int | None = None, count: int | None = None) -> _Block:
    """Fetch and verify a block; FormatError unless it has the height and size that its parent states."""
    data = get(cid)
    if data is None:
        raise ProofError("list: a block is missing", cid=str(cid))
    cids.verify(cid, data)
    block = _parse(data)
    if height is not None and (block.height, block.size) != (height, count):
        raise FormatError("list: a block of another height or number than announced", cid=str(cid))
    return block


def _parse(data: bytes) -> _Block:
    value = dagcbor_fast.decode(data)
    if not isinstance(value, dict) or value.keys() != {"c", "h", "n"}:
        raise FormatError("list: a block without exactly c, h and n")
    content = value["c"]
    height = value["h"]
    count = value["n"]
    if not isinstance(content, list) or type(height) is not int or type(count) is not int:
        raise FormatError("list: a field of the wrong kind")
    if not 0 <= height <= MAX_HEIGHT:
        raise FormatError("list: a height out of range", height=height)
    if height == 0:
        if count != len(content) or count > LEAF_ITEMS:
            raise FormatError("list: a leaf with a wrong number of elements", count=count)
        return _Block(0, count, content, [])
    # Number and link alternate; an odd one out, or a malformed pair, shows in the count below.
    children = [Child(*pair) for pair in zip(content[::2], content[1::2], strict=False) if _is_child(pair)]
    if 2 * len(children) != len(content) or not 0 < len(children) <= FAN_OUT:
        raise FormatError("list: a node with malformed children, none or too many", count=count)
    if sum([child.size for child in children]) != count:
        raise FormatError("list: a node with a wrong number of elements", count=count)
    return _Block(height, count, [], children)


def _is_child(pair: tuple[Value, Value]) -> TypeGuard[tuple[int, CID]]:
    size, cid = pair
    return type(size) is int and size > 0 and isinstance(cid, CID) and cid.raw.startswith(cids.CBOR_PREFIX)
