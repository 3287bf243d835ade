"""Changing a Merkle Search Tree: put, delete, and many at once.

- The result is the tree that `mst.build` makes of the same items, whatever the order of changes.
- One changed key rewrites the nodes from the top to it, and those that it splits or joins: O(log n).
- The result is the new root and only the new blocks; existing blocks are neither changed nor removed.
- Deleting a key that is absent raises NotFoundError, and no block is created.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import TypeAlias

from holdproof.crypto import mst
from holdproof.crypto.cid import CID
from holdproof.crypto.mst import Get, KeyRange, Nodes, Tree
from holdproof.crypto.mst_node import Node, check_key, layer_of
from holdproof.errors import InvalidInputError, NotFoundError


class _Draft:
    """A node under change; each subtree is a draft, the CID of one not fetched yet, or None.

    `source` is the CID of the node it was made from, if it was stored before.
    """

    __slots__ = ("children", "keys", "source", "values")

    def __init__(self, keys: list[str], values: list[CID], children: "list[_Child]", source: CID | None = None) -> None:
        self.keys = keys
        self.values = values
        self.children = children
        self.source = source


_Child: TypeAlias = _Draft | CID | None


def put(get: Get, root: CID, key: str, value: CID) -> Tree:
    """Set the value of a key."""
    return apply(get, root, {key: value})


def delete(get: Get, root: CID, key: str) -> Tree:
    """Delete a key; NotFoundError where it is absent."""
    return apply(get, root, {key: None})


def apply(get: Get, root: CID, changes: Mapping[str, CID | None]) -> Tree:
    """Apply many changes at once, None being a deletion; only the final nodes are encoded."""
    # A new tree is built in one pass, without drafts.
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
    """One tree under change; `layer` is that of its top node, meaningless while the tree is empty."""

    def __init__(self, get: Get, root: CID) -> None:
        node, bounds = mst.fetch_root(get, root)
        self.get = get
        self.layer = bounds.layer
        self.top: _Child = _thaw(node, root) if node.keys else None

    def put(self, key: str, value: CID) -> None:
        height = layer_of(key)
        top = self.top
        if top is None:
            self.top = _Draft([key], [value], [None, None])
            self.layer = height
        elif height > self.layer:
            # The key becomes the new top; the old tree is split around it, and both halves hang below.
            before, after = self._split(top, self.layer, key)
            steps = height - 1 - self.layer
            self.top = _Draft([key], [value], [_lift(before, steps), _lift(after, steps)])
            self.layer = height
        else:
            self._put(self._open(top, self.layer), self.layer, key, value, height)

    def _put(self, node: _Draft, layer: int, key: str, value: CID, height: int) -> None:
        """Set a key of layer `height` in a subtree whose top node is at or above that layer."""
        while True:
            at = bisect_left(node.keys, key)
            child = node.children[at]
            if layer == height:
                break
            if child is None:
                node.children[at] = _lift(_Draft([key], [value], [None, None]), layer - 1 - height)
                return
            layer -= 1
            draft = self._open(child, layer)
            node.children[at] = draft
            node = draft
        if at < len(node.keys) and node.keys[at] == key:
            node.values[at] = value
            return
        # The new key divides the subtree that spanned its place.
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
        """Delete a key in a subtree and return the subtree, None if nothing remains of it."""
        at = bisect_left(node.keys, key)
        if layer > height:
            child = node.children[at]
            if child is None:
                raise NotFoundError("the tree does not hold the key", key=key)
            node.children[at] = self._delete(self._open(child, layer - 1), layer - 1, key, height)
        elif at < len(node.keys) and node.keys[at] == key:
            del node.keys[at], node.values[at]
            # Without the key between them, two subtrees become neighbours and must be one.
            node.children[at : at + 2] = [self._join(node.children[at], node.children[at + 1], layer - 1)]
        else:
            raise NotFoundError("the tree does not hold the key", key=key)
        return node if node.keys or node.children[0] is not None else None

    def _split(self, child: _Child, layer: int, key: str) -> tuple[_Draft | None, _Draft | None]:
        """Split a subtree in two at the position of a key."""
        if child is None:
            return None, None
        node = self._open(child, layer)
        at = bisect_left(node.keys, key)
        inner_before, inner_after = self._split(node.children[at], layer - 1, key)
        before = after = None
        # A half without keys and subtrees is no node at all.
        if at or inner_before:
            before = _Draft(node.keys[:at], node.values[:at], [*node.children[:at], inner_before])
        if at < len(node.keys) or inner_after:
            after = _Draft(node.keys[at:], node.values[at:], [inner_after, *node.children[at + 1 :]])
        return before, after

    def _join(self, before: _Child, after: _Child, layer: int) -> _Child:
        """Join two neighbouring subtrees into one."""
        if before is None or after is None:
            return after if before is None else before
        first = self._open(before, layer)
        second = self._open(after, layer)
        middle = self._join(first.children[-1], second.children[0], layer - 1)
        return _Draft(
            first.keys + second.keys,
            first.values + second.values,
            [*first.children[:-1], middle, *second.children[1:]],
        )

    def _open(self, child: _Draft | CID, layer: int) -> _Draft:
        """Return a subtree as a draft, fetched if need be."""
        if isinstance(child, _Draft):
            return child
        return _thaw(mst.fetch(self.get, child, KeyRange(layer)), child)

    def finish(self) -> Tree:
        """Encode every changed node, children before parents, and return the new tree."""
        if self.top is None:
            return Tree(mst.EMPTY_ROOT, {mst.EMPTY_ROOT: mst.EMPTY_BLOCK})
        blocks: dict[CID, bytes] = {}
        root = self._freeze(self.top, self.layer, blocks)
        assert root is not None, "a draft always has a CID"
        return Tree(root, blocks)

    def _freeze(self, child: _Child, layer: int, blocks: dict[CID, bytes]) -> CID | None:
        """Encode a subtree into `blocks` and return its CID."""
        if child is None or isinstance(child, CID):
            return child
        children = tuple([self._freeze(below, layer - 1, blocks) for below in child.children])
        node = Node(tuple(child.keys), tuple(child.values), children, layer if child.keys else None)
        cid = mst.store(node, blocks)
        if cid == child.source:  # opened but not changed: stored already
            del blocks[cid]
        elif isinstance(self.get, Nodes):
            self.get.remember(cid, node)
        return cid


def _thaw(node: Node, source: CID) -> _Draft:
    return _Draft(list(node.keys), list(node.values), list(node.children), source)


def _lift(child: _Draft | None, steps: int) -> _Draft | None:
    """Raise a subtree by so many layers, with a node without keys for each."""
    if child is not None:
        for _ in range(steps):
            child = _Draft([], [], [child])
    return child
