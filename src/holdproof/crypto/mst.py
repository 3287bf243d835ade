"""The Merkle Search Tree (AT Protocol repository format, version 3): reading and building.

- A tree is named by the CID of its top node; the same keys and values give the same root, in whatever order they came.
- Nodes come from `get(cid)`, which answers with bytes or None; each is hashed and parsed strictly before it is used,
  must stand exactly one layer below its parent and keep its keys between the parent's neighbouring keys.
- The top node has a key, except in the empty tree; every other node has a key or a subtree.
- A missing or wrong block is a ProofError, a malformed one a FormatError; nothing else is raised for any bytes.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from holdproof.crypto import cid as cids
from holdproof.crypto import mst_node
from holdproof.crypto.cid import CID
from holdproof.crypto.mst_node import EMPTY, Node, check_key, layer_of
from holdproof.errors import FormatError, InvalidInputError, ProofError

Get: TypeAlias = Callable[[CID], bytes | None]
Item: TypeAlias = tuple[str, CID]

EMPTY_BLOCK = mst_node.encode(EMPTY)
EMPTY_ROOT = cids.of(EMPTY_BLOCK)


class Tree(NamedTuple):
    """A root and the blocks that are new with it."""

    root: CID
    blocks: dict[CID, bytes]


class Nodes:
    """A `get` that remembers the last nodes it parsed: for many operations on one tree, in one thread.

    What is remembered is not fetched again: to prove that a store is whole, use its plain `get`.
    """

    def __init__(self, get: Get, *, memory: int = 4096) -> None:
        self._get = get
        self._memory = memory
        self._nodes: dict[CID, Node] = {}

    def __call__(self, cid: CID) -> bytes | None:
        """Return the block itself."""
        return self._get(cid)

    def node(self, cid: CID) -> Node:
        """Return a verified node."""
        node = self._nodes.get(cid)
        if node is None:
            node = _fetch(self._get, cid)
            self.remember(cid, node)
        return node

    def remember(self, cid: CID, node: Node) -> None:
        """Keep a node in mind, the oldest one leaving."""
        self._nodes[cid] = node
        if len(self._nodes) > self._memory:
            # Insertion order: the oldest entry goes. Exact LRU would cost more than it saves.
            del self._nodes[next(iter(self._nodes))]


class Span(NamedTuple):
    """Where a subtree belongs: its layer, and the keys on both sides of it (None: no bound)."""

    layer: int
    low: str | None = None
    high: str | None = None

    def child(self, node: Node, at: int) -> "Span":
        """Return where the node's subtree number `at` belongs."""
        keys = node.keys
        low = keys[at - 1] if at else self.low
        return Span(self.layer - 1, low, keys[at] if at < len(keys) else self.high)


def fetch_root(get: Get, root: CID) -> tuple[Node, Span]:
    """Return the verified top node and its place."""
    node = _fetch(get, root)
    # A canonical tree is trimmed: a top node without keys would be a second form of the same tree.
    if node.layer is None and node != EMPTY:
        raise FormatError("tree: a top node without a key", cid=str(root))
    return node, Span(node.layer or 0)


def fetch(get: Get, cid: CID, span: Span) -> Node:
    """Return a verified node below the top, where it is supposed to stand."""
    node = _fetch(get, cid)
    keys = node.keys
    low = span.low
    high = span.high
    if span.layer < 0 or (not keys and node.children[0] is None):
        raise FormatError("tree: a node below the lowest layer, or with nothing in it", cid=str(cid))
    if keys:
        if node.layer != span.layer:
            raise FormatError("tree: a node in the wrong layer", cid=str(cid), layer=span.layer)
        if (low is not None and keys[0] <= low) or (high is not None and keys[-1] >= high):
            raise FormatError("tree: a key outside its subtree", cid=str(cid))
    return node


def find(get: Get, root: CID, key: str) -> CID | None:
    """Return the value of a key, or None where the tree does not hold it."""
    check_key(key)
    node, span = fetch_root(get, root)
    while True:
        # Keys and subtrees alternate, so the position of the key is also that of its subtree.
        at = bisect_left(node.keys, key)
        if at < len(node.keys) and node.keys[at] == key:
            return node.values[at]
        child = node.children[at]
        if child is None:
            return None
        span = span.child(node, at)
        node = fetch(get, child, span)


def walk(get: Get, root: CID, *, start: str = "", end: str | None = None) -> Iterator[Item]:
    """Yield keys and values in order, from `start` on and before `end`; other subtrees are not even fetched."""
    node, span = fetch_root(get, root)
    yield from _walk(get, node, span, start, end)


def walk_prefix(get: Get, root: CID, prefix: str) -> Iterator[Item]:
    """Yield keys that begin with a prefix, and their values, in order."""
    return walk(get, root, start=prefix, end=prefix + "\x7f")


def nodes(get: Get, root: CID) -> Iterator[tuple[CID, Node]]:
    """Yield every node, a parent before its subtrees, left to right: the order of an export."""
    node, span = fetch_root(get, root)
    waiting = [(root, node, span)]
    while waiting:
        cid, node, span = waiting.pop()
        yield cid, node
        for at in range(len(node.keys), -1, -1):
            child = node.children[at]
            if child is not None:
                # Pushed in reverse, so that the leftmost subtree is visited first.
                below = span.child(node, at)
                waiting.append((child, fetch(get, child, below), below))


def build(items: Iterable[Item]) -> Tree:
    """Return the tree of items in ascending order of their keys, in one pass."""
    blocks: dict[CID, bytes] = {}
    rows: list[_Row] = []
    last = ""
    for key, value in items:
        check_key(key)
        # Order is required, not established: sorting here would hide duplicate keys.
        if key <= last or not value.plain:
            raise InvalidInputError("a tree is built from ascending keys and plain CIDs", key=key, value=str(value))
        last = key
        height = layer_of(key)
        # A key higher than any before opens new layers above the ones under construction.
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
    """Encode a node into the new blocks; its CID."""
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
    """Close the open nodes below a layer; the subtree they make."""
    below: CID | None = None
    for number in range(height):
        row = rows[number]
        if row.keys or below is not None:
            layer = number if row.keys else None
            below = store(Node(tuple(row.keys), tuple(row.values), (*row.children, below), layer), blocks)
            rows[number] = _Row()
    return below


def _fetch(get: Get, cid: CID) -> Node:
    if isinstance(get, Nodes):
        return get.node(cid)
    data = get(cid)
    if data is None:
        raise ProofError("tree: a block is missing", cid=str(cid))
    cids.verify(cid, data)
    return mst_node.parse(data)


def _walk(get: Get, node: Node, span: Span, start: str, end: str | None) -> Iterator[Item]:
    keys = node.keys
    for at in range(bisect_left(keys, start), len(keys) + 1):
        child = node.children[at]
        if child is not None:
            below = span.child(node, at)
            yield from _walk(get, fetch(get, child, below), below, start, end)
        if at == len(keys) or (end is not None and keys[at] >= end):
            return
        yield keys[at], node.values[at]
