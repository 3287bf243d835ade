"""C2SP tlog-tiles: the tree as files of 256 hashes, their paths, and proofs out of them.

- Tile (L, N) holds the hashes of the nodes at tree level 8·L, indices 256·N … 256·N+255; a partial tile
  holds the first W of them. Empty tiles do not exist. Bundle N holds the entries under tile (0, N).
- A path has one spelling: three digits to an element, all but the last with an `x`.
- What a fetch returns is not trusted: a proof made from tiles is worth what `merkle.verify_*` says of it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from holdproof.crypto import merkle
from holdproof.errors import FormatError, InvalidInputError

WIDTH = 256
HASH = 32
FULL = WIDTH * HASH

_PATH = re.compile(r"tile/(entries|0|[1-9][0-9]?)/((?:x[0-9]{3}/){0,6}[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?")


@dataclass(frozen=True, slots=True, order=True)
class Tile:
    """A tile of hashes; `width` 256 is a full one."""

    level: int
    index: int
    width: int = WIDTH

    @property
    def path(self) -> str:
        """`tile/<L>/<N>[.p/<W>]`."""
        return f"tile/{self.level}/{_number(self.index)}{_partial(self.width)}"


@dataclass(frozen=True, slots=True, order=True)
class Bundle:
    """A bundle of entries; `width` 256 is a full one."""

    index: int
    width: int = WIDTH

    @property
    def path(self) -> str:
        """`tile/entries/<N>[.p/<W>]`."""
        return f"tile/entries/{_number(self.index)}{_partial(self.width)}"


Fetch: TypeAlias = Callable[[Tile], bytes]


def parse_path(path: str) -> Tile | Bundle:
    """The tile or bundle that a path names."""
    found = _PATH.fullmatch(path)
    if found is None:
        raise FormatError("not the path of a tile", path=path[:100])
    index = int(found[2].replace("x", "").replace("/", ""))
    width = int(found[3]) if found[3] else WIDTH
    if found[3] and width >= WIDTH:
        raise FormatError("a partial tile has 1 to 255 entries", path=path)
    named = Bundle(index, width) if found[1] == "entries" else Tile(int(found[1]), index, width)
    if (isinstance(named, Tile) and named.level > 63) or named.path != path:
        raise FormatError("not the path of a tile", path=path)
    return named


def encode_bundle(entries: Sequence[bytes]) -> bytes:
    """1 to 256 entries, each after its length in two bytes."""
    if not 1 <= len(entries) <= WIDTH:
        raise InvalidInputError(f"a bundle has 1 to {WIDTH} entries", count=len(entries))
    if (longest := max(map(len, entries))) > 0xFFFF:
        raise InvalidInputError("an entry has at most 65535 bytes", length=longest)
    return b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)


def decode_bundle(data: bytes, width: int = WIDTH) -> tuple[bytes, ...]:
    """The entries of a bundle that must hold exactly `width` of them."""
    entries, at = [], 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if at + 2 > len(data) or end > len(data):
            raise FormatError("entry bundle: cut short", offset=at, length=len(data))
        entries.append(data[at + 2 : end])
        at = end
    if len(entries) != width:
        raise FormatError("entry bundle: another number of entries", count=len(entries), width=width)
    return tuple(entries)


def tiles_of(size: int) -> Iterator[Tile]:
    """Every tile of the tree of `size` leaves, level by level."""
    return new_tiles(0, size)


def bundles_of(size: int) -> Iterator[Bundle]:
    """Every entry bundle of the tree of `size` leaves."""
    return (Bundle(tile.index, tile.width) for tile in tiles_of(size) if tile.level == 0)


def new_tiles(old: int, new: int) -> Iterator[Tile]:
    """The tiles of the tree of `new` leaves that the tree of `old` leaves did not have as they are now."""
    if not 0 <= old <= new:
        raise InvalidInputError("a tree only grows", old=old, new=new)
    for level in range(8):
        before, after = old >> 8 * level, new >> 8 * level
        if after > before:
            for index in range(before // WIDTH, -(-after // WIDTH)):
                yield Tile(level, index, min(WIDTH, after - index * WIDTH))


def tile_of(level: int, index: int, size: int) -> Tile:
    """The tile that holds (the descendants of) a complete node, as the tree of `size` leaves has it."""
    tile_level, inner = divmod(level, 8)
    number = (index << inner) // WIDTH
    width = min(WIDTH, (size >> 8 * tile_level) - number * WIDTH)
    if width < 1 or (index + 1) << level > size:
        raise InvalidInputError("no such complete node in this tree", level=level, index=index, size=size)
    return Tile(tile_level, number, width)


def lookup(size: int, fetch: Fetch) -> merkle.Lookup:
    """Look up complete nodes in the tiles of the tree of `size` leaves, each tile fetched once."""
    kept: dict[Tile, bytes] = {}

    def find(level: int, index: int) -> bytes:
        tile = tile_of(level, index, size)
        hashes = kept.get(tile)
        if hashes is None:
            hashes = kept[tile] = _checked(tile, fetch(tile))
        inner = level % 8
        start = ((index << inner) % WIDTH) * HASH
        row = [hashes[at : at + HASH] for at in range(start, start + (HASH << inner), HASH)]
        return merkle.root(row)

    return find


def tiles_for_inclusion(index: int, size: int) -> tuple[Tile, ...]:
    """The tiles an inclusion proof needs, to be fetched at once."""
    return _tiles_for(merkle.inclusion_nodes(index, size), size)


def tiles_for_consistency(old: int, new: int) -> tuple[Tile, ...]:
    """The tiles a consistency proof needs, to be fetched at once."""
    return _tiles_for(merkle.consistency_nodes(old, new), new)


def prove_inclusion(index: int, size: int, fetch: Fetch) -> tuple[bytes, ...]:
    """An inclusion proof out of tiles."""
    return merkle.prove_inclusion(index, size, lookup(size, fetch))


def prove_consistency(old: int, new: int, fetch: Fetch) -> tuple[bytes, ...]:
    """A consistency proof out of the tiles of the newer tree."""
    return merkle.prove_consistency(old, new, lookup(new, fetch))


def root_at(size: int, fetch: Fetch) -> bytes:
    """The root out of tiles."""
    return merkle.root_at(size, lookup(size, fetch))


def _tiles_for(nodes: Iterable[merkle.Node], size: int) -> tuple[Tile, ...]:
    return tuple(dict.fromkeys(tile_of(level, index, size) for level, index in nodes))


def _checked(tile: Tile, data: bytes) -> bytes:
    """The tile's own hashes; a full tile may stand in for a partial one that was deleted since."""
    if len(data) not in (tile.width * HASH, FULL):
        raise FormatError("tile: another length than its width", path=tile.path, length=len(data))
    return data[: tile.width * HASH]


def _number(index: int) -> str:
    if index < 0:
        raise InvalidInputError("a tile has no negative index", index=index)
    digits = str(index)
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    groups = [digits[at : at + 3] for at in range(0, len(digits), 3)]
    return "/".join([f"x{group}" for group in groups[:-1]] + groups[-1:])


def _partial(width: int) -> str:
    if not 1 <= width <= WIDTH:
        raise InvalidInputError(f"a tile has 1 to {WIDTH} entries", width=width)
    return "" if width == WIDTH else f".p/{width}"
