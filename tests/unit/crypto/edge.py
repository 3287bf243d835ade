"""The open tiles at the right edge of a tree: kept beside the frontier, they turn appends into full tiles.

A storage layer keeps, in the transaction that adds leaves: the frontier (for the root), the edge (or
rebuilds it from the leaf hashes and stems it has), and each full tile once, when `extend` hands it out.
Full tiles never change.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from holdproof.crypto.frontier import Stem
from holdproof.crypto.tiles import FULL, HASH, WIDTH, Tile
from holdproof.errors import FormatError, InvalidInputError


@dataclass(frozen=True, slots=True)
class FullTile:
    """A tile that has just become full, with its 8,192 bytes."""

    level: int
    index: int
    hashes: bytes


@dataclass(frozen=True, slots=True)
class Edge:
    """The hashes of the open tile at each tile level, from level 0 up; b"" where the last tile is full."""

    size: int = 0
    open: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        if len(self.open) != _levels(self.size) or any(
            len(hashes) != ((self.size >> 8 * level) % WIDTH) * HASH for level, hashes in enumerate(self.open)
        ):
            raise FormatError("edge: its hashes do not fit its size", size=self.size)

    def partial_tiles(self) -> tuple[tuple[Tile, bytes], ...]:
        """Return the partial tiles that tlog-tiles serves for this size."""
        return tuple(
            (Tile(level, (self.size >> 8 * level) // WIDTH, len(hashes) // HASH), hashes)
            for level, hashes in enumerate(self.open)
            if hashes
        )


def extend(edge: Edge, leaves: Sequence[bytes], stems: Sequence[Stem]) -> tuple[Edge, tuple[FullTile, ...]]:
    """Add leaf hashes and the stems their append completed; gives the new edge and the tiles now full."""
    size = edge.size + len(leaves)
    full: list[FullTile] = []
    kept: list[bytes] = []
    for level in range(_levels(size)):
        fresh = leaves if level == 0 else [stem.hash for stem in stems if stem.level == level]
        before = edge.size >> 8 * level
        if before + len(fresh) != size >> 8 * level:
            raise InvalidInputError("these stems do not belong to these leaves", level=level, size=size)
        row = (edge.open[level] if level < len(edge.open) else b"") + b"".join(fresh)
        whole = len(row) // FULL
        for at in range(whole):
            full.append(FullTile(level, before // WIDTH + at, row[at * FULL : (at + 1) * FULL]))
        kept.append(row[whole * FULL :])
    return Edge(size, tuple(kept)), tuple(full)


def _levels(size: int) -> int:
    """Return how many tile levels a tree of this size has."""
    return -(-size.bit_length() // 8)


EMPTY = Edge()
