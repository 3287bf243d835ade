"""A whole Merkle Search Tree out of blocks that were hashed already: for whoever loads everything there is.

What `mst.nodes` checks is checked here, and nothing else is believed: every node is parsed strictly, stands exactly one
layer below its parent and keeps its keys between the parent's neighbouring keys. Only the hashing is left out, and what
a loader does not ask for is never made: names stay bytes. A property test holds the two equal.
"""

from collections.abc import Iterator, Mapping

from holdproof.crypto import cid as cids
from holdproof.crypto import mst_node
from holdproof.crypto.cid import CID
from holdproof.errors import FormatError, ProofError


def values(blocks: Mapping[bytes, bytes], root: CID) -> Iterator[list[bytes]]:
    """Yield the values of every node, a parent before its subtrees, left to right; CIDs as bytes throughout."""
    keys, node_values, children, layer = _read(blocks, root.raw)
    if layer is None and children != [None]:
        raise FormatError("tree: a top node without a key", cid=str(root))
    yield node_values
    waiting = _below(keys, children, (layer or 0) - 1, b"", _END)
    while waiting:
        raw, depth, low, high = waiting.pop()
        keys, node_values, children, layer = _read(blocks, raw)
        if depth < 0 or (not keys and children[0] is None):
            raise FormatError("tree: a node below the lowest layer, or with nothing in it", cid=_text(raw))
        if keys:
            if layer != depth:
                raise FormatError("tree: a node in the wrong layer", cid=_text(raw), layer=depth)
            if keys[0] <= low or keys[-1] >= high:
                raise FormatError("tree: a key outside its subtree", cid=_text(raw))
            yield node_values
        if any(children):
            waiting += _below(keys, children, depth - 1, low, high)


_END = b"\xff"
"""Greater than every key, as the empty one is less than all."""


def _below(
    keys: list[bytes], children: list[bytes | None], depth: int, low: bytes, high: bytes
) -> list[tuple[bytes, int, bytes, bytes]]:
    """Return the subtrees of a node and where they belong, the first one last."""
    bounds = [low, *keys, high]
    return [(raw, depth, bounds[at], bounds[at + 1]) for at, raw in enumerate(children) if raw is not None][::-1]


def _read(blocks: Mapping[bytes, bytes], raw: bytes) -> mst_node.Plain:
    data = blocks.get(raw)
    if data is None:
        raise ProofError("tree: a block is missing", cid=_text(raw))
    return mst_node.read(data)


def _text(raw: bytes) -> str:
    return str(cids.parse(raw))
