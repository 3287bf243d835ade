"""What changed between two Merkle Search Trees.

- Changes come in the order of their keys, each once, with the old and the new value (None: absent).
- Equal subtrees are skipped by their CID: the cost depends on the changes, not on the size of the trees.
- Applying all changes from a to b to a (`mst_edit.apply`) gives b.
- `fresh` yields the blocks of the new tree that a holder of the old one lacks, a node before what is below it; perhaps
  a few blocks more. The result depends on the two trees alone.
"""

from collections.abc import Iterator
from typing import NamedTuple

from holdproof.crypto import mst
from holdproof.crypto.cid import CID
from holdproof.crypto.mst import Get, Item, KeyRange
from holdproof.crypto.mst_node import Node


class TreeChange(NamedTuple):
    """One key whose value differs."""

    key: str
    old: CID | None
    new: CID | None


class _Subtree(NamedTuple):
    """A subtree that was not fetched yet."""

    cid: CID
    bounds: KeyRange


def _are_equal(old: _Subtree, new: _Subtree) -> bool:
    """Return whether two subtrees have the same content at the same layer."""
    return old.cid == new.cid and old.bounds.layer == new.bounds.layer


def diff(get: Get, old: CID, new: CID) -> Iterator[TreeChange]:
    """Yield the changes that lead from one tree to another, in the order of their keys."""
    for step in steps(get, old, new):
        if isinstance(step, TreeChange):
            yield step


class Fresh(NamedTuple):
    """A block of a new tree: one of its nodes, or the value of a key."""

    cid: CID
    is_node: bool


def fresh(get: Get, old: CID, new: CID) -> Iterator[Fresh]:
    """Yield the blocks of the new tree that the old one may lack, a node before what is below it."""
    # There is nothing to compare with: an export of the whole tree needs no cursors.
    if old == mst.EMPTY_ROOT != new:
        yield from _all(get, new)
        return
    for step in steps(get, old, new):
        if isinstance(step, CID):
            yield Fresh(step, True)
        elif step.new is not None:
            yield Fresh(step.new, False)


def _all(get: Get, root: CID) -> Iterator[Fresh]:
    """Yield every block of a tree, in the order of `steps`."""
    node, bounds = mst.fetch_root(get, root)
    yield Fresh(root, True)
    stack = _links(node, bounds)
    while stack:
        cid, below = stack.pop()
        yield Fresh(cid, below is not None)
        if below is not None:
            stack += _links(mst.fetch(get, cid, below), below)


def _links(node: Node, bounds: KeyRange) -> list[tuple[CID, KeyRange | None]]:
    """Return the subtrees of a node, with their positions, and its values, with None; the leftmost last."""
    links: list[tuple[CID, KeyRange | None]] = []
    for at in range(len(node.keys), -1, -1):
        if at < len(node.keys):
            links.append((node.values[at], None))
        child = node.children[at]
        if child is not None:
            links.append((child, bounds.child(node, at)))
    return links


def steps(get: Get, old: CID, new: CID) -> Iterator[TreeChange | CID]:
    """Yield the changes that lead from one tree to another, and the CIDs of the new tree's nodes read on the way."""
    if old == new:
        return
    yield new
    before = _Cursor(get, old)
    after = _Cursor(get, new)
    while before.stack or after.stack:
        old_subtree = before.subtree()
        new_subtree = after.subtree()
        if old_subtree and new_subtree and _are_equal(old_subtree, new_subtree):
            before.stack.pop()
            after.stack.pop()
        # The higher subtree is opened first: only at one layer can two subtrees turn out to be equal.
        elif old_subtree and (not new_subtree or old_subtree.bounds.layer >= new_subtree.bounds.layer):
            before.descend(old_subtree)
            # Two different subtrees of one layer are opened together, so that their children are compared in pairs.
            if new_subtree and new_subtree.bounds.layer == old_subtree.bounds.layer:
                yield new_subtree.cid
                after.descend(new_subtree)
        elif new_subtree:
            yield new_subtree.cid
            after.descend(new_subtree)
        else:
            change = _compare(before, after)
            if change:
                yield change


class _Cursor:
    """An ordered walk through one tree that can skip whole subtrees; the last element of `stack` is the next one."""

    def __init__(self, get: Get, root: CID) -> None:
        self.get = get
        self.stack: list[_Subtree | Item] = []
        self._push(*mst.fetch_root(get, root))

    def subtree(self) -> _Subtree | None:
        """Return the next element if it is a subtree."""
        top = self.stack[-1] if self.stack else None
        return top if isinstance(top, _Subtree) else None

    def key(self) -> str | None:
        """Return the next key, None at the end; called only where the next element is not a subtree."""
        if not self.stack:
            return None
        key, _ = self.stack[-1]
        return key if isinstance(key, str) else None

    def value(self) -> CID | None:
        """Remove the next item and return its value."""
        _, value = self.stack.pop()
        return value if isinstance(value, CID) else None

    def descend(self, subtree: _Subtree) -> None:
        """Replace the next element, this subtree, by its items and subtrees."""
        self.stack.pop()
        self._push(mst.fetch(self.get, subtree.cid, subtree.bounds), subtree.bounds)

    def _push(self, node: Node, bounds: KeyRange) -> None:
        # From right to left, so that the leftmost is the next one.
        for at in range(len(node.keys), -1, -1):
            if at < len(node.keys):
                self.stack.append((node.keys[at], node.values[at]))
            child = node.children[at]
            if child is not None:
                self.stack.append(_Subtree(child, bounds.child(node, at)))


def _compare(before: _Cursor, after: _Cursor) -> TreeChange | None:
    """Remove the lesser of the two next keys, or both where they are equal; returns the change, None without one."""
    old_key = before.key()
    new_key = after.key()
    if new_key is None or (old_key is not None and old_key < new_key):
        return TreeChange(old_key or "", before.value(), None)
    if old_key is None or new_key < old_key:
        return TreeChange(new_key, None, after.value())
    old = before.value()
    new = after.value()
    return TreeChange(new_key, old, new) if old != new else None
