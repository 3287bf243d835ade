"""C2SP tlog-tiles: the tree as files of 256 hashes, their paths, and proofs out of them.

- Tile (L, N) holds the hashes of the nodes at tree level 8·L, indices 256·N … 256·N+255; a partial tile
  holds the first W of them. Empty tiles do not exist. Bundle N holds the entries under tile (0, N).
- A path has one spelling: three digits to an element, all but the last with an `x`.
- What a fetch returns is not trusted: a proof made from tiles is worth what `merkle.verify_*` says of it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from holdproof.crypto import merkle
from holdproof.errors import FormatError, InvalidInputError

WIDTH = 256
HASH = 32
FULL = WIDTH * HASH

# At most seven groups of three digits: an index below 2^63 needs no more.
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
    """Return the tile or bundle that a path names."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise FormatError("not the path of a tile", path=path[:100])
    kind, number, partial = match.groups()
    index = int(number.replace("x", "").replace("/", ""))
    width = int(partial) if partial else WIDTH
    if partial and width >= WIDTH:
        raise FormatError("a partial tile has 1 to 255 entries", path=path)
    result = Bundle(index, width) if kind == "entries" else Tile(int(kind), index, width)
    # Spelled again: leading zeros that the pattern lets through must not make a second path for one tile.
    if (isinstance(result, Tile) and result.level > 63) or result.path != path:
        raise FormatError("not the path of a tile", path=path)
    return result


def encode_bundle(entries: Sequence[bytes]) -> bytes:
    """1 to 256 entries, each after its length in two bytes."""
    if not 1 <= len(entries) <= WIDTH:
        raise InvalidInputError(f"a bundle has 1 to {WIDTH} entries", count=len(entries))
    if (longest := max(map(len, entries))) > 0xFFFF:
        raise InvalidInputError("an entry has at most 65535 bytes", length=longest)
    return b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)


def tiles_of(size: int) -> Iterator[Tile]:
    """Yield every tile of the tree of `size` leaves, level by level."""
    return new_tiles(0, size)


def new_tiles(old: int, new: int) -> Iterator[Tile]:
    """Yield the tiles of the tree of `new` leaves that the tree of `old` leaves did not have as they are now."""
    if not 0 <= old <= new:
        raise InvalidInputError("a tree only grows", old=old, new=new)
    for level in range(8):
        before = old >> 8 * level
        after = new >> 8 * level
        # A level changes only if it gained an entry; its last tile may grow from partial to full.
        if after > before:
            for index in range(before // WIDTH, -(-after // WIDTH)):
                yield Tile(level, index, min(WIDTH, after - index * WIDTH))


def tile_of(level: int, index: int, size: int) -> Tile:
    """Return the tile that holds (the descendants of) a complete node, as the tree of `size` leaves has it."""
    tile_level, inner = divmod(level, 8)
    number = (index << inner) // WIDTH
    width = min(WIDTH, (size >> 8 * tile_level) - number * WIDTH)
    if width < 1 or (index + 1) << level > size:
        raise InvalidInputError("no such complete node in this tree", level=level, index=index, size=size)
    return Tile(tile_level, number, width)


def lookup(size: int, fetch: Fetch) -> merkle.Lookup:
    """Look up complete nodes in the tiles of the tree of `size` leaves, each tile fetched once."""
    cache: dict[Tile, bytes] = {}

    def find(level: int, index: int) -> bytes:
        tile = tile_of(level, index, size)
        hashes = cache.get(tile)
        if hashes is None:
            hashes = cache[tile] = _checked(tile, fetch(tile))
        inner = level % 8
        start = ((index << inner) % WIDTH) * HASH
        # A node inside a tile is the root over the tile's entries below it.
        row = [hashes[at : at + HASH] for at in range(start, start + (HASH << inner), HASH)]
        return merkle.root(row)

    return find


def prove_inclusion(index: int, size: int, fetch: Fetch) -> tuple[bytes, ...]:
    """Return an inclusion proof out of tiles."""
    return merkle.prove_inclusion(index, size, lookup(size, fetch))


def prove_consistency(old: int, new: int, fetch: Fetch) -> tuple[bytes, ...]:
    """Return a consistency proof out of the tiles of the newer tree."""
    return merkle.prove_consistency(old, new, lookup(new, fetch))


def root_at(size: int, fetch: Fetch) -> bytes:
    """Return the root out of tiles."""
    return merkle.root_at(size, lookup(size, fetch))


def _checked(tile: Tile, data: bytes) -> bytes:
    """Return the tile's own hashes; a full tile may stand in for a partial one that was deleted since."""
    if len(data) not in (tile.width * HASH, FULL):
        raise FormatError("tile: another length than its width", path=tile.path, length=len(data))
    return data[: tile.width * HASH]


def _number(index: int) -> str:
    if index < 0:
        raise InvalidInputError("a tile has no negative index", index=index)
    digits = str(index)
    # Groups of three digits keep directories small.
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    groups = [digits[at : at + 3] for at in range(0, len(digits), 3)]
    return "/".join([f"x{group}" for group in groups[:-1]] + groups[-1:])


def _partial(width: int) -> str:
    if not 1 <= width <= WIDTH:
        raise InvalidInputError(f"a tile has 1 to {WIDTH} entries", width=width)
    return "" if width == WIDTH else f".p/{width}"
