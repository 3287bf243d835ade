"""RFC 6962 Merkle trees: hashing, roots, inclusion and consistency proofs.

- A leaf is hashed with prefix 0x00, a node with 0x01, so that no leaf can pass for a node.
- A node (level, index) covers leaves index·2^level up to (index+1)·2^level. Only complete nodes are ever
  looked up: they never change again, whatever is appended.
- A proof is accepted only if it has exactly as many hashes as the sizes require and leads to exactly the given
  roots.
- Consistency with the empty tree proves nothing, so it is refused rather than accepted.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import TypeAlias

from holdproof.errors import InvalidInputError, ProofError

Node: TypeAlias = tuple[int, int]
Lookup: TypeAlias = Callable[[int, int], bytes]
Range: TypeAlias = tuple[int, int]

EMPTY_ROOT = sha256(b"").digest()


def leaf_hash(data: bytes) -> bytes:
    """Hash the bytes of one leaf."""
    return sha256(b"\x00" + data).digest()


def leaf_hashes(leaves: Iterable[bytes]) -> list[bytes]:
    """Hash many leaves; the same as `leaf_hash` of each, without a call per leaf."""
    return [sha256(b"\x00" + data).digest() for data in leaves]


def node_hash(first: bytes, second: bytes) -> bytes:
    """Hash two children into their parent."""
    return sha256(b"\x01" + first + second).digest()


def root(hashes: Sequence[bytes]) -> bytes:
    """Compute the root of a tree from all its leaf hashes."""
    if not hashes:
        return EMPTY_ROOT
    level = list(hashes)
    while len(level) > 1:
        pairs = iter(level)
        # An odd node out moves up unchanged: pairing this way gives the same root as RFC 6962's recursive split.
        odd = [level[-1]] if len(level) % 2 else []
        level = [sha256(b"\x01" + first + second).digest() for first, second in zip(pairs, pairs, strict=False)] + odd
    [top] = level
    return top


def root_at(size: int, lookup: Lookup) -> bytes:
    """Compute the root of the first `size` leaves from complete nodes."""
    if size < 0:
        raise InvalidInputError("a tree has no negative size", size=size)
    return _hash_range((0, size), lookup) if size else EMPTY_ROOT


def prove_inclusion(index: int, size: int, lookup: Lookup) -> tuple[bytes, ...]:
    """Return the audit path of a leaf in the tree of `size` leaves, sibling first."""
    return tuple(_hash_range(span, lookup) for span in _inclusion_ranges(index, size))


def prove_consistency(old: int, new: int, lookup: Lookup) -> tuple[bytes, ...]:
    """Return the proof that the tree of `old` leaves is a prefix of the tree of `new` leaves."""
    return tuple(_hash_range(span, lookup) for span in _consistency_ranges(old, new))


def inclusion_nodes(index: int, size: int) -> tuple[Node, ...]:
    """Return the complete nodes that `prove_inclusion` will look up."""
    return tuple(node for span in _inclusion_ranges(index, size) for node in _cover(span))


def consistency_nodes(old: int, new: int) -> tuple[Node, ...]:
    """Return the complete nodes that `prove_consistency` will look up."""
    return tuple(node for span in _consistency_ranges(old, new) for node in _cover(span))


def root_nodes(size: int) -> tuple[Node, ...]:
    """Return the complete nodes that `root_at` will look up, the largest first: the peaks of the tree."""
    return tuple(_cover((0, size)))


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> None:
    """Return if the leaf hash is at `index` under `root`, else raise ProofError (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        raise ProofError("inclusion: the index lies outside the tree", index=index, size=size)
    _check_hashes(leaf, root, *proof)
    # The RFC's fn and sn: the index of the node on the path, and of the last node, at the current level.
    node = index
    last = size - 1
    digest = leaf
    for sibling in proof:
        if last == 0:
            raise ProofError("inclusion: too many hashes", index=index, size=size, count=len(proof))
        if node & 1 or node == last:
            digest = node_hash(sibling, digest)
            # A last node without a sibling moves up unchanged: skip the levels where that happens.
            while node and not node & 1:
                node >>= 1
                last >>= 1
        else:
            digest = node_hash(digest, sibling)
        node >>= 1
        last >>= 1
    if last:
        raise ProofError("inclusion: too few hashes", index=index, size=size, count=len(proof))
    if digest != root:
        raise ProofError("inclusion: another root", index=index, size=size, found=digest.hex(), root=root.hex())


def verify_consistency(old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]) -> None:
    """Return if the new tree extends the old one, else raise ProofError (RFC 9162, 2.1.4.2)."""
    if not 1 <= old <= new:
        raise ProofError("consistency: nothing is proven between these sizes", old=old, new=new)
    _check_hashes(old_root, new_root, *proof)
    if old == new:
        if proof or old_root != new_root:
            raise ProofError("consistency: the same size with two roots", old=old, new=new)
        return
    # If the old tree is complete (a power of two), its root is a node of the new tree and the proof leaves it out.
    path = list(proof) if old & (old - 1) else [old_root, *proof]
    if not path:
        raise ProofError("consistency: too few hashes", old=old, new=new, count=0)
    first, *siblings = path
    node = old - 1
    last = new - 1
    # Start at the largest complete subtree that ends with the old tree's last leaf.
    while node & 1:
        node >>= 1
        last >>= 1
    # Both roots are computed from the same hashes: that they agree is what the proof shows.
    old_digest = first
    new_digest = first
    for sibling in siblings:
        if last == 0:
            raise ProofError("consistency: too many hashes", old=old, new=new, count=len(proof))
        if node & 1 or node == last:
            old_digest = node_hash(sibling, old_digest)
            new_digest = node_hash(sibling, new_digest)
            while node and not node & 1:
                node >>= 1
                last >>= 1
        else:
            # A sibling on the right was appended later: it is part of the new tree alone.
            new_digest = node_hash(new_digest, sibling)
        node >>= 1
        last >>= 1
    if last:
        raise ProofError("consistency: too few hashes", old=old, new=new, count=len(proof))
    if old_digest != old_root or new_digest != new_root:
        raise ProofError("consistency: other roots", old=old, new=new)


