"""Differences of two Merkle Search Trees."""

from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import mst, mst_edit
from holdproof.crypto.cid import CID
from holdproof.crypto.mst_diff import TreeChange, diff, fresh, steps
from tests.fixtures import load

from .blocks import CIDS, ITEMS, TREE_KEYS, leaf
from .test_mst import build


def both(left: dict[str, CID], right: dict[str, CID]) -> tuple[mst.Tree, mst.Tree, mst.Get]:
    old, new = mst.build(sorted(left.items())), mst.build(sorted(right.items()))
    return old, new, {**old.blocks, **new.blocks}.get


@given(ITEMS, ITEMS)
def test_the_changes_are_exactly_those_of_the_items(left: dict[str, CID], right: dict[str, CID]) -> None:
    old, new, get = both(left, right)
    keys = sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key))
    assert list(diff(get, old.root, new.root)) == [TreeChange(key, left.get(key), right.get(key)) for key in keys]


@given(ITEMS, st.dictionaries(TREE_KEYS, st.none() | CIDS, max_size=5))
def test_the_changes_applied_to_the_old_tree_give_the_new_one(
    items: dict[str, CID], changes: dict[str, CID | None]
) -> None:
    right = {key: value for key, value in {**items, **changes}.items() if value is not None}
    old, new, get = both(items, right)
    found = {change.key: change.new for change in diff(get, old.root, new.root)}
    assert mst_edit.apply(get, old.root, found).root == new.root
    back = {change.key: change.old for change in diff(get, old.root, new.root)}
    assert mst_edit.apply(get, new.root, back).root == old.root


@given(ITEMS, ITEMS)
def test_the_way_back_is_the_same_changes_turned_round(left: dict[str, CID], right: dict[str, CID]) -> None:
    old, new, get = both(left, right)
    there = list(diff(get, old.root, new.root))
    assert [TreeChange(key, after, before) for key, before, after in there] == list(diff(get, new.root, old.root))


@given(ITEMS)
def test_a_tree_does_not_differ_from_itself(items: dict[str, CID]) -> None:
    tree = mst.build(sorted(items.items()))
    assert list(diff(lambda _: None, tree.root, tree.root)) == []


def test_the_published_commits_change_what_they_say() -> None:
    for case in load("atproto/commit-proof-fixtures.json"):
        before, after = set(case["keys"]), set(case["keys"]) - set(case["dels"]) | set(case["adds"])
        old, new = build(list(before)), build(list(after))
        changes = list(diff({**old.blocks, **new.blocks}.get, old.root, new.root))
        assert sorted(c.key for c in changes if c.old is None) == sorted(case["adds"]), case["comment"]
        assert sorted(c.key for c in changes if c.new is None) == sorted(case["dels"]), case["comment"]


def test_the_cost_follows_the_changes_and_not_the_trees() -> None:
    items = {f"object/{number:05}": leaf("x") for number in range(5000)}
    for change in (
        {"object/02500": leaf("y")},
        {"object/02500x": leaf("y")},
        {"object/9": leaf("y"), "a/0": leaf("y")},
    ):
        old, new, get = both(items, {**items, **change})
        fetched: list[CID] = []

        def spy(cid: CID, get: mst.Get = get, fetched: list[CID] = fetched) -> bytes | None:
            fetched.append(cid)
            return get(cid)

        assert [(found.key, found.new) for found in diff(spy, old.root, new.root)] == sorted(change.items())
        assert len(fetched) < 80


def test_everything_and_nothing_differ_by_everything() -> None:
    items = {f"object/{number}": leaf("x") for number in range(100)}
    old, new, get = both({}, items)
    assert [change.key for change in diff(get, old.root, new.root)] == sorted(items)
    assert all(change.new is None for change in diff(get, new.root, old.root))


@given(ITEMS, ITEMS)
def test_who_has_the_old_tree_and_what_is_fresh_has_the_new_one(left: dict[str, CID], right: dict[str, CID]) -> None:
    old, new, get = both(left, right)
    found = list(fresh(get, old.root, new.root))
    nodes = {each.cid for each in found if each.is_node}
    held = {**old.blocks, **{cid: new.blocks[cid] for cid in nodes}}
    assert dict(mst.walk(held.get, new.root)) == right
    assert {each.cid for each in found if not each.is_node} >= set(right.values()) - set(left.values())
    if old.root != new.root:
        assert found[0].cid == new.root


@given(ITEMS)
def test_all_that_is_fresh_where_there_was_nothing_comes_in_the_order_of_any_difference(items: dict[str, CID]) -> None:
    tree = mst.build(sorted(items.items()))
    get = {**tree.blocks, mst.EMPTY_ROOT: mst.EMPTY_BLOCK}.get
    found = [step if isinstance(step, CID) else step.new for step in steps(get, mst.EMPTY_ROOT, tree.root)]
    assert [cid for cid, _ in fresh(get, mst.EMPTY_ROOT, tree.root)] == found
