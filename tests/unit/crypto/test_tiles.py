"""tlog-tiles: paths, bundles, and the 70,000-leaf example of the C2SP text."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import tiles as log_tiles
from holdproof.crypto import frontier, merkle, tiles
from holdproof.crypto.tiles import EntryBundle, Tile
from holdproof.errors import FormatError, InvalidInputError

from .material import hashes, refuses

TILES = st.builds(Tile, st.integers(0, 63), st.integers(0, 2**55), st.integers(1, 256))
BUNDLES = st.builds(EntryBundle, st.integers(0, 2**55), st.integers(1, 256))


@pytest.mark.parametrize(
    ("tile", "path"),
    [
        (Tile(0, 1234067), "tile/0/x001/x234/067"),  # the index of the C2SP text
        (Tile(0, 0), "tile/0/000"),
        (Tile(0, 999), "tile/0/999"),
        (Tile(0, 1000), "tile/0/x001/000"),
        (Tile(63, 5, 255), "tile/63/005.p/255"),
        (Tile(1, 1234067, 1), "tile/1/x001/x234/067.p/1"),
        (EntryBundle(1234067), "tile/entries/x001/x234/067"),
        (EntryBundle(273, 112), "tile/entries/273.p/112"),
    ],
)
def test_a_path_is_spelled_as_the_text_says(tile: Tile | EntryBundle, path: str) -> None:
    assert tile.path == path
    assert tiles.parse_path(path) == tile


@given(TILES | BUNDLES)
def test_a_path_names_one_tile(tile: Tile | EntryBundle) -> None:
    assert tiles.parse_path(tile.path) == tile


@pytest.mark.parametrize(
    "path",
    [
        "",
        "tile",
        "tile/0",
        "/tile/0/000",
        "tile/0/000/",
        "tile/00/000",
        "tile/64/000",
        "tile/-1/000",
        "tile/0/0",
        "tile/0/0000",
        "tile/0/001/000",
        "tile/0/x001",
        "tile/0/x000/001",
        "tile/0/000.p/0",
        "tile/0/000.p/256",
        "tile/0/000.p/01",
        "tile/0/000.p/",
        "tile/0/000.p",
        "tile/data/000",
        "tile/0/\u0660\u0660\u0660",
        "tile/0/000\n",
        "tile/0/../000",
        "tile/0/" + "x001/" * 7 + "000",
    ],
)
def test_any_other_spelling_is_refused(path: str) -> None:
    with pytest.raises(FormatError):
        tiles.parse_path(path)


@given(st.text() | st.from_regex(r"tile/(entries|[0-9]+)/(x?[0-9]{3}/?)+(\.p/[0-9]+)?"))
def test_an_accepted_path_is_the_only_one_for_its_tile(path: str) -> None:
    try:
        tile = tiles.parse_path(path)
    except FormatError:
        return
    assert tile.path == path


@pytest.mark.parametrize("tile", [Tile(0, -1), Tile(0, 0, 0), Tile(0, 0, 257), EntryBundle(-1), EntryBundle(0, 300)])
def test_an_impossible_tile_has_no_path(tile: Tile | EntryBundle) -> None:
    with pytest.raises(InvalidInputError):
        _ = tile.path


def test_a_tree_of_70000_leaves_has_the_tiles_of_the_c2sp_example() -> None:
    found = list(log_tiles.tiles_of(70_000))
    full = Counter(tile.level for tile in found if tile.width == 256)
    partial = [tile for tile in found if tile.width < 256]
    assert full == {0: 273, 1: 1}
    assert partial == [Tile(0, 273, 112), Tile(1, 1, 17), Tile(2, 0, 1)]
    assert [tile.path for tile in partial] == ["tile/0/273.p/112", "tile/1/001.p/17", "tile/2/000.p/1"]
    assert list(log_tiles.bundles_of(70_000))[-1] == EntryBundle(273, 112)


def test_a_tree_of_256_leaves_has_one_full_tile_and_one_of_width_one() -> None:
    assert list(log_tiles.tiles_of(256)) == [Tile(0, 0), Tile(1, 0, 1)]


def test_the_empty_tree_has_no_tiles() -> None:
    assert list(log_tiles.tiles_of(0)) == []


@given(st.integers(0, 200_000), st.integers(0, 2000))
def test_new_tiles_are_those_the_older_tree_did_not_have(old: int, more: int) -> None:
    new = old + more
    assert set(tiles.new_tiles(old, new)) == set(log_tiles.tiles_of(new)) - set(log_tiles.tiles_of(old))


def test_a_tree_does_not_shrink() -> None:
    with pytest.raises(InvalidInputError):
        list(tiles.new_tiles(2, 1))


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=256))
def test_a_bundle_survives_its_encoding(entries: list[bytes]) -> None:
    assert log_tiles.decode_bundle(tiles.encode_bundle(entries), len(entries)) == tuple(entries)


def test_a_bundle_prefixes_each_entry_with_two_bytes() -> None:
    assert tiles.encode_bundle([b"ab", b"", b"x" * 258]) == b"\x00\x02ab\x00\x00\x01\x02" + b"x" * 258


@pytest.mark.parametrize(
    ("data", "width"), [(b"", 1), (b"\x00", 1), (b"\x00\x02a", 1), (b"\x00\x01a\x00", 1), (b"\x00\x01a", 2), (b"", 256)]
)
def test_a_bundle_that_is_cut_or_miscounted_is_refused(data: bytes, width: int) -> None:
    with pytest.raises(FormatError):
        log_tiles.decode_bundle(data, width)


@pytest.mark.parametrize("entries", [[], [b""] * 257, [bytes(65536)]])
def test_an_impossible_bundle_is_not_written(entries: list[bytes]) -> None:
    with pytest.raises(InvalidInputError):
        tiles.encode_bundle(entries)


@given(st.binary(), st.integers(0, 300))
def test_arbitrary_bytes_are_a_bundle_or_a_format_error(data: bytes, width: int) -> None:
    refuses(lambda raw: log_tiles.decode_bundle(raw, width), data)


LEAVES = hashes(256) * 274
ROOT = merkle.root(LEAVES[:70_000])
STEMS = frontier.append(frontier.EMPTY, LEAVES[:70_000]).stems


def fetch(tile: Tile) -> bytes:
    """The tiles of the 70,000-leaf tree."""
    rows = LEAVES if tile.level == 0 else [stem.hash for stem in STEMS if stem.level == tile.level]
    return b"".join(rows[tile.index * 256 : tile.index * 256 + tile.width])


def tiles_holding(nodes: tuple[merkle.Node, ...]) -> list[Tile]:
    """The tiles of these nodes, each once, in the order of first use."""
    return list(dict.fromkeys(tiles.tile_of(level, index, 70_000) for level, index in nodes))


@given(st.integers(0, 69_999))
def test_a_proof_fetches_just_the_tiles_that_hold_its_nodes(index: int) -> None:
    seen: list[Tile] = []

    def spy(tile: Tile) -> bytes:
        seen.append(tile)
        return fetch(tile)

    proof = tiles.prove_inclusion(index, 70_000, spy)
    assert seen == tiles_holding(merkle.inclusion_nodes(index, 70_000))
    assert len(seen) == len(set(seen)) <= 5
    merkle.verify_inclusion(LEAVES[index], index, 70_000, proof, ROOT)


@given(st.integers(1, 70_000))
def test_consistency_out_of_tiles_holds(old: int) -> None:
    seen: list[Tile] = []

    def spy(tile: Tile) -> bytes:
        seen.append(tile)
        return fetch(tile)

    proof = tiles.prove_consistency(old, 70_000, spy)
    assert seen == tiles_holding(merkle.consistency_nodes(old, 70_000))
    assert tiles.root_at(70_000, fetch) == ROOT
    merkle.verify_consistency(old, 70_000, tiles.root_at(old, fetch), ROOT, proof)


def test_a_full_tile_may_stand_in_for_a_deleted_partial_one() -> None:
    def full(tile: Tile) -> bytes:
        return fetch(Tile(tile.level, tile.index))

    assert tiles.root_at(300, full) == merkle.root(LEAVES[:300])


@pytest.mark.parametrize("length", [0, 31, 32 * 43, 32 * 45, 8191, 8193])
def test_a_tile_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(FormatError):
        tiles.prove_inclusion(299, 300, lambda tile: bytes(length))


@pytest.mark.parametrize(("level", "index", "size"), [(0, 5, 5), (1, 2, 5), (8, 0, 255), (0, 0, 0)])
def test_no_tile_holds_an_incomplete_node(level: int, index: int, size: int) -> None:
    with pytest.raises(InvalidInputError):
        tiles.tile_of(level, index, size)
