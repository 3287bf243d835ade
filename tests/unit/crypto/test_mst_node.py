"""Nodes of the Merkle Search Tree: their fixed layout agrees with the general codec."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import cid as cids
from holdproof.crypto import dagcbor, mst, mst_node
from holdproof.crypto.cid import CID
from holdproof.crypto.dagcbor import Value
from holdproof.crypto.mst_node import EMPTY, Node
from holdproof.errors import FormatError, InvalidInputError
from tests.fixtures import fixture, load

from .blocks import CIDS, NAMES, TREE_KEYS, leaf, mutants, survives

BLOCKS = st.builds(cids.of, st.binary(max_size=4))


def to_value(node: Node) -> Value:
    """A node through the general codec's values: slow and obviously right."""
    entries: list[Value] = []
    last = ""
    for key, value, child in zip(node.keys, node.values, node.children[1:], strict=True):
        shared = 0
        while shared < min(len(last), len(key)) and last[shared] == key[shared]:
            shared += 1
        entries.append({"p": shared, "k": key[shared:].encode(), "v": value, "t": child})
        last = key
    return {"l": node.children[0], "e": entries}


def from_value(value: Any) -> Node:
    """The node of a value, with every rule spelled out."""
    assert value.keys() == {"l", "e"}
    assert isinstance(value["e"], list)
    keys: list[str] = []
    for entry in value["e"]:
        assert entry.keys() == {"p", "k", "v", "t"}
        assert type(entry["p"]) is int
        last = keys[-1] if keys else ""
        key = last[: entry["p"]] + entry["k"].decode("ascii")
        assert 0 <= entry["p"] <= len(last)
        assert key > last
        assert key[: entry["p"] + 1] != last[: entry["p"] + 1]
        mst_node.check_key(key)
        keys.append(key)
        assert entry["v"].plain
    children = [value["l"], *(entry["t"] for entry in value["e"])]
    for child in children:
        assert child is None or child.raw[:4] == cids.CBOR_PREFIX
    layers = {mst_node.layer_of(key) for key in keys}
    assert len(layers) < 2
    layer = layers.pop() if layers else None
    return Node(tuple(keys), tuple(entry["v"] for entry in value["e"]), tuple(children), layer)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    wanted = draw(st.integers(0, 1))
    long = st.builds(lambda name: "object/" + name * 60, NAMES)
    keys = sorted(k for k in draw(st.sets(TREE_KEYS | long, max_size=30)) if mst_node.layer_of(k) == wanted)
    values = [draw(CIDS) for _ in keys]
    children = [draw(st.none() | BLOCKS) for _ in range(len(keys) + 1)]
    return Node(tuple(keys), tuple(values), tuple(children), wanted if keys else None)


@given(nodes())
def test_the_fixed_layout_is_what_the_general_codec_writes(node: Node) -> None:
    data = mst_node.encode(node)
    assert data == dagcbor.encode(to_value(node))
    assert mst_node.parse(data) == node


def test_mutated_nodes_are_judged_as_the_general_codec_and_the_rules_say() -> None:
    keys = [f"object/note-{number}" for number in range(3000)]
    low = [key for key in keys if mst_node.layer_of(key) == 0][:30]
    high = [key for key in keys if mst_node.layer_of(key) == 3][:6]
    seeds = [
        mst_node.encode(EMPTY),
        mst_node.encode(Node(tuple(sorted(low)), (leaf("v"),) * len(low), (None,) * (len(low) + 1), 0)),
        mst_node.encode(Node(tuple(sorted(high)), (leaf("v"),) * len(high), (leaf("t"),) * (len(high) + 1), 3)),
        mst_node.encode(Node((), (), (leaf("t"),), None)),
    ]
    for data in mutants(seeds):
        try:
            meant: Node | None = from_value(dagcbor.decode(data))
        except (FormatError, AssertionError, AttributeError, TypeError, UnicodeDecodeError, InvalidInputError):
            meant = None
        assert survives(mst_node.parse, data) == (meant is not None), data.hex()
        if meant is not None:
            assert mst_node.parse(data) == meant


def test_the_published_layers_hold() -> None:
    cases = load("atproto/mst/key_heights.json")
    for case in cases:
        assert mst_node.layer_of(case["key"]) == case["height"]
    assert len(cases) == 9


def test_the_example_keys_name_their_layer() -> None:
    keys = fixture("atproto/mst/example_keys.txt").read_text().split()
    for key in keys:
        assert mst_node.layer_of(key) == int(key[1])
    assert len(keys) == 156


