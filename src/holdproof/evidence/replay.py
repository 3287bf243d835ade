"""Recompute a tree from its leaves alone, page by page: the pure half of an audit.

Rules:
- No stored hash is trusted: stems, tiles, frontier and roots all follow from the hashes of the leaves fed in.
- Memory is bounded: one page of hashes, and the open tile of each level.
- The outcome does not depend on how the leaves were divided into pages.
- It may begin at a full tile, with the open tiles above it; what was fed in before is then as true as the root that the
  caller expects at a size behind it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from holdproof.crypto import frontier, merkle
from holdproof.crypto.frontier import EMPTY, Frontier, Stem
from holdproof.crypto.tiles import FULL, HASH, WIDTH


@dataclass(frozen=True, slots=True)
class FullTile:
    """A full tile above the leaves."""

    level: int
    index: int
    hashes: bytes


class Replay:
    """A tree being recomputed; `roots` fills with the roots at the sizes asked for.

    `open_tiles` are the open tiles above the leaves, by level, of the tree that it continues.
    """

    def __init__(
        self, sizes: Iterable[int] = (), open_tiles: Mapping[int, Sequence[bytes]] = MappingProxyType({})
    ) -> None:
        self.roots: dict[int, bytes] = {}
        self._sizes = sorted(set(sizes), reverse=True)
        # Leaves come in tiles of 256, whose roots are the leaves of the tree above; only the open tile is kept whole.
        self._above = _edge_of(open_tiles)
        self._tail = b""
        self._open: dict[int, list[bytes]] = {level: [*row] for level, row in open_tiles.items()}

    @property
    def size(self) -> int:
        """Return how many leaves were fed in."""
        return self._above.size * WIDTH + len(self._tail) // HASH

    def frontier(self) -> Frontier:
        """Return the right edge of the tree so far."""
        return self._frontier_with(self._tail)

    def feed(self, hashes: bytes, roots: bytes) -> list[FullTile]:
        """Continue with these leaf hashes and the roots over their full tiles; a page begins where a tile does.

        Returns the tiles above the leaves that became full.
        """
        assert not self._tail, "only the last page may end inside a tile"
        assert len(roots) // HASH == len(hashes) // FULL, "a root for every full tile"
        sealed: list[FullTile] = []
        self._note_roots(b"")
        for number in range(len(roots) // HASH):
            self._note_roots(hashes[number * FULL : (number + 1) * FULL])
            grown = frontier.append(self._above, [roots[number * HASH : (number + 1) * HASH]])
            self._above = grown.frontier
            tile_root = Stem(1, self._above.size - 1, roots[number * HASH : (number + 1) * HASH])
            sealed += self._seal([tile_root, *(Stem(s.level + 1, s.index, s.hash) for s in grown.stems)])
        tail = hashes[len(roots) // HASH * FULL :]
        self._note_roots(tail)
        self._tail = tail
        return sealed

    def stems(self) -> Iterator[Stem]:
        """Yield the nodes above the leaves that are in no full tile."""
        for level, row in sorted(self._open.items()):
            first = (self.size >> 8 * level) - len(row)
            yield from (Stem(level, first + number, digest) for number, digest in enumerate(row))

    def tile_counts(self) -> dict[int, int]:
        """Return how many full tiles each level has."""
        counts = {level: (self.size >> 8 * level) // WIDTH for level in range(8)}
        return {level: count for level, count in counts.items() if count}

    def _frontier_with(self, tail: bytes) -> Frontier:
        """Return the right edge if these leaf hashes, less than a tile, came next."""
        leaves = [tail[at : at + HASH] for at in range(0, len(tail), HASH)]
        below = frontier.append(EMPTY, leaves).frontier
        return Frontier(self._above.size * WIDTH + below.size, (*self._above.peaks, *below.peaks))

    def _note_roots(self, hashes: bytes) -> None:
        """Record the requested roots at sizes that end among these leaf hashes, which come next."""
        start = self._above.size * WIDTH
        while self._sizes and self._sizes[-1] <= start + len(hashes) // HASH:
            size = self._sizes[-1]
            if size - start >= WIDTH:  # it ends with this tile: recorded by the next call, once the tile is added
                return
            self.roots[self._sizes.pop()] = self._frontier_with(hashes[: (size - start) * HASH]).root()

    def _seal(self, stems: Iterable[Stem]) -> Iterator[FullTile]:
        for stem in stems:
            row = self._open.setdefault(stem.level, [])
            row.append(stem.hash)
            if len(row) == WIDTH:
                yield FullTile(stem.level, stem.index // WIDTH, b"".join(row))
                row.clear()


def _edge_of(open_tiles: Mapping[int, Sequence[bytes]]) -> Frontier:
    """Return the right edge of the tree whose open tiles these are; its leaves are the roots of the tiles below."""
    size = sum(len(row) << 8 * (level - 1) for level, row in open_tiles.items())
    # Every tile's part of the edge is that of its own hashes: 256 of one level are one of the next.
    edges = (frontier.append(EMPTY, open_tiles[level]).frontier for level in sorted(open_tiles, reverse=True))
    return Frontier(size, tuple(peak for edge in edges for peak in edge.peaks))


def roots_of(hashes: bytes) -> bytes:
    """Return the roots over the full tiles of these leaf hashes."""
    tiles = (hashes[at : at + FULL] for at in range(0, len(hashes) // FULL * FULL, FULL))
    return b"".join(merkle.root([tile[at : at + HASH] for at in range(0, FULL, HASH)]) for tile in tiles)
