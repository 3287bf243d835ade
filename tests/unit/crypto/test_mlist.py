"""Merkle lists: the same elements, the same root, however they were appended."""

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdproof.crypto import cid as cids
from holdproof.crypto import dagcbor, mlist
from holdproof.crypto.cid import CID
from holdproof.crypto.dagcbor import Value
from holdproof.crypto.mlist import FAN_OUT, LEAF_BYTES, LEAF_ITEMS
from holdproof.errors import FormatError, InvalidInputError, ProofError

from .blocks import MUTATIONS, VALUES, leaf, mutants, same
from .test_dagcbor import nested

SIZES = st.sampled_from([0, 1, 40, 700, 3000, 9000])
ELEMENTS = st.lists(st.builds(lambda size, fill: fill * size, SIZES, st.sampled_from([b"a", b"b"])), max_size=60)
FULL_NODE = LEAF_ITEMS * FAN_OUT
TURNS = [0, 1, 2, LEAF_ITEMS - 1, LEAF_ITEMS, LEAF_ITEMS + 1, 2 * LEAF_ITEMS]
TURNS += [FULL_NODE + near for near in (-1, 0, 1, LEAF_ITEMS, LEAF_ITEMS + 1)] + [2 * FULL_NODE + 1]
TURNS += [FULL_NODE * FAN_OUT + near for near in (-1, 0, 1)]


def numbers(count: int) -> list[Value]:
    return list(range(count))


@given(ELEMENTS, st.lists(st.integers(0, 60), max_size=6))
def test_however_appended_the_root_is_the_same(elements: list[Value], cuts: list[int]) -> None:
    whole = mlist.build(elements)
    blocks = dict(mlist.build([]).blocks)
    root = cids.of(next(iter(blocks.values())))
    edges = sorted({0, len(elements), *(cut for cut in cuts if cut < len(elements))})
    for start, end in pairwise(edges):
        made = mlist.append(blocks.get, root, elements[start:end])
        blocks.update(made.blocks)
        root = made.root
    assert root == whole.root
    assert whole.blocks.items() <= blocks.items()
    assert list(mlist.walk(blocks.get, root)) == elements
    assert mlist.verify(blocks.get, root) == mlist.length(blocks.get, root) == len(elements)


@settings(max_examples=40)
@given(st.lists(VALUES, max_size=18))
def test_elements_of_every_kind_survive(elements: list[Value]) -> None:
    made = mlist.build(elements)
    assert same(list(mlist.walk(made.blocks.get, made.root)), elements)
    for index, value in enumerate(elements):
        assert same(mlist.element(made.blocks.get, made.root, index), value)


