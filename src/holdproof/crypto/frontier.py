"""The frontier: the right edge of a Merkle tree, which is all that appending and computing the root need.

- One hash for each set bit of the size (a *peak*: a complete subtree), largest first: at most 63 of them.
- `append` takes a batch of leaf hashes and costs one node hash per leaf plus O(log n); the result does not
  depend on how leaves were batched.
- It returns the *stems*, the nodes completed at levels 8, 16, 24 …: exactly the entries of tiles above
  level 0. A storage layer that stores leaf hashes and stems can build every tile and every proof.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from holdproof.crypto.lines import MAX_SIZE
from holdproof.crypto.merkle import EMPTY_ROOT
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
        """Compute the root of the tree."""
        if not self.peaks:
            return EMPTY_ROOT
        # RFC 6962 splits at the largest power of two: the peaks are joined from the smallest, on the right.
        digest = self.peaks[-1]
        for peak in self.peaks[-2::-1]:
            digest = sha256(b"\x01" + peak + digest).digest()  # merkle.node_hash, without the call
        return digest

    def to_bytes(self) -> bytes:
        """Encode as eight bytes of size, then the peaks."""
        return self.size.to_bytes(8, "big") + b"".join(self.peaks)


class Growth(NamedTuple):
    """The result of an append: the new frontier and the stems it completed."""

    frontier: Frontier
    stems: tuple[Stem, ...]


EMPTY = Frontier()


def from_bytes(data: bytes) -> Frontier:
    """Decode what `to_bytes` wrote; FormatError where the length does not fit the size."""
    size = int.from_bytes(data[:8], "big")
    if len(data) != 8 + 32 * size.bit_count() or size > MAX_SIZE:
        raise FormatError("frontier: its length does not fit its size", length=len(data), size=size)
    return Frontier(size, tuple(data[at : at + 32] for at in range(8, len(data), 32)))


def append(frontier: Frontier, leaves: Sequence[bytes]) -> Growth:
    """Append leaf hashes, in order; returns the new frontier, the given one is unchanged."""
    if set(map(len, leaves)) - {32}:
        raise InvalidInputError("a leaf hash has 32 bytes")
    if frontier.size + len(leaves) > MAX_SIZE:
        raise InvalidInputError("the tree would outgrow 2^63-1 leaves", size=frontier.size)
    peaks = list(frontier.peaks)
    nodes = list(leaves)  # the nodes that are new at this level, from left to right
    new_peaks: list[bytes] = []  # the smallest first
    stems: list[Stem] = []
    level = 0
    before = frontier.size  # how many complete nodes this level had before the append
    while nodes:
        # An odd number of old nodes means that the last one waited as a peak for its sibling.
        if before & 1:
            nodes.insert(0, peaks.pop())
        # An odd number now means that the last one waits.
        if len(nodes) & 1:
            new_peaks.append(nodes[-1])
        if len(nodes) == 1:
            break  # nothing to pair: no node of a higher level is new
        pairs = iter(nodes)
        nodes = [sha256(b"\x01" + first + second).digest() for first, second in zip(pairs, pairs, strict=False)]
        level += 1
        before >>= 1
        if nodes and level % 8 == 0:
            stems.extend(Stem(level // 8, before + at, digest) for at, digest in enumerate(nodes))
    new_peaks.reverse()
    # Peaks that no new node reached are larger than all new ones, and stay in front.
    return Growth(Frontier(frontier.size + len(leaves), (*peaks, *new_peaks)), tuple(stems))
