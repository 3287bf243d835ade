"""The frontier: the right edge of a Merkle tree, all that is needed to append and to know the root.

- One hash for each set bit of the size (a *peak*: a complete subtree), largest first: at most 63 of them.
- `append` takes a batch of leaf hashes and costs one node hash per leaf plus O(log n); the result does not
  depend on how leaves were batched.
- It gives back the *stems*, the nodes completed at levels 8, 16, 24 …: exactly the entries of tiles above
  level 0. A storage layer that keeps leaf hashes and stems can build every tile and every proof.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from holdproof.crypto.lines import MAX_SIZE
from holdproof.crypto.merkle import EMPTY_ROOT, node_hash
from holdproof.errors import FormatError, InvalidInputError


@dataclass(frozen=True, slots=True)
class Stem:
    """A completed node that is entry `index` of the tiles at tile level `level` (1 and above)."""

    level: int
    index: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Frontier:
    """A tree's size and its peaks, the largest first."""

    size: int = 0
    peaks: tuple[bytes, ...] = ()

    def root(self) -> bytes:
        """Return the root of the tree."""
        if not self.peaks:
            return EMPTY_ROOT
        digest = self.peaks[-1]
        for peak in self.peaks[-2::-1]:
            digest = node_hash(peak, digest)
        return digest

    def to_bytes(self) -> bytes:
        """Return eight bytes of size, then the peaks."""
        return self.size.to_bytes(8, "big") + b"".join(self.peaks)


class Growth(NamedTuple):
    """What an append made: the new frontier and the stems it completed."""

    frontier: Frontier
    stems: tuple[Stem, ...]


EMPTY = Frontier()


def from_bytes(data: bytes) -> Frontier:
    """Return the frontier that `to_bytes` wrote."""
    size = int.from_bytes(data[:8], "big")
    # One peak for each set bit of the size.
    if len(data) != 8 + 32 * size.bit_count() or size > MAX_SIZE:
        raise FormatError("frontier: its length does not fit its size", length=len(data), size=size)
    # A list comprehension, not a generator: this runs once a commit.
    return Frontier(size, tuple([data[at : at + 32] for at in range(8, len(data), 32)]))


def append(frontier: Frontier, leaves: Sequence[bytes]) -> Growth:
    """Append leaf hashes, in order."""
    if set(map(len, leaves)) - {32}:
        raise InvalidInputError("a leaf hash has 32 bytes")
    if frontier.size + len(leaves) > MAX_SIZE:
        raise InvalidInputError("the tree would outgrow 2^63-1 leaves", size=frontier.size)
    peaks = list(frontier.peaks)
    row = list(leaves)
    edge: list[bytes] = []  # the new peaks, the smallest first
    stems: list[Stem] = []
    level = 0
    complete = frontier.size  # `complete`: how many nodes of this level were there before
    while row:
        # An odd number of nodes: the last one waits as a peak and pairs with the first new node.
        if complete & 1:
            row.insert(0, peaks.pop())
        if len(row) & 1:
            edge.append(row[-1])
        pairs = iter(row)
        row = [sha256(b"\x01" + a + b).digest() for a, b in zip(pairs, pairs, strict=False)]
        level = level + 1
        complete = complete >> 1
        # Every eighth level is a row of tiles above level 0.
        if row and level % 8 == 0:
            stems.extend(Stem(level // 8, complete + at, digest) for at, digest in enumerate(row))
    edge.reverse()
    return Growth(Frontier(frontier.size + len(leaves), (*peaks, *edge)), tuple(stems))
