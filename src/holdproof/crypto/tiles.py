"""C2SP tlog-tiles: the tree as files of 256 hashes, their paths, and proofs computed from them.

- Tile (L, N) holds the hashes of the nodes at tree level 8·L, indices 256·N … 256·N+255; a partial tile
  holds the first W of them. Empty tiles do not exist. Bundle N holds the entries under tile (0, N).
- A path has one spelling: three digits per element, all but the last prefixed with `x`.
- Fetched tiles are not trusted: a proof computed from them must still pass `merkle.verify_*`.
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

_PATH = re.compile(
    r"tile/(?P<level>entries|0|[1-9][0-9]?)/(?P<index>(?:x[0-9]{3}/){0,6}[0-9]{3})(?:\.p/(?P<width>[1-9][0-9]{0,2}))?"
)


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
class EntryBundle:
    """A bundle of entries; `width` 256 is a full one."""

    index: int
    width: int = WIDTH

    @property
    def path(self) -> str:
        """`tile/entries/<N>[.p/<W>]`."""
        return f"tile/entries/{_number(self.index)}{_partial(self.width)}"


Fetch: TypeAlias = Callable[[Tile], bytes]


def parse_path(path: str) -> Tile | EntryBundle:
    """Parse the path of a tile or an entry bundle; FormatError for any other spelling."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise FormatError("not the path of a tile", path=path[:100])
    index = int(match["index"].replace("x", "").replace("/", ""))
    width = int(match["width"]) if match["width"] else WIDTH
    if match["width"] and width >= WIDTH:
        raise FormatError("a partial tile has 1 to 255 entries", path=path)
    target = EntryBundle(index, width) if match["level"] == "entries" else Tile(int(match["level"]), index, width)
    # Comparing with the canonical path refuses what the pattern cannot, such as leading zero groups.
    if (isinstance(target, Tile) and target.level > 63) or target.path != path:
        raise FormatError("not the path of a tile", path=path)
    return target


def encode_bundle(entries: Sequence[bytes]) -> bytes:
    """Encode 1 to 256 entries, each prefixed with its length in two bytes."""
    if not 1 <= len(entries) <= WIDTH:
        raise InvalidInputError(f"a bundle has 1 to {WIDTH} entries", count=len(entries))
    if (longest := max(map(len, entries))) > 0xFFFF:
        raise InvalidInputError("an entry has at most 65535 bytes", length=longest)
    return b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)


def new_tiles(old: int, new: int) -> Iterator[Tile]:
    """Yield the tiles that are new or changed when a tree grows from `old` to `new` leaves, level by level."""
    if not 0 <= old <= new:
        raise InvalidInputError("a tree only grows", old=old, new=new)
    for level in range(8):
        # How many hashes this tile level had, and has now.
        before = old >> 8 * level
        after = new >> 8 * level
        if after > before:
            # From the tile that was partial (or is new) to the last one; -(-a // b) rounds up.
            for index in range(before // WIDTH, -(-after // WIDTH)):
                yield Tile(level, index, min(WIDTH, after - index * WIDTH))


def tile_of(level: int, index: int, size: int) -> Tile:
    """Return the tile that holds a complete node, or its descendants, in the tree of `size` leaves."""
    # Tiles store every eighth level; a node in between is computed from the 2^inner hashes below it.
    tile_level, inner = divmod(level, 8)
    number = (index << inner) // WIDTH
    width = min(WIDTH, (size >> 8 * tile_level) - number * WIDTH)
    if width < 1 or (index + 1) << level > size:
        raise InvalidInputError("no such complete node in this tree", level=level, index=index, size=size)
    return Tile(tile_level, number, width)


def lookup(size: int, fetch: Fetch) -> merkle.Lookup:
    """Return a function that computes complete nodes from the tiles of a tree; it fetches each tile once."""
    cache: dict[Tile, bytes] = {}

    def find(level: int, index: int) -> bytes:
        tile = tile_of(level, index, size)
        hashes = cache.get(tile)
        if hashes is None:
            hashes = _check_length(tile, fetch(tile))
            cache[tile] = hashes
        inner = level % 8
        start = ((index << inner) % WIDTH) * HASH
        row = [hashes[at : at + HASH] for at in range(start, start + (HASH << inner), HASH)]
        return merkle.root(row)

    return find


def prove_inclusion(index: int, size: int, fetch: Fetch) -> tuple[bytes, ...]:
    """Compute an inclusion proof from tiles."""
    return merkle.prove_inclusion(index, size, lookup(size, fetch))


def prove_consistency(old: int, new: int, fetch: Fetch) -> tuple[bytes, ...]:
    """Compute a consistency proof from the tiles of the newer tree."""
    return merkle.prove_consistency(old, new, lookup(new, fetch))


def root_at(size: int, fetch: Fetch) -> bytes:
    """Compute the root of the first `size` leaves from tiles."""
    return merkle.root_at(size, lookup(size, fetch))


def _check_length(tile: Tile, data: bytes) -> bytes:
    """Return the hashes of a fetched tile; FormatError where its length does not fit."""
    # Logs may delete a partial tile once the full one exists; C2SP lets readers use that one instead.
    if len(data) not in (tile.width * HASH, FULL):
        raise FormatError("tile: another length than its width", path=tile.path, length=len(data))
    return data[: tile.width * HASH]


def _number(index: int) -> str:
    """Return an index as path elements: three digits each, all but the last prefixed with `x`."""
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
