"""The pure half of an audit: a tree recomputed from its leaves, whatever the pages."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdproof.crypto import frontier, merkle
from holdproof.evidence import digests
from holdproof.evidence.digests import digest
from holdproof.evidence.hashers import Hashers
from holdproof.evidence.replay import FullTile, Replay, roots_of


def leaves(count: int) -> list[bytes]:
    return [b"leaf %d" % number for number in range(count)]


def replay(found: list[bytes], tiles_a_page: int, sizes: tuple[int, ...] = ()) -> tuple[Replay, list[FullTile]]:
    made, sealed = Replay(sizes), []
    for at in range(0, len(found), tiles_a_page * 256):
        sealed += made.feed(*digest(b"\n".join(found[at : at + tiles_a_page * 256])))
    return made, sealed


@settings(max_examples=25, deadline=None)
@given(count=st.integers(1, 3000), tiles_a_page=st.integers(1, 5), sizes=st.lists(st.integers(0, 3200), max_size=8))
def test_the_outcome_does_not_depend_on_the_pages(count: int, tiles_a_page: int, sizes: list[int]) -> None:
    found = leaves(count)
    hashes = merkle.leaf_hashes(found)
    made, sealed = replay(found, tiles_a_page, tuple(sizes))
    grown = frontier.append(frontier.EMPTY, hashes)
    assert made.frontier() == grown.frontier
    assert made.size == count
    assert made.roots == {size: merkle.root(hashes[:size]) for size in sizes if size <= count}
    assert list(made.stems()) == list(grown.stems)
    assert sealed == []
    assert made.tile_counts() == ({0: count // 256} if count >= 256 else {})


def test_tiles_above_the_leaves_are_sealed_when_they_are_full() -> None:
    count = 256 * 256 + 300
    made, sealed = replay(leaves(count), 32, (65_535, 65_536, 65_537, count))
    hashes = merkle.leaf_hashes(leaves(count))
    roots = [merkle.root(hashes[at : at + 256]) for at in range(0, 65_536, 256)]
    assert sealed == [FullTile(1, 0, b"".join(roots))]
    assert [(stem.level, stem.index) for stem in made.stems()] == [(1, 256), (2, 0)]
    assert next(stem.hash for stem in made.stems() if stem.level == 2) == merkle.root(roots)
    assert made.roots[count] == merkle.root(hashes)
    assert made.roots[65_535] == merkle.root(hashes[:65_535])
    assert made.tile_counts() == {0: 257, 1: 1}


def test_roots_over_tiles_are_those_of_the_digests() -> None:
    for count in (1, 255, 256, 257, 1024):
        hashes, roots = digest(b"\n".join(leaves(count)))
        assert hashes == b"".join(merkle.leaf_hashes(leaves(count)))
        assert roots == roots_of(hashes)


@pytest.mark.parametrize("helpers", [1, 2, 3])
def test_helpers_answer_in_order_what_would_be_answered_here(helpers: int) -> None:
    pages = [b"\n".join(leaves(256 * size)) for size in (1, 4, 2, 1, 8, 3)]
    answers = []
    with Hashers(helpers) as made:
        for page in pages:
            if not made.free:
                answers.append(made.take())
            made.put(page)
        while made.busy:
            answers.append(made.take())
    assert answers == [digest(page) for page in pages]


def test_a_helper_that_dies_only_costs_time() -> None:
    page = b"\n".join(leaves(512))
    with Hashers(2) as made:
        for helper in made._helpers:
            helper._process.kill()
            helper._process.wait()
        made.put(page)
        made.put(page)
        assert [made.take(), made.take()] == [digest(page)] * 2


def test_without_helpers_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", os.fspath(tmp_path / "no python here"))
    with Hashers(4) as made:
        made.put(b"one\ntwo")
        assert not made.free
        assert made.take() == digest(b"one\ntwo")


def test_the_helper_imports_nothing_but_the_standard_library() -> None:
    text = Path(digests.__file__).read_text(encoding="utf-8")
    assert "holdproof" not in "".join(line for line in text.splitlines() if "import" in line)


@settings(max_examples=25, deadline=None)
@given(before=st.integers(0, 300), more=st.integers(0, 1000), tiles_a_page=st.integers(1, 5))
def test_what_begins_at_a_tile_continues_the_tree(before: int, more: int, tiles_a_page: int) -> None:
    whole = leaves(before * 256 + more)
    made, _ = replay(whole[: before * 256], 8)
    begun: dict[int, list[bytes]] = {}
    for stem in made.stems():
        begun.setdefault(stem.level, []).append(stem.hash)
    continued = Replay([before * 256, len(whole)], begun)
    assert continued.size == before * 256
    for at in range(before * 256, len(whole) or 1, tiles_a_page * 256):
        continued.feed(*digest(b"\n".join(whole[at : at + tiles_a_page * 256])) if at < len(whole) else (b"", b""))
    if not more:
        continued.feed(b"", b"")
    grown = frontier.append(frontier.EMPTY, merkle.leaf_hashes(whole)).frontier
    assert continued.frontier() == grown
    assert continued.roots[before * 256] == made.frontier().root()
    assert continued.roots[len(whole)] == grown.root()
    assert continued.tile_counts() == replay(whole, 8)[0].tile_counts()
