"""The Merkle Search Tree (AT Protocol repository format, version 3): reading and building.

- A tree is named by the CID of its top node; the same keys and values give the same root, in whatever order they were
  added.
- Nodes come from `get(cid)`, which returns bytes or None; each is hashed and parsed strictly before it is used,
  must be exactly one layer below its parent and have its keys between the parent's neighbouring keys.
- The top node has a key, except in the empty tree; every other node has a key or a subtree.
- A missing or wrong block is a ProofError, a malformed one a FormatError; nothing else is raised for any bytes.
- `node_values` reads a tree whose blocks were hashed before: the same checks without hashing, and without objects for
  keys. A property test compares it with `nodes`.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from holdproof.crypto import cid as cids
from holdproof.crypto import mst_node
from holdproof.crypto.cid import CID
from holdproof.crypto.mst_node import EMPTY, Node, check_key, layer_of
from holdproof.errors import FormatError, InvalidInputError, ProofError

Get: TypeAlias = Callable[[CID], bytes | None]
Item: TypeAlias = tuple[str, CID]

# Keys are ASCII, so that this is greater than every key, as b"" is less than all.
_AFTER_ALL_KEYS = b"\xff"

EMPTY_BLOCK = mst_node.encode(EMPTY)
EMPTY_ROOT = cids.of(EMPTY_BLOCK)


class Tree(NamedTuple):
    """A root, and the blocks that were created for it."""

    root: CID
    blocks: dict[CID, bytes]


class Nodes:
    """A `get` with a cache of parsed nodes, for many operations on one tree in one thread.

    Cached nodes are not fetched again: to check that a store is complete, use its plain `get`.
    """

    def __init__(self, get: Get, *, memory: int = 4096) -> None:
        self._get = get
        self._memory = memory
        self._nodes: dict[CID, Node] = {}

    def __call__(self, cid: CID) -> bytes | None:
        """Return the block, uncached."""
        return self._get(cid)

    def node(self, cid: CID) -> Node:
        """Return a verified node."""
        node = self._nodes.get(cid)
        if node is None:
            node = _fetch(self._get, cid)
            self.remember(cid, node)
        return node

    def remember(self, cid: CID, node: Node) -> None:
        """Cache a node; the oldest one is evicted when the cache is full."""
        self._nodes[cid] = node
        if len(self._nodes) > self._memory:
            del self._nodes[next(iter(self._nodes))]


class KeyRange(NamedTuple):
    """The position of a subtree: its layer, and the keys on both sides of it (None: no bound)."""

    layer: int
    low: str | None = None
    high: str | None = None

    def child(self, node: Node, at: int) -> "KeyRange":
        """Return the position of the node's subtree number `at`."""
        keys = node.keys
        low = keys[at - 1] if at else self.low
        return KeyRange(self.layer - 1, low, keys[at] if at < len(keys) else self.high)


def fetch_root(get: Get, root: CID) -> tuple[Node, KeyRange]:
    """Fetch and verify the top node; returns it and its position."""
    node = _fetch(get, root)
    if node.layer is None and node != EMPTY:
        raise FormatError("tree: a top node without a key", cid=str(root))
    return node, KeyRange(node.layer or 0)


def fetch(get: Get, cid: CID, bounds: KeyRange) -> Node:
    """Fetch and verify a node below the top; FormatError where it does not fit its position."""
    node = _fetch(get, cid)
    keys = node.keys
    low = bounds.low
    high = bounds.high
    if bounds.layer < 0 or (not keys and node.children[0] is None):
        raise FormatError("tree: a node below the lowest layer, or with nothing in it", cid=str(cid))
    # A search trusts layers and bounds: an author could otherwise hide a key where no search looks for it.
    if keys:
        if node.layer != bounds.layer:
            raise FormatError("tree: a node in the wrong layer", cid=str(cid), layer=bounds.layer)
        if (low is not None and keys[0] <= low) or (high is not None and keys[-1] >= high):
            raise FormatError("tree: a key outside its subtree", cid=str(cid))
    return node


def find(get: Get, root: CID, key: str) -> CID | None:
    """Return the value of a key, or None where the tree does not have it."""
    check_key(key)
    node, bounds = fetch_root(get, root)
    while True:
        at = bisect_left(node.keys, key)
        if at < len(node.keys) and node.keys[at] == key:
            return node.values[at]
        child = node.children[at]
        if child is None:
            return None
        bounds = bounds.child(node, at)
        node = fetch(get, child, bounds)


def walk(get: Get, root: CID, *, start: str = "", end: str | None = None) -> Iterator[Item]:
    """Yield keys and values in order, from `start` and before `end`; subtrees outside are not fetched."""
    node, bounds = fetch_root(get, root)
    yield from _walk(get, node, bounds, start, end)


def walk_prefix(get: Get, root: CID, prefix: str) -> Iterator[Item]:
    """Yield the keys that begin with a prefix, and their values, in order."""
    # No key contains a byte as large as 0x7f.
    return walk(get, root, start=prefix, end=prefix + "\x7f")


