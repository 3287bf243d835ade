"""Which nodes the trees of memory have: that of every namespace as it is now, and that of every snapshot."""

from holdproof.content import blocks
from holdproof.crypto import mst_diff
from holdproof.crypto.cid import CID
from holdproof.crypto.mst import EMPTY_BLOCK, EMPTY_ROOT, Nodes
from holdproof.db import Tx, sql
from holdproof.memory.objects import commits, refs

_ROOTS = sql("SELECT root FROM snapshots ORDER BY id")


def nodes(tx: Tx) -> set[CID]:
    """Return all of them; NotFoundError where one is missing. What two trees have in common is looked at once."""
    get = blocks.getter(tx)
    nodes_in_use = set[CID]()
    before = EMPTY_ROOT
    tree = Nodes(lambda cid: EMPTY_BLOCK if cid == EMPTY_ROOT else get(cid))
    named = [commits.parse(root) for (root,) in tx.all(_ROOTS)]
    for root in [*named, *(ref.cid for ref in refs.every(tx) if ref.name.startswith("work/"))]:
        nodes_in_use.update(step for step in mst_diff.steps(tree, before, root) if isinstance(step, CID))
        before = root
    return nodes_in_use
