"""What changed between two Merkle Search Trees.

- Changes come in the order of their keys, each once, with the old and the new value (None: not there).
- Equal subtrees are skipped by their CID: the cost follows the changes, not the trees.
- `apply(a, {key: new …})` of all changes from a to b gives b.
- `fresh` names what a holder of the old tree lacks of the new one, a node before what is below it; perhaps a few blocks
  more. What it gives depends on the two trees alone.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from holdproof.crypto import mst
from holdproof.crypto.cid import CID
from holdproof.crypto.mst import Get, Item, Span
from holdproof.crypto.mst_node import Node


class Change(NamedTuple):
    """One key whose value differs."""

    key: str
    old: CID | None
    new: CID | None


_Subtree: TypeAlias = tuple[CID, Span]


def diff(get: Get, old: CID, new: CID) -> Iterator[Change]:
    """Yield the changes that lead from one tree to another."""
    for step in steps(get, old, new):
        if isinstance(step, Change):
            yield step


class Fresh(NamedTuple):
    """A block of a new tree: one of its nodes, or the value of a key."""

    cid: CID
    is_node: bool


def fresh(get: Get, old: CID, new: CID) -> Iterator[Fresh]:
    """Yield the blocks that lead from one tree to another."""
    # Everything is new: nothing to compare, so the cheaper walk is used.
    if old == mst.EMPTY_ROOT != new:
        yield from _all(get, new)
        return
    for step in steps(get, old, new):
        if isinstance(step, CID):
            yield Fresh(step, True)
        elif step.new is not None:
            yield Fresh(step.new, False)


def _all(get: Get, root: CID) -> Iterator[Fresh]:
    """Yield every block of a tree, as `steps` would give them: nothing is compared with nothing."""
    node, span = mst.fetch_root(get, root)
    yield Fresh(root, True)
    waiting = _opened(node, span)
    while waiting:
        cid, below = waiting.pop()
        yield Fresh(cid, below is not None)
        if below is not None:
            waiting += _opened(mst.fetch(get, cid, below), below)


def _opened(node: Node, span: Span) -> list[tuple[CID, Span | None]]:
    """Return subtrees, with their places, and values of a node; the first one last."""
    entries: list[tuple[CID, Span | None]] = []
    for at in range(len(node.keys), -1, -1):
        if at < len(node.keys):
            entries.append((node.values[at], None))
        child = node.children[at]
        if child is not None:
            entries.append((child, span.child(node, at)))
    return entries


def steps(get: Get, old: CID, new: CID) -> Iterator[Change | CID]:
    """Yield the changes that lead from one tree to another, and the nodes of the new one that are met on the way."""
    if old == new:
        return
    yield new
    old_cursor = _Cursor(get, old)
    new_cursor = _Cursor(get, new)
    while old_cursor.waiting or new_cursor.waiting:
        old_subtree = old_cursor.subtree()
        new_subtree = new_cursor.subtree()
        if (
            old_subtree
            and new_subtree
            and old_subtree[0] == new_subtree[0]
            and old_subtree[1].layer == new_subtree[1].layer
        ):
            old_cursor.waiting.pop()
            new_cursor.waiting.pop()
        # Otherwise the higher one is opened first, so that both sides reach the same layer.
        elif old_subtree and (not new_subtree or old_subtree[1].layer >= new_subtree[1].layer):
            old_cursor.descend(old_subtree)
            if new_subtree and new_subtree[1].layer == old_subtree[1].layer:
                yield new_subtree[0]
                new_cursor.descend(new_subtree)
        elif new_subtree:
            yield new_subtree[0]
            new_cursor.descend(new_subtree)
        else:
            change = _compare(old_cursor, new_cursor)
            if change:
                yield change


def _same(old: _Subtree, new: _Subtree) -> bool:
    old_cid, old_span = old
    new_cid, new_span = new
    return old_cid == new_cid and old_span.layer == new_span.layer


class _Cursor:
    """A walk through one tree that can step over whole subtrees; `waiting` ends with what comes next."""

    def __init__(self, get: Get, root: CID) -> None:
        self.get = get
        self.waiting: list[_Subtree | Item] = []
        self._push(*mst.fetch_root(get, root))

    def subtree(self) -> _Subtree | None:
        """Return what comes next, if it is a subtree."""
        if self.waiting:
            first, second = self.waiting[-1]
            if isinstance(first, CID) and isinstance(second, Span):
                return first, second
        return None

    def key(self) -> str | None:
        """Return the key that comes next; None at the end. Only asked where no subtree comes next."""
        first = self.waiting[-1][0] if self.waiting else None
        return first if isinstance(first, str) else None

    def value(self) -> CID | None:
        """Take the value that comes next."""
        second = self.waiting.pop()[1]
        return second if isinstance(second, CID) else None

    def descend(self, subtree: _Subtree) -> None:
        """Replace the subtree that comes next by what is in it."""
        self.waiting.pop()
        cid, span = subtree
        self._push(mst.fetch(self.get, cid, span), span)

    def _push(self, node: Node, span: Span) -> None:
        for at in range(len(node.keys), -1, -1):
            if at < len(node.keys):
                self.waiting.append((node.keys[at], node.values[at]))
            child = node.children[at]
            if child is not None:
                self.waiting.append((child, span.child(node, at)))


def _compare(old_cursor: _Cursor, new_cursor: _Cursor) -> Change | None:
    """Take the lesser of two keys, or both where they are equal."""
    old_key = old_cursor.key()
    new_key = new_cursor.key()
    if new_key is None or (old_key is not None and old_key < new_key):
        return Change(old_key or "", old_cursor.value(), None)
    if old_key is None or new_key < old_key:
        return Change(new_key, None, new_cursor.value())
    old = old_cursor.value()
    new = new_cursor.value()
    return Change(new_key, old, new) if old != new else None
