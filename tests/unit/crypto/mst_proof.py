"""Proofs that a tree holds a key, or does not: the nodes from the top to where the key stands or would stand.

- A proof is checked against a root alone; it answers with the value, or None for proven absence.
- Every block given must hash to its CID, needed or not; a node on the path that is missing, malformed, in the wrong
  layer or out of order fails the proof.
- A covering proof holds the paths to both neighbours of the key as well, as AT Protocol commits carry them: with it
  a single change can be undone and checked without the rest of the tree.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping

from holdproof.crypto import cid as cids
from holdproof.crypto import mst
from holdproof.crypto.cid import CID
from holdproof.crypto.mst import Get
from holdproof.errors import ProofError


def prove(get: Get, root: CID, key: str) -> dict[CID, bytes]:
    """Return the blocks that prove what a tree says about a key."""
    spy = _Spy(get)
    mst.find(spy, root, key)
    return spy.seen


def prove_covering(get: Get, root: CID, keys: Iterable[str]) -> dict[CID, bytes]:
    """Return the blocks that prove the keys together with their neighbours on both sides."""
    spy = _Spy(get)
    for key in keys:
        _descend(spy, root, key, left=True)
        _descend(spy, root, key, left=False)
    return spy.seen


def check(root: CID, key: str, blocks: Mapping[CID, bytes]) -> CID | None:
    """Return the value that the proof shows the key to have, None if it shows that there is none; else ProofError."""
    for cid, data in blocks.items():
        cids.verify(cid, data)
    return mst.find(blocks.get, root, key)


def verify_inclusion(root: CID, key: str, value: CID, blocks: Mapping[CID, bytes]) -> None:
    """Return if the proof shows that the key has this value, else raise ProofError."""
    found = check(root, key, blocks)
    if found != value:
        raise ProofError("the tree gives the key another value, or none", key=key, found=found and str(found))


def verify_exclusion(root: CID, key: str, blocks: Mapping[CID, bytes]) -> None:
    """Return if the proof shows that the tree does not hold the key, else raise ProofError."""
    found = check(root, key, blocks)
    if found is not None:
        raise ProofError("the tree does hold the key", key=key, found=str(found))


class _Spy:
    """A `get` that remembers what it gave."""

    def __init__(self, get: Callable[[CID], bytes | None]) -> None:
        self.get = get
        self.seen: dict[CID, bytes] = {}

    def __call__(self, cid: CID) -> bytes | None:
        data = self.seen.get(cid) or self.get(cid)
        if data is not None:
            self.seen[cid] = data
        return data


def _descend(get: Get, root: CID, key: str, *, left: bool) -> None:
    """Go down to the key and on to its neighbour on one side."""
    node, span = mst.fetch_root(get, root)
    while True:
        at = bisect_left(node.keys, key)
        if not left and at < len(node.keys) and node.keys[at] == key:
            at += 1
        child = node.children[at]
        if child is None:
            return
        span = span.child(node, at)
        node = mst.fetch(get, child, span)
