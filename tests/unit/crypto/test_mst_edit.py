"""Changing a Merkle Search Tree: history leaves no trace."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import cid as cids
from holdproof.crypto import mst, mst_edit, mst_node
from holdproof.crypto.cid import CID
from holdproof.crypto.mst import Nodes, Tree
from holdproof.errors import InvalidInputError, NotFoundError, ProofError
from tests.fixtures import load

from .blocks import CIDS, ITEMS, TREE_KEYS, leaf
from .test_mst import examples

CHANGES = st.lists(st.tuples(TREE_KEYS, st.none() | CIDS), max_size=25)


class Store:
    """A tree and all blocks it ever had."""

    def __init__(self, items: dict[str, CID], *, remember: bool = False) -> None:
        tree = mst.build(sorted(items.items()))
        self.blocks = dict(tree.blocks)
        self.root = tree.root
        self.get: mst.Get = Nodes(self.blocks.get, memory=20) if remember else self.blocks.get

    def take(self, tree: Tree) -> None:
        self.blocks.update(tree.blocks)
        self.root = tree.root


def plain(items: dict[str, CID]) -> Tree:
    return mst.build(sorted(items.items()))


@given(ITEMS, CHANGES, st.booleans())
def test_any_history_gives_the_tree_of_its_result(
    items: dict[str, CID], changes: list[tuple[str, CID | None]], remember: bool
) -> None:
    store, now = Store(items, remember=remember), dict(items)
    for key, value in changes:
        if value is not None:
            now[key] = value
            store.take(mst_edit.put(store.get, store.root, key, value))
        elif key in now:
            del now[key]
            store.take(mst_edit.delete(store.get, store.root, key))
        else:
            with pytest.raises(NotFoundError):
                mst_edit.delete(store.get, store.root, key)
        assert store.root == plain(now).root
    assert list(mst.walk(store.blocks.get, store.root)) == sorted(now.items())


@given(ITEMS, st.randoms(use_true_random=False))
def test_any_order_of_writing_gives_the_same_root(items: dict[str, CID], rng: random.Random) -> None:
    order = list(items.items())
    rng.shuffle(order)
    store = Store({})
    for key, value in order:
        store.take(mst_edit.put(store.get, store.root, key, value))
    assert store.root == plain(items).root
    rng.shuffle(order)
    for key, _ in order:
        store.take(mst_edit.delete(store.get, store.root, key))
    assert store.root == mst.EMPTY_ROOT


@given(ITEMS, st.dictionaries(TREE_KEYS, CIDS, max_size=20), st.sets(TREE_KEYS, max_size=20))
def test_many_changes_at_once_are_the_same_as_one_by_one(
    items: dict[str, CID], puts: dict[str, CID], gone: set[str]
) -> None:
    changes: dict[str, CID | None] = {**puts, **dict.fromkeys(gone & items.keys())}
    meant = {key: value for key, value in {**items, **changes}.items() if value is not None}
    store = Store(items)
    made = mst_edit.apply(store.get, store.root, changes)
    assert made.root == plain(meant).root
    needed = plain(meant).blocks
    assert all(needed.get(cid) == data for cid, data in made.blocks.items()), "only what the new tree holds is written"
    assert needed.keys() <= made.blocks.keys() | store.blocks.keys()


def test_the_published_commits_lead_to_the_published_roots() -> None:
    for case in load("atproto/commit-proof-fixtures.json"):
        value = cids.parse_text(case["leafValue"])
        store = Store(dict.fromkeys(case["keys"], value))
        changes = dict.fromkeys(case["adds"], value) | dict.fromkeys(case["dels"])
        assert str(mst_edit.apply(store.get, store.root, changes).root) == case["rootAfterCommit"], case["comment"]


@pytest.mark.parametrize("seed", range(3))
def test_the_example_keys_can_come_and_go_in_any_order(seed: int) -> None:
    """Keys of six layers under each letter: splits and joins of every depth."""
    keys, rng = examples(), random.Random(seed)
    now: dict[str, CID] = {}
    store = Store({}, remember=True)
    for _ in range(400):
        key = rng.choice(keys)
        if key in now:
            del now[key]
            store.take(mst_edit.delete(store.get, store.root, key))
        else:
            now[key] = leaf(key)
            store.take(mst_edit.put(store.get, store.root, key, now[key]))
        assert store.root == plain(now).root


def test_an_unchanged_value_changes_nothing() -> None:
    store = Store({f"object/{number}": leaf("x") for number in range(50)})
    made = mst_edit.put(store.get, store.root, "object/7", leaf("x"))
    assert made == Tree(store.root, {})
    assert mst_edit.apply(store.get, store.root, {}) == Tree(store.root, {})


@pytest.mark.parametrize("count", [100, 1000, 10_000])
def test_one_key_rewrites_a_path_and_not_the_tree(count: int) -> None:
    store = Store({f"object/{number:06}": leaf("x") for number in range(count)})
    rng = random.Random(count)
    written, fetched = [], []
    spy: mst.Get = lambda cid: (fetched.append(cid), store.blocks.get(cid))[1]  # type: ignore[func-returns-value] # noqa: E731
    for _ in range(50):
        key = f"object/{rng.randrange(count):06}"
        made = mst_edit.put(spy, store.root, key, leaf("y"))
        written.append(len(made.blocks))
        for change in (mst_edit.put(spy, store.root, key + "x", leaf("y")), mst_edit.delete(spy, store.root, key)):
            assert len(change.blocks) < 25
    layers = mst_node.layer_of(next(iter(mst.nodes(store.get, store.root)))[1].keys[0]) + 1
    assert max(written) <= layers
    assert len(fetched) < 150 * 3 * layers


def test_the_old_tree_stays_as_it_was() -> None:
    store = Store({f"object/{number}": leaf("x") for number in range(200)})
    root, before = store.root, dict(store.blocks)
    for number in range(0, 200, 3):
        store.take(mst_edit.delete(store.get, store.root, f"object/{number}"))
    assert len(list(mst.walk(before.get, root))) == 200
    assert all(store.blocks[cid] == data for cid, data in before.items())


def test_the_last_key_leaves_the_empty_tree() -> None:
    store = Store({"B5/116729": leaf("x"), "A0/374913": leaf("y")})
    store.take(mst_edit.delete(store.get, store.root, "B5/116729"))
    assert store.root == plain({"A0/374913": leaf("y")}).root
    store.take(mst_edit.delete(store.get, store.root, "A0/374913"))
    assert store.root == mst.EMPTY_ROOT
    assert store.blocks[store.root] == mst.EMPTY_BLOCK


@pytest.mark.parametrize("key", ["A0/374914", "B5/116729", "Z0/425878"])
def test_a_key_that_is_not_there_cannot_be_deleted(key: str) -> None:
    for items in ({}, {"A0/374913": leaf("y"), "C1/438573": leaf("y")}):
        store = Store(items)
        with pytest.raises(NotFoundError):
            mst_edit.delete(store.get, store.root, key)


@pytest.mark.parametrize("key", ["", "a", "a/b/c", "a/é"])
def test_an_invalid_key_is_refused(key: str) -> None:
    for value in (leaf("x"), None):
        with pytest.raises(InvalidInputError):
            mst_edit.apply(mst.build([]).blocks.get, mst.EMPTY_ROOT, {key: value})


def test_a_value_that_is_not_plain_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        mst_edit.put(mst.build([]).blocks.get, mst.EMPTY_ROOT, "a/b", cids.parse(b"\x12\x20" + bytes(32)))


def test_a_missing_block_is_a_proof_error() -> None:
    store = Store({f"object/{number}": leaf("x") for number in range(200)})
    for cid in list(store.blocks):
        blocks = {other: data for other, data in store.blocks.items() if other != cid}
        with pytest.raises(ProofError):
            mst_edit.apply(blocks.get, store.root, {f"object/{number}": leaf("y") for number in range(200)})
