"""A reader's side of tlog-tiles: which tiles and entry bundles a log has, and the entries of a bundle."""

from collections.abc import Iterator

from holdproof.crypto import tiles
from holdproof.crypto.tiles import WIDTH, EntryBundle, Tile
from holdproof.errors import FormatError


def tiles_of(size: int) -> Iterator[Tile]:
    """Yield every tile of the tree of `size` leaves, level by level."""
    return tiles.new_tiles(0, size)


def bundles_of(size: int) -> Iterator[EntryBundle]:
    """Yield every entry bundle of the tree of `size` leaves."""
    return (EntryBundle(tile.index, tile.width) for tile in tiles_of(size) if tile.level == 0)


def decode_bundle(data: bytes, width: int = WIDTH) -> tuple[bytes, ...]:
    """Return the entries of a bundle; FormatError unless it holds exactly `width` of them."""
    entries: list[bytes] = []
    at = 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if at + 2 > len(data) or end > len(data):
            raise FormatError("entry bundle: cut short", offset=at, length=len(data))
        entries.append(data[at + 2 : end])
        at = end
    if len(entries) != width:
        raise FormatError("entry bundle: another number of entries", count=len(entries), width=width)
    return tuple(entries)