def prove_many(indexes: Sequence[int], size: int, lookup: Lookup) -> tuple[bytes, ...]:
    """Return the hashes that, with the leaves at these ascending indexes, give the root: of all parts without one."""
    return tuple(_hash_range(span, lookup) for span, first, last in _spans(indexes, size) if first == last)


def verify_many(
    leaves: Sequence[bytes], indexes: Sequence[int], size: int, proof: Sequence[bytes], root: bytes
) -> None:
    """Return if the leaf hashes are at these ascending indexes under `root`, else raise ProofError."""
    ascending = all(one < other for one, other in pairwise(indexes))
    if not indexes or not ascending or indexes[0] < 0 or indexes[-1] >= size or len(leaves) != len(indexes):
        raise ProofError("inclusion: the indexes are not those of the leaves", count=len(leaves), size=size)
    _check_hashes(root, *leaves, *proof)
    hashes = iter(proof)
    # The parts come from left to right, and a node after its children: so they are joined on a stack.
    stack: list[bytes] = []
    for (start, end), first, last in _spans(indexes, size):
        if first == last:
            digest = next(hashes, None)
            if digest is None:
                raise ProofError("inclusion: too few hashes", size=size, count=len(proof))
            stack.append(digest)
        elif end - start == 1:
            stack.append(leaves[first])
        else:
            right = stack.pop()
            stack.append(node_hash(stack.pop(), right))
    if next(hashes, None) is not None:
        raise ProofError("inclusion: too many hashes", size=size, count=len(proof))
    if stack != [root]:
        raise ProofError("inclusion: another root", size=size, root=root.hex())


def _spans(indexes: Sequence[int], size: int) -> Iterator[tuple[Range, int, int]]:
    """Yield the parts of the tree in the order in which they are joined, each with which of the indexes are in it.

    A part without any is not divided further; a part with some follows its two halves.
    """
    waiting: list[tuple[int, int, int, int, bool]] = [(0, size, 0, len(indexes), False)]
    while waiting:
        start, end, first, last, joined = waiting.pop()
        if joined or first == last or end - start == 1:
            yield (start, end), first, last
            continue
        middle = _split(start, end)
        between = bisect_left(indexes, middle, first, last)
        waiting += [
            (start, end, first, last, True),
            (middle, end, between, last, False),
            (start, middle, first, between, False),
        ]


def _check_hashes(*hashes: bytes) -> None:
    if any(len(digest) != 32 for digest in hashes):
        raise ProofError("a hash has 32 bytes")


def _split(start: int, end: int) -> int:
    """Return where RFC 6962 divides a range: at the largest power of two smaller than its length."""
    return start + (1 << (end - start - 1).bit_length() - 1)


def _inclusion_ranges(index: int, size: int) -> list[Range]:
    """Return PATH(m, D[n]) of RFC 6962 section 2.1.1, as ranges of leaves, sibling first."""
    if not 0 <= index < size:
        raise InvalidInputError("the index lies outside the tree", index=index, size=size)
    start = 0
    end = size
    path: list[Range] = []
    while end - start > 1:
        middle = _split(start, end)
        if index < middle:
            path.append((middle, end))
            end = middle
        else:
            path.append((start, middle))
            start = middle
    return path[::-1]


def _consistency_ranges(old: int, new: int) -> list[Range]:
    """Return PROOF(m, D[n]) of RFC 6962 section 2.1.2, as ranges of leaves."""
    if not 1 <= old <= new:
        raise InvalidInputError("no consistency proof between these sizes", old=old, new=new)
    start = 0
    end = new
    path: list[Range] = []
    while old != end:
        middle = _split(start, end)
        if old <= middle:
            path.append((middle, end))
            end = middle
        else:
            path.append((start, middle))
            start = middle
    if start:  # else the old tree is a complete subtree, whose root the verifier already has
        path.append((start, end))
    return path[::-1]


def _cover(span: Range) -> list[Node]:
    """Return the complete nodes that make up a range, from left to right."""
    start, end = span
    nodes = []
    while start < end:
        level = (end - start).bit_length() - 1
        nodes.append((level, start >> level))
        start += 1 << level
    return nodes


def _hash_range(span: Range, lookup: Lookup) -> bytes:
    """Compute the Merkle tree hash of a range: its complete nodes, joined from the right."""
    hashes = [lookup(level, index) for level, index in _cover(span)]
    digest = hashes.pop()
    while hashes:
        digest = node_hash(hashes.pop(), digest)
    return digest
