"""A search in a Merkle Search Tree needs the path to the key alone, and believes nothing that is not on it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import cid as cids
from holdproof.crypto import mst, mst_edit
from holdproof.crypto.cid import CID
from holdproof.crypto.mst_node import Node
from holdproof.errors import FormatError, InvalidInputError, ProofError
from tests.fixtures import load

from .blocks import CIDS, ITEMS, TREE_KEYS, leaf
from .mst_paths import covering_blocks, path_blocks
from .test_mst import build

BIG = {f"object/{number:05}": leaf(str(number)) for number in range(3000)}
TREE = mst.build(sorted(BIG.items()))
NO_BLOCKS: dict[CID, bytes] = {}


@given(ITEMS, TREE_KEYS)
def test_the_path_to_a_key_shows_its_value_or_its_absence(items: dict[str, CID], key: str) -> None:
    tree = mst.build(sorted(items.items()))
    for each in {key, *items}:
        path = path_blocks(tree.blocks.get, tree.root, each)
        assert mst.find(path.get, tree.root, each) == items.get(each)


@given(st.sampled_from(sorted(BIG)), st.booleans(), st.data())
def test_a_mutated_path_fails(key: str, there: bool, data: st.DataObject) -> None:
    target = key if there else key + "x"
    path = path_blocks(TREE.blocks.get, TREE.root, target)
    cid = data.draw(st.sampled_from(sorted(path)))
    block = bytearray(path[cid])
    at = data.draw(st.integers(0, len(block) - 1))
    block[at] ^= 1 << data.draw(st.integers(0, 7))
    bad = bytes(block)
    renamed = {other: content for other, content in path.items() if other != cid} | {cids.of(bad): bad}
    for forged in ({**path, cid: bad}, {k: v for k, v in path.items() if k != cid}, {**path, cid: b""}, renamed):
        with pytest.raises(FormatError):
            mst.find(forged.get, TREE.root, target)


@given(st.sampled_from(sorted(BIG)))
def test_a_path_is_short(key: str) -> None:
    path = path_blocks(TREE.blocks.get, TREE.root, key)
    assert len(path) <= 9
    assert sum(map(len, path.values())) < 8000
    assert mst.find(path.get, TREE.root, key) == BIG[key]
    with pytest.raises(ProofError):
        mst.find(path.get, leaf("another root"), key)


def test_the_path_to_one_key_says_nothing_about_a_distant_one() -> None:
    path = path_blocks(TREE.blocks.get, TREE.root, "object/00000")
    with pytest.raises(ProofError, match="missing"):
        mst.find(path.get, TREE.root, "object/02999")


def test_the_empty_tree_holds_nothing_and_must_be_shown_too() -> None:
    tree = mst.build([])
    path = path_blocks(tree.blocks.get, tree.root, "a/b")
    assert mst.find(path.get, mst.EMPTY_ROOT, "a/b") is None
    with pytest.raises(ProofError):
        mst.find(NO_BLOCKS.get, mst.EMPTY_ROOT, "a/b")


def test_a_key_hidden_in_the_wrong_layer_does_not_pass_for_an_absent_one() -> None:
    """An author who puts a key where nobody looks cannot then show that it is absent."""
    hidden = Node(("B0/601692",), (leaf("v"),), (None, None), 0)
    blocks: dict[CID, bytes] = {}
    below = mst.store(hidden, blocks)
    root = mst.store(Node(("A2/827942",), (leaf("v"),), (None, below), 2), blocks)
    with pytest.raises(FormatError, match="layer"):
        mst.find(blocks.get, root, "B1/986427")


def test_an_invalid_key_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        mst.find(NO_BLOCKS.get, mst.EMPTY_ROOT, "nonsense")


def test_the_published_covering_proofs_have_exactly_the_published_blocks() -> None:
    for case in load("atproto/commit-proof-fixtures.json"):
        value = cids.parse_text(case["leafValue"])
        old = build(case["keys"], value)
        changes = dict.fromkeys(case["adds"], value) | dict.fromkeys(case["dels"])
        new = mst_edit.apply(old.blocks.get, old.root, changes)
        get = {**old.blocks, **new.blocks}.get
        proof = covering_blocks(get, new.root, [*case["adds"], *case["dels"]])
        assert {str(cid) for cid in proof} == set(case["blocksInProof"]), case["comment"]
        for key in case["adds"]:
            assert mst.find(proof.get, new.root, key) == value
        for key in case["dels"]:
            assert mst.find(proof.get, new.root, key) is None


@given(ITEMS, TREE_KEYS, CIDS)
def test_the_covering_blocks_are_enough_to_undo_the_change(items: dict[str, CID], key: str, value: CID) -> None:
    """A verifier with the old root and these blocks alone can check that nothing else was changed."""
    old = mst.build(sorted(items.items()))
    new = mst_edit.put(old.blocks.get, old.root, key, value)
    proof = covering_blocks({**old.blocks, **new.blocks}.get, new.root, [key])
    assert mst_edit.apply(proof.get, new.root, {key: items.get(key)}).root == old.root
    if key in items:
        without = mst_edit.delete(old.blocks.get, old.root, key)
        proof = covering_blocks({**old.blocks, **without.blocks}.get, without.root, [key])
        assert mst_edit.put(proof.get, without.root, key, items[key]).root == old.root
