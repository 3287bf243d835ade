"""Proofs about a Merkle Search Tree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import cid as cids
from holdproof.crypto import mst, mst_edit
from holdproof.crypto.cid import CID
from holdproof.crypto.mst_node import Node
from holdproof.errors import FormatError, InvalidInputError, ProofError
from tests.fixtures import load
from tests.unit.crypto import mst_proof

from .blocks import CIDS, ITEMS, TREE_KEYS, leaf
from .test_mst import build

BIG = {f"object/{number:05}": leaf(str(number)) for number in range(3000)}
TREE = mst.build(sorted(BIG.items()))


@given(ITEMS, TREE_KEYS, CIDS)
def test_every_proof_holds_for_what_is_true_and_for_nothing_else(items: dict[str, CID], key: str, other: CID) -> None:
    tree = mst.build(sorted(items.items()))
    for asked in {key, *items}:
        proof = mst_proof.prove(tree.blocks.get, tree.root, asked)
        value = items.get(asked)
        assert mst_proof.check(tree.root, asked, proof) == value
        if value is None:
            mst_proof.verify_exclusion(tree.root, asked, proof)
        else:
            mst_proof.verify_inclusion(tree.root, asked, value, proof)
            with pytest.raises(ProofError):
                mst_proof.verify_exclusion(tree.root, asked, proof)
        if other != value:
            with pytest.raises(ProofError):
                mst_proof.verify_inclusion(tree.root, asked, other, proof)


@given(st.sampled_from(sorted(BIG)), st.booleans(), st.data())
def test_a_mutated_proof_fails(key: str, there: bool, data: st.DataObject) -> None:
    asked = key if there else key + "x"
    proof = mst_proof.prove(TREE.blocks.get, TREE.root, asked)
    cid = data.draw(st.sampled_from(sorted(proof)))
    block = bytearray(proof[cid])
    at = data.draw(st.integers(0, len(block) - 1))
    block[at] ^= 1 << data.draw(st.integers(0, 7))
    bad = bytes(block)
    renamed = {known: content for known, content in proof.items() if known != cid} | {cids.of(bad): bad}
    for forged in ({**proof, cid: bad}, {k: v for k, v in proof.items() if k != cid}, {**proof, cid: b""}, renamed):
        with pytest.raises(FormatError):
            mst_proof.check(TREE.root, asked, forged)


@given(st.sampled_from(sorted(BIG)))
def test_a_proof_is_a_path_and_no_more(key: str) -> None:
    proof = mst_proof.prove(TREE.blocks.get, TREE.root, key)
    assert len(proof) <= 9
    assert sum(map(len, proof.values())) < 8000
    assert mst_proof.check(TREE.root, key, proof) == BIG[key]
    with pytest.raises(ProofError):
        mst_proof.check(leaf("another root"), key, proof)


def test_a_proof_of_one_key_says_nothing_about_a_distant_one() -> None:
    proof = mst_proof.prove(TREE.blocks.get, TREE.root, "object/00000")
    with pytest.raises(ProofError, match="missing"):
        mst_proof.check(TREE.root, "object/02999", proof)


def test_a_wrong_block_that_nobody_needs_fails_the_proof_too() -> None:
    proof = mst_proof.prove(TREE.blocks.get, TREE.root, "object/00000")
    with pytest.raises(ProofError):
        mst_proof.check(TREE.root, "object/00000", {**proof, leaf("stray"): b"not it"})
    assert mst_proof.check(TREE.root, "object/00000", {**proof, leaf("stray"): b"stray"}) == BIG["object/00000"]


def test_the_empty_tree_is_proven_to_hold_nothing() -> None:
    tree = mst.build([])
    proof = mst_proof.prove(tree.blocks.get, tree.root, "a/b")
    mst_proof.verify_exclusion(mst.EMPTY_ROOT, "a/b", proof)
    with pytest.raises(ProofError):
        mst_proof.verify_exclusion(mst.EMPTY_ROOT, "a/b", {})


def test_a_key_hidden_in_the_wrong_layer_is_no_proof_of_absence() -> None:
    """An author who puts a key where nobody looks cannot then prove that it is absent."""
    hidden = Node(("B0/601692",), (leaf("v"),), (None, None), 0)
    blocks: dict[CID, bytes] = {}
    below = mst.store(hidden, blocks)
    root = mst.store(Node(("A2/827942",), (leaf("v"),), (None, below), 2), blocks)
    with pytest.raises(FormatError, match="layer"):
        mst_proof.check(root, "B1/986427", blocks)


def test_an_invalid_key_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        mst_proof.check(mst.EMPTY_ROOT, "nonsense", {})


def test_the_published_covering_proofs_have_exactly_the_published_blocks() -> None:
    for case in load("atproto/commit-proof-fixtures.json"):
        value = cids.parse_text(case["leafValue"])
        old = build(case["keys"], value)
        changes = dict.fromkeys(case["adds"], value) | dict.fromkeys(case["dels"])
        new = mst_edit.apply(old.blocks.get, old.root, changes)
        get = {**old.blocks, **new.blocks}.get
        proof = mst_proof.prove_covering(get, new.root, [*case["adds"], *case["dels"]])
        assert {str(cid) for cid in proof} == set(case["blocksInProof"]), case["comment"]
        for key in case["adds"]:
            mst_proof.verify_inclusion(new.root, key, value, proof)
        for key in case["dels"]:
            mst_proof.verify_exclusion(new.root, key, proof)


@given(ITEMS, TREE_KEYS, CIDS)
def test_a_covering_proof_is_enough_to_undo_the_change(items: dict[str, CID], key: str, value: CID) -> None:
    """Whoever has the old root and the proof alone can check that nothing else was changed."""
    old = mst.build(sorted(items.items()))
    new = mst_edit.put(old.blocks.get, old.root, key, value)
    proof = mst_proof.prove_covering({**old.blocks, **new.blocks}.get, new.root, [key])
    assert mst_edit.apply(proof.get, new.root, {key: items.get(key)}).root == old.root
    if key in items:
        gone = mst_edit.delete(old.blocks.get, old.root, key)
        proof = mst_proof.prove_covering({**old.blocks, **gone.blocks}.get, gone.root, [key])
        assert mst_edit.put(proof.get, gone.root, key, items[key]).root == old.root
