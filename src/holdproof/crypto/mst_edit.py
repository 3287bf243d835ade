"""Changing a Merkle Search Tree: put, delete, and many at once.

- The result is the tree that `mst.build` makes of the same items: history leaves no trace.
- One changed key rewrites the nodes from the top to it, and those that it splits or joins: O(log n).
- What comes back is the new root and only the blocks that are new; nothing that was is changed or removed.
- To delete a key that is not there is a NotFoundError, and nothing at all comes back.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import TypeAlias

from holdproof.crypto import mst
from holdproof.crypto.cid import CID
from holdproof.crypto.mst import Get, Nodes, Span, Tree
from holdproof.crypto.mst_node import Node, check_key, layer_of
from holdproof.errors import InvalidInputError, NotFoundError


class _Draft:
    """A node being changed; its subtrees are drafts, CIDs not yet looked at, or none."""

    __slots__ = ("children", "keys", "source", "values")

    def __init__(self, keys: list[str], values: list[CID], children: "list[_Child]", source: CID | None = None) -> None:
        self.keys = keys
        self.values = values
        self.children = children
        self.source = source


_Child: TypeAlias = _Draft | CID | None


def put(get: Get, root: CID, key: str, value: CID) -> Tree:
    """Return the tree in which a key has this value."""
    return apply(get, root, {key: value})


def delete(get: Get, root: CID, key: str) -> Tree:
    """Return the tree without a key."""
    return apply(get, root, {key: None})


def apply(get: Get, root: CID, changes: Mapping[str, CID | None]) -> Tree:
    """Return the tree after many changes, None being a deletion; nodes in between are never written."""
    # An empty tree is built in one pass, which is much cheaper than single insertions.
    if root == mst.EMPTY_ROOT and all(changes.values()):
        return mst.build(sorted((key, value) for key, value in changes.items() if value is not None))
    editor = _Editor(get, root)
    for key, value in changes.items():
        check_key(key)
        if value is None:
            editor.delete(key)
        elif value.plain:
            editor.put(key, value)
        else:
            raise InvalidInputError("a tree holds plain CIDs only", key=key, value=str(value))
    return editor.finish()


class _Editor:
    """One tree under change; `layer` is that of its top, while it has any node."""

    def __init__(self, get: Get, root: CID) -> None:
        node, span = mst.fetch_root(get, root)
        self.get = get
        self.layer = span.layer
        self.top: _Child = _thaw(node, root) if node.keys else None

    def put(self, key: str, value: CID) -> None:
        height = layer_of(key)
        top = self.top
        if top is None:
            self.top = _Draft([key], [value], [None, None])
            self.layer = height
        elif height > self.layer:
            lower, upper = self._split(top, self.layer, key)
            # Layers in between are filled with nodes without keys, as the format requires.
            steps = height - 1 - self.layer
            self.top = _Draft([key], [value], [_lift(lower, steps), _lift(upper, steps)])
            self.layer = height
        else:
            self._put(self._open(top, self.layer), self.layer, key, value, height)

    def _put(self, node: _Draft, layer: int, key: str, value: CID, height: int) -> None:
        while True:
            at = bisect_left(node.keys, key)
            child = node.children[at]
            if layer == height:
                break
            if child is None:
                node.children[at] = _lift(_Draft([key], [value], [None, None]), layer - 1 - height)
                return
            layer -= 1
            node.children[at] = node = self._open(child, layer)
        if at < len(node.keys) and node.keys[at] == key:
            node.values[at] = value
            return
        # The new key divides the subtree that was in its place.
        node.children[at : at + 1] = self._split(child, layer - 1, key)
        node.keys.insert(at, key)
        node.values.insert(at, value)

    def delete(self, key: str) -> None:
        height = layer_of(key)
        if self.top is None or height > self.layer:
            raise NotFoundError("the tree does not hold the key", key=key)
        self.top = self._delete(self._open(self.top, self.layer), self.layer, key, height)
        while isinstance(self.top, _Draft) and not self.top.keys:  # the top always has a key
            self.top = self.top.children[0]
            self.layer -= 1
            if isinstance(self.top, CID):
                self.top = self._open(self.top, self.layer)

    def _delete(self, node: _Draft, layer: int, key: str, height: int) -> _Draft | None:
        at = bisect_left(node.keys, key)
        if layer > height:
            child = node.children[at]
            if child is None:
                raise NotFoundError("the tree does not hold the key", key=key)
            node.children[at] = self._delete(self._open(child, layer - 1), layer - 1, key, height)
        elif at < len(node.keys) and node.keys[at] == key:
            del node.keys[at], node.values[at]
            node.children[at : at + 2] = [self._join(node.children[at], node.children[at + 1], layer - 1)]
        else:
            raise NotFoundError("the tree does not hold the key", key=key)
        return node if node.keys or node.children[0] is not None else None

    def _split(self, child: _Child, layer: int, key: str) -> tuple[_Draft | None, _Draft | None]:
        """Return a subtree cut in two where a key would stand."""
        if child is None:
            return None, None
        node = self._open(child, layer)
        at = bisect_left(node.keys, key)
        lower, upper = self._split(node.children[at], layer - 1, key)
        return (
            _Draft(node.keys[:at], node.values[:at], [*node.children[:at], lower]) if at or lower else None,
            _Draft(node.keys[at:], node.values[at:], [upper, *node.children[at + 1 :]])
            if at < len(node.keys) or upper
            else None,
        )

    def _join(self, lower: _Child, upper: _Child, layer: int) -> _Child:
        """Return two neighbouring subtrees as one."""
        if lower is None or upper is None:
            return upper if lower is None else lower
        first = self._open(lower, layer)
        second = self._open(upper, layer)
        middle = self._join(first.children[-1], second.children[0], layer - 1)
        return _Draft(
            first.keys + second.keys,
            first.values + second.values,
            [*first.children[:-1], middle, *second.children[1:]],
        )

    def _open(self, child: _Draft | CID, layer: int) -> _Draft:
        if isinstance(child, _Draft):
            return child
        return _thaw(mst.fetch(self.get, child, Span(layer)), child)

    def finish(self) -> Tree:
        """Encode what was changed, from below."""
        if self.top is None:
            return Tree(mst.EMPTY_ROOT, {mst.EMPTY_ROOT: mst.EMPTY_BLOCK})
        blocks: dict[CID, bytes] = {}
        root = self._freeze(self.top, self.layer, blocks)
        assert root is not None
        return Tree(root, blocks)

    def _freeze(self, child: _Child, layer: int, blocks: dict[CID, bytes]) -> CID | None:
        if child is None or isinstance(child, CID):
            return child
        children = tuple([self._freeze(below, layer - 1, blocks) for below in child.children])
        node = Node(tuple(child.keys), tuple(child.values), children, layer if child.keys else None)
        cid = mst.store(node, blocks)
        # Changed and changed back: the block exists already.
        if cid == child.source:
            del blocks[cid]
        elif isinstance(self.get, Nodes):
            self.get.remember(cid, node)
        return cid


def _thaw(node: Node, source: CID) -> _Draft:
    return _Draft(list(node.keys), list(node.values), list(node.children), source)


def _lift(child: _Draft | None, steps: int) -> _Draft | None:
    """Return a subtree handed up so many layers by nodes without keys."""
    if child is not None:
        for _ in range(steps):
            child = _Draft([], [], [child])
    return child
