"""The Merkle Search Tree: building and reading."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import cid as cids
from holdproof.crypto import mst, mst_node
from holdproof.crypto.cid import CID
from holdproof.crypto.mst import Nodes
from holdproof.crypto.mst_node import Node
from holdproof.errors import FormatError, InvalidInputError, ProofError
from tests.fixtures import fixture, load

from .blocks import ITEMS, MUTATIONS, TREE_KEYS, leaf, mutants

VALUE = cids.parse_text("bafyreie5cvv4h45feadgeuwhbcutmh6t2ceseocckahdoe6uat64zmz454")


def build(keys: list[str], value: CID = VALUE) -> mst.Tree:
    return mst.build((key, value) for key in sorted(keys))


def examples() -> list[str]:
    return fixture("atproto/mst/example_keys.txt").read_text().split()


@pytest.mark.parametrize(  # github.com/bluesky-social/atproto, packages/repo/tests/mst.test.ts
    ("keys", "root"),
    [
        ([], "bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm"),
        (["com.example.record/3jqfcqzm3fo2j"], "bafyreibj4lsc3aqnrvphp5xmrnfoorvru4wynt6lwidqbm2623a6tatzdu"),
        (["com.example.record/3jqfcqzm3fx2j"], "bafyreih7wfei65pxzhauoibu3ls7jgmkju4bspy4t2ha2qdjnzqvoy33ai"),
    ],
)
def test_the_published_small_roots_hold(keys: list[str], root: str) -> None:
    value = cids.parse_text("bafyreie5cvv4h45feadgeuwhbcutmh6t2ceseocckahdoe6uat64zmz454")
    assert str(build(keys, value).root) == root


def test_the_published_roots_before_and_after_commits_hold() -> None:
    cases = load("atproto/commit-proof-fixtures.json")
    for case in cases:
        value = cids.parse_text(case["leafValue"])
        assert str(build(case["keys"], value).root) == case["rootBeforeCommit"], case["comment"]
        after = set(case["keys"]) - set(case["dels"]) | set(case["adds"])
        assert str(build(list(after), value).root) == case["rootAfterCommit"], case["comment"]
    assert len(cases) == 6


@given(ITEMS)
def test_what_was_built_is_read_back(items: dict[str, CID]) -> None:
    tree = mst.build(sorted(items.items()))
    get = tree.blocks.get
    assert list(mst.walk(get, tree.root)) == sorted(items.items())
    for key, value in items.items():
        assert mst.find(get, tree.root, key) == value
    assert {cid for cid, _ in mst.nodes(get, tree.root)} == tree.blocks.keys()
    assert mst.find(get, tree.root, "object/not-there") is None


@given(ITEMS, TREE_KEYS | st.just(""), TREE_KEYS | st.none())
def test_a_range_is_a_slice_of_the_whole(items: dict[str, CID], start: str, end: str | None) -> None:
    tree = mst.build(sorted(items.items()))
    meant = [(k, v) for k, v in sorted(items.items()) if k >= start and (end is None or k < end)]
    assert list(mst.walk(tree.blocks.get, tree.root, start=start, end=end)) == meant


@given(ITEMS, st.sampled_from(["", "o", "object", "object/", "object/a", "meta/", "z"]))
def test_a_prefix_is_a_range(items: dict[str, CID], prefix: str) -> None:
    tree = mst.build(sorted(items.items()))
    meant = [(k, v) for k, v in sorted(items.items()) if k.startswith(prefix)]
    assert list(mst.walk_prefix(tree.blocks.get, tree.root, prefix)) == meant


def test_a_range_fetches_only_what_it_needs() -> None:
    keys = [f"object/{number:05}" for number in range(2000)]
    tree = build(keys)
    fetched: list[CID] = []

    def spy(cid: CID) -> bytes | None:
        fetched.append(cid)
        return tree.blocks.get(cid)

    assert len(list(mst.walk(spy, tree.root, start="object/01000", end="object/01010"))) == 10
    assert len(fetched) < 30
    fetched.clear()
    mst.find(spy, tree.root, "object/01234")
    assert len(fetched) < 12


def test_nodes_come_in_preorder() -> None:
    tree = build(examples())
    order = [cid for cid, _ in mst.nodes(tree.blocks.get, tree.root)]
    assert order[0] == tree.root
    seen: set[CID] = set()
    for cid, node in mst.nodes(tree.blocks.get, tree.root):
        assert not {child for child in node.children if child} & seen
        seen.add(cid)
    assert len(order) == len(tree.blocks)


@pytest.mark.parametrize("keys", [["b/x", "a/x"], ["a/x", "a/x"], ["a"], ["a/b/c"]])
def test_only_ascending_valid_keys_are_built(keys: list[str]) -> None:
    with pytest.raises(InvalidInputError):
        mst.build((key, VALUE) for key in keys)


def test_only_plain_values_are_built() -> None:
    with pytest.raises(InvalidInputError):
        mst.build([("a/b", cids.parse(b"\x12\x20" + bytes(32)))])


def test_an_invalid_key_is_not_looked_for() -> None:
    with pytest.raises(InvalidInputError):
        mst.find(build([]).blocks.get, mst.EMPTY_ROOT, "nonsense")


def test_a_missing_or_wrong_block_is_a_proof_error() -> None:
    tree = build(examples())
    for cid in list(tree.blocks)[::4]:
        good = tree.blocks[cid]
        for damaged in ({}, {cid: b""}, {cid: good[:-1] + bytes([good[-1] ^ 1])}, {cid: mst.EMPTY_BLOCK}):
            blocks = {other: data for other, data in tree.blocks.items() if other != cid} | damaged
            with pytest.raises(ProofError):
                list(mst.walk(blocks.get, tree.root))
            with pytest.raises(ProofError):
                list(mst.nodes(blocks.get, tree.root))


def forged(top: Node, *below: Node) -> tuple[CID, dict[CID, bytes]]:
    blocks: dict[CID, bytes] = {}
    for node in below:
        mst.store(node, blocks)
    return mst.store(top, blocks), blocks


LOW = Node(("B0/601692",), (VALUE,), (None, None), 0)
LOW_CID = cids.of(mst_node.encode(LOW))
HOLLOW_CID = cids.of(mst_node.encode(mst_node.EMPTY))


@pytest.mark.parametrize(
    ("rule", "top", "below"),
    [
        ("wrong layer", Node(("C2/014073",), (VALUE,), (LOW_CID, None), 2), [LOW]),
        ("outside", Node(("A1/076595",), (VALUE,), (LOW_CID, None), 1), [LOW]),
        ("outside", Node(("C1/438573",), (VALUE,), (None, LOW_CID), 1), [LOW]),
        ("lowest", Node(("A0/374913",), (VALUE,), (None, LOW_CID), 0), [LOW]),
        ("nothing in it", Node(("A1/076595",), (VALUE,), (None, HOLLOW_CID), 1), [mst_node.EMPTY]),
        ("without a key", Node((), (), (LOW_CID,), None), [LOW]),
    ],
)
def test_a_tree_of_well_formed_nodes_in_the_wrong_places_is_refused(rule: str, top: Node, below: list[Node]) -> None:
    root, blocks = forged(top, *below)
    with pytest.raises(FormatError, match=rule):
        list(mst.walk(blocks.get, root))
    with pytest.raises(FormatError, match=rule):
        list(mst.nodes(blocks.get, root))


def test_the_same_nodes_in_the_right_places_are_accepted() -> None:
    root, blocks = forged(Node(("A1/076595", "C1/438573"), (VALUE,) * 2, (None, LOW_CID, None), 1), LOW)
    assert [key for key, _ in mst.walk(blocks.get, root)] == ["A1/076595", "B0/601692", "C1/438573"]


def test_a_mutated_tree_is_never_anything_but_refused() -> None:
    """Blocks are replaced by damaged ones under their true hash, up to the root: the shape itself is wrong then."""
    keys = [f"object/{number:03}" for number in range(60)]
    tree = build(keys)
    child, data = next((cid, data) for cid, data in tree.blocks.items() if cid != tree.root)
    for bad in mutants([data], MUTATIONS // 5):
        renamed = {old: block.replace(child.raw, cids.of(bad).raw) for old, block in tree.blocks.items()}
        blocks = {cids.of(block): block for block in renamed.values()} | {cids.of(bad): bad}
        root = cids.of(renamed[tree.root])
        try:
            found = list(mst.walk(blocks.get, root))
        except FormatError:
            continue
        assert found == sorted(set(found))


def test_remembered_nodes_give_the_same_answers() -> None:
    keys = [f"object/{number:04}" for number in range(500)]
    tree = build(keys)
    for memory in (1, 10, 4096):
        get = Nodes(tree.blocks.get, memory=memory)
        rng = random.Random(1)
        for _ in range(200):
            key = rng.choice(keys)
            assert mst.find(get, tree.root, key) == VALUE
            assert mst.find(get, tree.root, key + "x") is None
        assert list(mst.walk(get, tree.root)) == [(key, VALUE) for key in keys]
        assert get(tree.root) == tree.blocks[tree.root]


def test_what_is_remembered_is_not_fetched_again() -> None:
    tree = build([f"object/{number:04}" for number in range(500)])
    fetched: list[CID] = []
    get = Nodes(lambda cid: (fetched.append(cid), tree.blocks.get(cid))[1])  # type: ignore[func-returns-value]
    mst.find(get, tree.root, "object/0123")
    first = len(fetched)
    mst.find(get, tree.root, "object/0123")
    assert len(fetched) == first > 2


def test_keys_of_many_layers_are_joined_by_nodes_without_keys() -> None:
    tree = build(["A0/374913", "B5/116729"])
    shapes = [(len(node.keys), node.layer) for _, node in mst.nodes(tree.blocks.get, tree.root)]
    assert shapes == [(1, 5), (0, None), (0, None), (0, None), (0, None), (1, 0)]
    assert mst.find(tree.blocks.get, tree.root, "A0/374913") == VALUE


def test_the_vector_of_the_format_document_holds() -> None:
    """A vector of our own, beside the published ones."""
    tree = mst.build(sorted((f"object/note-{number}", leaf(str(number))) for number in range(100)))
    assert str(tree.root) == "bafyreia5nmbetlre4ipjs3w57ac2dx5xr575s66o72d7djyhcvwwzsbnya"
    assert len(tree.blocks) == 20
