"""A whole tree at once is what node after node is: the same values, and the same refusals."""

import pytest
from hypothesis import given

from holdproof.crypto import cid as cids
from holdproof.crypto import mst
from holdproof.crypto.cid import CID
from holdproof.crypto.mst_node import EMPTY, Node
from holdproof.errors import FormatError, ProofError

from .blocks import ITEMS, MUTATIONS, mutants
from .test_mst import HOLLOW_CID, LOW, LOW_CID, VALUE, build, forged


def plain(blocks: dict[CID, bytes]) -> dict[bytes, bytes]:
    return {cid.raw: data for cid, data in blocks.items()}


def one_by_one(blocks: dict[CID, bytes], root: CID) -> list[bytes]:
    return [value.raw for _, node in mst.nodes(blocks.get, root) for value in node.values]


def at_once(blocks: dict[CID, bytes], root: CID) -> list[bytes]:
    return [raw for values in mst.node_values(plain(blocks), root) for raw in values]


@given(ITEMS)
def test_the_values_are_those_of_the_nodes_in_their_order(items: dict[str, CID]) -> None:
    tree = mst.build(sorted(items.items()))
    assert at_once(tree.blocks, tree.root) == one_by_one(tree.blocks, tree.root)


@pytest.mark.parametrize(
    ("rule", "top", "below"),
    [
        ("wrong layer", Node(("C2/014073",), (VALUE,), (LOW_CID, None), 2), [LOW]),
        ("outside", Node(("A1/076595",), (VALUE,), (LOW_CID, None), 1), [LOW]),
        ("outside", Node(("C1/438573",), (VALUE,), (None, LOW_CID), 1), [LOW]),
        ("lowest", Node(("A0/374913",), (VALUE,), (None, LOW_CID), 0), [LOW]),
        ("nothing in it", Node(("A1/076595",), (VALUE,), (None, HOLLOW_CID), 1), [EMPTY]),
        ("without a key", Node((), (), (LOW_CID,), None), [LOW]),
    ],
)
def test_well_formed_nodes_in_the_wrong_places_are_refused(rule: str, top: Node, below: list[Node]) -> None:
    root, blocks = forged(top, *below)
    with pytest.raises(FormatError, match=rule):
        at_once(blocks, root)


def test_a_missing_node_is_a_proof_error() -> None:
    tree = build([f"object/{number:03}" for number in range(60)])
    for gone in tree.blocks:
        with pytest.raises(ProofError):
            at_once({cid: data for cid, data in tree.blocks.items() if cid != gone}, tree.root)


def test_a_mutated_tree_is_refused_wherever_node_after_node_is() -> None:
    tree = build([f"object/{number:03}" for number in range(60)])
    child, data = next((cid, data) for cid, data in tree.blocks.items() if cid != tree.root)
    for bad in mutants([data], MUTATIONS // 5):
        renamed = {old: block.replace(child.raw, cids.of(bad).raw) for old, block in tree.blocks.items()}
        blocks = {cids.of(block): block for block in renamed.values()} | {cids.of(bad): bad}
        root = cids.of(renamed[tree.root])
        try:
            expected = one_by_one(blocks, root)
        except (FormatError, ProofError) as error:
            with pytest.raises(type(error)):
                at_once(blocks, root)
        else:
            assert at_once(blocks, root) == expected
