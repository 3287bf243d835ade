"""The frontier: appending in any batches gives the tree that the RFC defines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import frontier, merkle
from holdproof.crypto.frontier import Frontier, Stem
from holdproof.errors import FormatError, InvalidInputError

from .material import batches, hashes, refuses

LEAVES = hashes(1500)
CUTS = st.lists(st.integers(0, 1500), max_size=8)


def grow(leaves: list[bytes], cuts: list[int]) -> tuple[Frontier, list[Stem]]:
    grown = frontier.EMPTY
    stems: list[Stem] = []
    for batch in batches(leaves, cuts):
        grown, fresh = frontier.append(grown, batch)
        stems.extend(fresh)
    return grown, stems


@given(st.integers(0, 1500), CUTS)
def test_the_root_of_any_batching_is_the_plain_root(size: int, cuts: list[int]) -> None:
    grown, _ = grow(LEAVES[:size], cuts)
    assert grown.size == size
    assert grown.root() == merkle.root(LEAVES[:size])


@given(st.integers(0, 1500), CUTS, CUTS)
def test_batching_leaves_no_trace(size: int, one: list[int], two: list[int]) -> None:
    assert grow(LEAVES[:size], one) == grow(LEAVES[:size], two)


def test_one_leaf_at_a_time_is_the_same_tree() -> None:
    grown = frontier.EMPTY
    for size, leaf in enumerate(LEAVES[:600], 1):
        grown = frontier.append(grown, [leaf]).frontier
        assert grown.root() == merkle.root(LEAVES[:size])


@given(st.integers(0, 1500), CUTS)
def test_the_stems_are_the_nodes_at_every_eighth_level(size: int, cuts: list[int]) -> None:
    _, stems = grow(LEAVES[:size], cuts)
    assert [(stem.level, stem.index) for stem in stems] == [(1, at) for at in range(size // 256)]
    for stem in stems:
        assert stem.hash == merkle.root(LEAVES[stem.index * 256 : (stem.index + 1) * 256])


def test_stems_of_the_second_tile_level_appear_after_65536_leaves() -> None:
    leaves = hashes(256) * 257
    grown, stems = frontier.append(frontier.EMPTY, leaves)
    upper = [stem for stem in stems if stem.level == 2]
    assert [(stem.index, stem.hash) for stem in upper] == [(0, merkle.root(leaves[:65536]))]
    assert grown.root() == merkle.root(leaves)


@given(st.integers(0, 1500))
def test_the_peaks_are_the_complete_subtrees_of_the_size(size: int) -> None:
    grown = frontier.append(frontier.EMPTY, LEAVES[:size]).frontier
    expected = [merkle.root(LEAVES[index << level : (index + 1) << level]) for level, index in merkle.root_nodes(size)]
    assert list(grown.peaks) == expected


@given(st.integers(0, 1500))
def test_a_frontier_survives_its_bytes(size: int) -> None:
    grown = frontier.append(frontier.EMPTY, LEAVES[:size]).frontier
    assert frontier.from_bytes(grown.to_bytes()) == grown


def test_an_append_of_nothing_changes_nothing() -> None:
    grown = frontier.append(frontier.EMPTY, LEAVES[:5]).frontier
    assert frontier.append(grown, []) == (grown, ())
    assert frontier.EMPTY.root() == merkle.EMPTY_ROOT


def test_appending_leaves_the_old_frontier_as_it_was() -> None:
    grown = frontier.append(frontier.EMPTY, LEAVES[:7]).frontier
    before = grown.to_bytes()
    frontier.append(grown, LEAVES[7:20])
    assert grown.to_bytes() == before


@pytest.mark.parametrize("leaf", [b"", bytes(31), bytes(33)])
def test_a_leaf_hash_of_another_length_is_refused(leaf: bytes) -> None:
    with pytest.raises(InvalidInputError):
        frontier.append(frontier.EMPTY, [LEAVES[0], leaf])


def test_a_tree_cannot_outgrow_63_bits() -> None:
    full = Frontier(2**63 - 1, tuple(hashes(63)))
    assert len(full.peaks) == (2**63 - 1).bit_count()
    with pytest.raises(InvalidInputError):
        frontier.append(full, LEAVES[:1])
    assert frontier.append(Frontier(2**63 - 2, full.peaks[:-1]), LEAVES[:1]).frontier.size == 2**63 - 1


def test_a_frontier_of_63_bits_is_read_and_a_larger_one_is_not() -> None:
    full = Frontier(2**63 - 1, tuple(hashes(63)))
    assert frontier.from_bytes(full.to_bytes()) == full
    with pytest.raises(FormatError):
        frontier.from_bytes(Frontier(2**63, tuple(hashes(1))).to_bytes())


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_frontier_or_a_format_error(data: bytes) -> None:
    refuses(frontier.from_bytes, data)


@pytest.mark.parametrize("data", [b"", bytes(7), bytes(9), bytes(7) + b"\x01", bytes(7) + b"\x03" + bytes(32)])
def test_bytes_that_do_not_fit_their_size_are_no_frontier(data: bytes) -> None:
    with pytest.raises(FormatError):
        frontier.from_bytes(data)