def test_the_published_common_prefixes_hold() -> None:
    for case in load("atproto/mst/common_prefix.json"):
        assert mst_node.shared_prefix(case["left"].encode(), case["right"].encode()) == case["len"]


@given(st.binary(max_size=8), st.binary(max_size=8), st.binary(max_size=8))
def test_a_shared_prefix_is_the_longest_there_is(start: bytes, left: bytes, right: bytes) -> None:
    shared = mst_node.shared_prefix(start + left, start + right)
    assert shared >= len(start)
    assert (start + left)[:shared] == (start + right)[:shared]
    assert (start + left)[shared : shared + 1] != (start + right)[shared : shared + 1] or left == right


@pytest.mark.parametrize("key", ["a/b", "object/A-Z_~.:-09", "meta/" + "x" * 1019])
def test_a_key_is_collection_and_record(key: str) -> None:
    assert mst_node.check_key(key) == key.encode()


@pytest.mark.parametrize(
    "key",
    ["", "/", "a", "a/", "/b", "a/b/c", "a//b", "a/b ", "a/é", "a/b\n", "a/%", "a/@", "a/\ud800", "m/" + "x" * 1023],
)
def test_other_keys_are_refused(key: str) -> None:
    with pytest.raises(InvalidInputError):
        mst_node.check_key(key)


def entry(key: bytes, **more: Any) -> dict[str, Value]:
    return {"p": 0, "k": key, "v": leaf("v"), "t": None, **more}


def node(*entries: Value, **more: Any) -> dict[str, Value]:
    return {"l": None, "e": list(entries), **more}


A0, B0 = b"A0/374913", b"B0/601692"


@pytest.mark.parametrize(
    "bad",
    [
        {},
        [],
        {"e": []},
        {"l": None},
        node(more=1),
        node(l=leaf("x").raw),
        node(l=cids.of_raw(b"")),
        node(l=1),
        {"l": None, "e": {}},
        node(entry(A0, x=1)),
        node({"p": 0, "k": A0, "v": leaf("v")}),
        node(entry(A0, v=None)),
        node(entry(A0, v=leaf("v").raw)),
        node(entry(A0, v=cids.parse(b"\x12\x20" + bytes(32)))),
        node(entry(A0, t=cids.of_raw(b""))),
        node(entry(A0, p=1)),
        node(entry(A0, p=-1)),
        node(entry(A0, p=True)),
        node(entry(A0, k="A0/374913")),
        node(entry(B0), entry(A0)),
        node(entry(A0), entry(A0)),
        node(entry(A0), entry(b"", p=9)),
        node(entry(A0), entry(A0 + b"x")),  # the prefix is not shared
        node(entry(A0), entry(b"0/374913x", p=1)),  # not enough of it
        node(entry(b"")),
        node(entry(b"A0")),
        node(entry(b"A0/")),
        node(entry(b"A0/x/y")),
        node(entry(b"A0/x y")),
        node(entry(b"A0/\xff")),
        node(entry(b"A0/" + b"x" * 1022)),
        node(entry(A0), entry(b"A1/076595"[1:], p=1)),  # another layer
    ],
)
def test_a_malformed_node_is_refused(bad: Value) -> None:
    with pytest.raises(FormatError):
        mst_node.parse(dagcbor.encode(bad))


def test_a_node_beyond_a_block_is_refused() -> None:
    with pytest.raises(FormatError):
        mst_node.parse(mst.EMPTY_BLOCK + bytes(dagcbor.MAX_SIZE))


def test_keys_and_prefixes_of_every_length_are_written_alike() -> None:
    found: list[str] = []
    for size in [*range(1, 30), 250, 260, 1000]:
        name = "object/" + "x" * size
        found += [name + letter for letter in "abcdefgh" if mst_node.layer_of(name + letter) == 0][:1]
    made = Node(tuple(sorted(found)), (leaf("v"),) * len(found), (None,) * (len(found) + 1), 0)
    assert len(found) > 25
    assert mst_node.encode(made) == dagcbor.encode(to_value(made))
    assert mst_node.parse(mst_node.encode(made)) == made


def test_a_cid_is_kept_as_it_is() -> None:
    made = Node(("A0/374913",), (cids.of_raw(b"raw"),), (None, leaf("t")), 0)
    parsed = mst_node.parse(mst_node.encode(made))
    assert isinstance(parsed.values[0], CID)
    assert isinstance(parsed.children[1], CID)
    assert parsed == made
