"""Collect the blocks on the way to a key of a Merkle Search Tree, as AT Protocol commits carry them."""

from bisect import bisect_left
from collections.abc import Callable, Iterable

from holdproof.crypto import mst
from holdproof.crypto.cid import CID
from holdproof.crypto.mst import Get


def path_blocks(get: Get, root: CID, key: str) -> dict[CID, bytes]:
    """Return the blocks that a search for the key reads."""
    recorder = _Recorder(get)
    mst.find(recorder, root, key)
    return recorder.blocks


def covering_blocks(get: Get, root: CID, keys: Iterable[str]) -> dict[CID, bytes]:
    """Return the blocks on the way to each key and to its neighbours on both sides."""
    recorder = _Recorder(get)
    for key in keys:
        _descend(recorder, root, key, before=True)
        _descend(recorder, root, key, before=False)
    return recorder.blocks


class _Recorder:
    """A `get` that remembers the blocks it returned."""

    def __init__(self, get: Callable[[CID], bytes | None]) -> None:
        self.get = get
        self.blocks: dict[CID, bytes] = {}

    def __call__(self, cid: CID) -> bytes | None:
        data = self.blocks.get(cid) or self.get(cid)
        if data is not None:
            self.blocks[cid] = data
        return data


def _descend(get: Get, root: CID, key: str, *, before: bool) -> None:
    """Go down to the key and on to its neighbour on one side."""
    node, bounds = mst.fetch_root(get, root)
    while True:
        at = bisect_left(node.keys, key)
        if not before and at < len(node.keys) and node.keys[at] == key:
            at += 1
        child = node.children[at]
        if child is None:
            return
        bounds = bounds.child(node, at)
        node = mst.fetch(get, child, bounds)