@pytest.mark.parametrize("count", TURNS)
def test_one_more_element_is_right_at_every_turn(count: int) -> None:
    made = mlist.build(numbers(count))
    assert mlist.length(made.blocks.get, made.root) == count
    more = mlist.append(made.blocks.get, made.root, [count])
    assert more.root == mlist.build(numbers(count + 1)).root
    blocks = {**made.blocks, **more.blocks}
    for index in {0, count // 2, max(0, count - 1), count}:
        assert mlist.element(blocks.get, more.root, index) == index
    assert list(mlist.walk(blocks.get, more.root, max(0, count - 40))) == numbers(count + 1)[-41:]


def test_every_length_up_to_two_nodes_is_reached_one_by_one() -> None:
    made = mlist.build([])
    blocks, root = dict(made.blocks), made.root
    for count in range(2 * FULL_NODE + 2):
        made = mlist.append(blocks.get, root, [count])
        blocks.update(made.blocks)
        root = made.root
        if count % 97 == 0 or count % LEAF_ITEMS == 0:
            assert root == mlist.build(numbers(count + 1)).root
    assert mlist.verify(blocks.get, root) == 2 * FULL_NODE + 2


@given(st.integers(0, 700), st.integers(0, 700), st.integers(0, 700))
def test_a_range_is_a_slice(count: int, start: int, end: int) -> None:
    made = mlist.build(numbers(count))
    assert list(mlist.walk(made.blocks.get, made.root, start, end)) == numbers(count)[start:end]
    assert list(mlist.walk(made.blocks.get, made.root, start)) == numbers(count)[start:]


def test_an_append_writes_few_and_small_blocks() -> None:
    message: Value = {"role": "user", "content": "a message of some length " * 10}
    made = mlist.build([message] * 20_000)
    blocks, root = dict(made.blocks), made.root
    counts, sizes = [], []
    for _ in range(100):
        made = mlist.append(blocks.get, root, [message])
        blocks.update(made.blocks)
        root = made.root
        counts.append(len(made.blocks))
        sizes.append(sum(map(len, made.blocks.values())))
    assert max(counts) <= 5
    assert sum(sizes) / len(sizes) < 8000


def test_a_range_and_an_element_fetch_only_what_they_need() -> None:
    made = mlist.build(numbers(20_000))
    fetched: list[CID] = []

    def spy(cid: CID) -> bytes | None:
        fetched.append(cid)
        return made.blocks.get(cid)

    assert mlist.element(spy, made.root, 12_345) == 12_345
    assert len(fetched) <= 4
    fetched.clear()
    assert list(mlist.walk(spy, made.root, 19_990)) == numbers(20_000)[19_990:]
    assert len(fetched) <= 6
    fetched.clear()
    mlist.append(spy, made.root, [1])
    assert len(fetched) <= 4


def test_leaves_end_by_number_and_by_bytes() -> None:
    def leaves(elements: list[Value]) -> list[int]:
        made = mlist.build(elements)
        found: list[Any] = [dagcbor.decode(data) for data in made.blocks.values()]
        return sorted(block["n"] for block in found if block["h"] == 0)

    assert leaves(numbers(LEAF_ITEMS)) == [LEAF_ITEMS]
    assert leaves([*numbers(LEAF_ITEMS), 0]) == [1, LEAF_ITEMS]
    half = bytes(LEAF_BYTES // 2 - 3)
    assert leaves([half, half]) == [2]
    assert leaves([half, half, 0]) == [1, 2]
    assert leaves([0, bytes(LEAF_BYTES * 3), 1]) == [1, 1, 1]


def test_no_block_is_larger_than_a_block_may_be() -> None:
    largest = bytes(mlist.MAX_ELEMENT - 5)
    made = mlist.build([1, largest, 2])
    assert max(map(len, made.blocks.values())) <= dagcbor.MAX_SIZE
    assert mlist.element(made.blocks.get, made.root, 1) == largest
    assert mlist.element(made.blocks.get, made.root, 2) == 2
    with pytest.raises(InvalidInputError):
        mlist.build([bytes(mlist.MAX_ELEMENT)])


def test_a_deeply_nested_element_is_refused_before_it_makes_a_leaf_unreadable() -> None:
    made = mlist.build([nested(dagcbor.MAX_DEPTH - 2, maps=True)])
    assert mlist.verify(made.blocks.get, made.root) == 1
    with pytest.raises(InvalidInputError):
        mlist.build([nested(dagcbor.MAX_DEPTH - 1, maps=True)])


def test_old_roots_stay_valid_and_share_what_they_can() -> None:
    made = mlist.build(numbers(1000))
    blocks, roots = dict(made.blocks), [made.root]
    for count in range(1000, 1100):
        more = mlist.append(blocks.get, roots[-1], [count])
        blocks.update(more.blocks)
        roots.append(more.root)
    for number, root in enumerate(roots):
        assert mlist.verify(blocks.get, root) == 1000 + number
    assert len(blocks) < len(made.blocks) + 4 * 100


@pytest.mark.parametrize("index", [-1, 5, 2**70])
def test_an_index_outside_is_refused(index: int) -> None:
    made = mlist.build(numbers(5))
    with pytest.raises(InvalidInputError):
        mlist.element(made.blocks.get, made.root, index)


@pytest.mark.parametrize(("start", "end"), [(-1, None), (0, -1)])
def test_negative_bounds_are_refused(start: int, end: int | None) -> None:
    made = mlist.build(numbers(5))
    with pytest.raises(InvalidInputError):
        list(mlist.walk(made.blocks.get, made.root, start, end))


def test_a_missing_or_wrong_block_is_a_proof_error() -> None:
    made = mlist.build(numbers(1200))
    for cid, data in made.blocks.items():
        others = {other: block for other, block in made.blocks.items() if other != cid}
        for damaged in (others, {**others, cid: data[:-1] + bytes([data[-1] ^ 1])}):
            with pytest.raises(ProofError):
                mlist.verify(damaged.get, made.root)


LEAF = dagcbor.encode({"c": [1], "h": 0, "n": 1})
ONE = cids.of(LEAF)


@pytest.mark.parametrize(
    "bad",
    [
        [],
        {},
        {"c": [], "h": 0},
        {"c": [], "h": 0, "n": 0, "x": 0},
        {"c": {}, "h": 0, "n": 0},
        {"c": [], "h": 0, "n": 1},
        {"c": [], "h": False, "n": 0},
        {"c": [], "h": 0, "n": False},
        {"c": [], "h": -1, "n": 0},
        {"c": [], "h": 13, "n": 0},
        {"c": [], "h": 1, "n": 0},
        {"c": list(range(17)), "h": 0, "n": 17},
        {"c": [1, ONE], "h": 1, "n": 2},
        {"c": [1, ONE, 1], "h": 1, "n": 1},
        {"c": [0, ONE], "h": 1, "n": 0},
        {"c": [True, ONE], "h": 1, "n": 1},
        {"c": [ONE, 1], "h": 1, "n": 1},
        {"c": [1, ONE.raw], "h": 1, "n": 1},
        {"c": [1, cids.of_raw(LEAF)], "h": 1, "n": 1},
        {"c": [1, ONE] * 33, "h": 1, "n": 33},
        {"c": [2, ONE], "h": 1, "n": 2},
        {"c": [1, ONE], "h": 2, "n": 1},
    ],
)
def test_a_malformed_block_is_refused(bad: Value) -> None:
    data = dagcbor.encode(bad)
    blocks = {cids.of(data): data, ONE: LEAF, cids.of_raw(LEAF): LEAF}
    with pytest.raises(FormatError):
        list(mlist.walk(blocks.get, cids.of(data)))


def test_another_shape_of_the_same_elements_does_not_verify() -> None:
    """Readable, but not the one tree of its elements: two half-filled leaves, and a top with one child."""
    contents: list[list[Value]] = [[1, ONE, 1, ONE], [1, ONE]]
    for content in contents:
        data = dagcbor.encode({"c": content, "h": 1, "n": len(content) // 2})
        blocks = {cids.of(data): data, ONE: LEAF}
        assert list(mlist.walk(blocks.get, cids.of(data))) == [1] * (len(content) // 2)
        with pytest.raises(FormatError, match="shape"):
            mlist.verify(blocks.get, cids.of(data))


def test_mutated_blocks_are_read_or_refused() -> None:
    made = mlist.build(numbers(200))
    seeds = list(made.blocks.values())
    for bad in mutants(seeds, MUTATIONS // 4):
        blocks = {**made.blocks, cids.of(bad): bad}
        try:
            found = list(mlist.walk(blocks.get, cids.of(bad)))
        except FormatError:
            continue
        assert mlist.length(blocks.get, cids.of(bad)) == len(found)


def test_the_vectors_of_the_format_hold() -> None:
    """Vectors of our own: if one breaks, every stored list loses its name."""
    vectors = {
        0: "bafyreicr7gkrpmaqcfp7gra7mzes2s6fne536x2i6uol7g3ijromhdszoi",
        1: "bafyreia76zkoerrhzfi5di3kyvgyh5nguhfepum7frz5fj6lkajcrfgbta",
        17: "bafyreiahyyrm56unit7pw2srok3ftfymoflj5woyr4wsni4pc7tahk55u4",
        10_000: "bafyreiblof556jk575on5mjpxt3oznpvv4duqczyn2g2gp4fymj6vuoj3e",
    }
    assert {count: str(mlist.build(numbers(count)).root) for count in vectors} == vectors
    empty = mlist.build([])
    assert empty.blocks == {empty.root: dagcbor.encode({"c": [], "h": 0, "n": 0})}


def test_random_histories_verify() -> None:
    rng = random.Random(3)
    made = mlist.build([])
    blocks, root, meant = dict(made.blocks), made.root, []
    for _ in range(60):
        chunk: list[Value] = [rng.choice([rng.randbytes(rng.choice([1, 50, 5000])), leaf("x"), None])] * rng.randrange(
            9
        )
        meant += chunk
        made = mlist.append(blocks.get, root, chunk)
        blocks.update(made.blocks)
        root = made.root
        assert mlist.verify(blocks.get, root) == len(meant)
    assert list(mlist.walk(blocks.get, root)) == meant