def nodes(get: Get, root: CID) -> Iterator[tuple[CID, Node]]:
    """Yield every node, a parent before its subtrees, left to right: the order of an export."""
    node, bounds = fetch_root(get, root)
    stack = [(root, node, bounds)]
    while stack:
        cid, node, bounds = stack.pop()
        yield cid, node
        # Pushed from right to left, so that the leftmost subtree is popped first.
        for at in range(len(node.keys), -1, -1):
            child = node.children[at]
            if child is not None:
                below = bounds.child(node, at)
                stack.append((child, fetch(get, child, below), below))


def node_values(blocks: Mapping[bytes, bytes], root: CID) -> Iterator[list[bytes]]:
    """Yield the values of every node, a parent before its subtrees, left to right.

    The blocks must have been verified already; blocks and values are named by the bytes of their CIDs.
    """
    keys, values, children, layer = _read(blocks, root.raw)
    if layer is None and children != [None]:
        raise FormatError("tree: a top node without a key", cid=str(root))
    yield values
    stack = _positions(keys, children, (layer or 0) - 1, b"", _AFTER_ALL_KEYS)
    while stack:
        raw, depth, low, high = stack.pop()
        keys, values, children, layer = _read(blocks, raw)
        if depth < 0 or (not keys and children[0] is None):
            raise FormatError("tree: a node below the lowest layer, or with nothing in it", cid=_cid_text(raw))
        if keys:
            if layer != depth:
                raise FormatError("tree: a node in the wrong layer", cid=_cid_text(raw), layer=depth)
            if keys[0] <= low or keys[-1] >= high:
                raise FormatError("tree: a key outside its subtree", cid=_cid_text(raw))
            yield values
        if any(children):
            stack += _positions(keys, children, depth - 1, low, high)


def build(items: Iterable[Item]) -> Tree:
    """Build a tree from items in ascending order of their keys, in one pass; InvalidInputError for other items."""
    blocks: dict[CID, bytes] = {}
    rows: list[_Row] = []
    last = ""
    for key, value in items:
        check_key(key)
        if key <= last or not value.plain:
            raise InvalidInputError("a tree is built from ascending keys and plain CIDs", key=key, value=str(value))
        last = key
        # A key of layer h closes the open nodes of all lower layers: they are complete up to this key.
        height = layer_of(key)
        rows.extend(_Row() for _ in range(height + 1 - len(rows)))
        row = rows[height]
        row.children.append(_fold(rows, height, blocks))
        row.keys.append(key)
        row.values.append(value)
    if not rows:
        return Tree(EMPTY_ROOT, {EMPTY_ROOT: EMPTY_BLOCK})
    top = rows[-1]
    top.children.append(_fold(rows, len(rows) - 1, blocks))
    node = Node(tuple(top.keys), tuple(top.values), tuple(top.children), len(rows) - 1)
    return Tree(store(node, blocks), blocks)


def store(node: Node, blocks: dict[CID, bytes]) -> CID:
    """Encode a node, add it to `blocks`, and return its CID."""
    data = mst_node.encode(node)
    cid = cids.of(data)
    blocks[cid] = data
    return cid


class _Row:
    """One layer of a tree under construction: its last, still open node."""

    __slots__ = ("children", "keys", "values")

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.values: list[CID] = []
        self.children: list[CID | None] = []


def _fold(rows: list[_Row], height: int, blocks: dict[CID, bytes]) -> CID | None:
    """Close the open nodes below a layer and return the subtree they form."""
    below: CID | None = None
    for number in range(height):
        row = rows[number]
        # A layer without keys still needs a node to lead down to what is below it.
        if row.keys or below is not None:
            layer = number if row.keys else None
            below = store(Node(tuple(row.keys), tuple(row.values), (*row.children, below), layer), blocks)
            rows[number] = _Row()
    return below


def _fetch(get: Get, cid: CID) -> Node:
    """Fetch, verify and parse a node, whatever its position."""
    if isinstance(get, Nodes):
        return get.node(cid)
    data = get(cid)
    if data is None:
        raise ProofError("tree: a block is missing", cid=str(cid))
    cids.verify(cid, data)
    return mst_node.parse(data)


def _walk(get: Get, node: Node, bounds: KeyRange, start: str, end: str | None) -> Iterator[Item]:
    """Yield the items of a subtree, as `walk` does."""
    keys = node.keys
    for at in range(bisect_left(keys, start), len(keys) + 1):
        child = node.children[at]
        if child is not None:
            below = bounds.child(node, at)
            yield from _walk(get, fetch(get, child, below), below, start, end)
        if at == len(keys) or (end is not None and keys[at] >= end):
            return
        yield keys[at], node.values[at]


def _positions(
    keys: list[bytes], children: list[bytes | None], depth: int, low: bytes, high: bytes
) -> list[tuple[bytes, int, bytes, bytes]]:
    """Return the subtrees of a node with layer and bounds of each, the leftmost last."""
    bounds = [low, *keys, high]
    return [(raw, depth, bounds[at], bounds[at + 1]) for at, raw in enumerate(children) if raw is not None][::-1]


def _read(blocks: Mapping[bytes, bytes], raw: bytes) -> mst_node.RawNode:
    data = blocks.get(raw)
    if data is None:
        raise ProofError("tree: a block is missing", cid=_cid_text(raw))
    return mst_node.read(data)


def _cid_text(raw: bytes) -> str:
    return str(cids.parse(raw))
