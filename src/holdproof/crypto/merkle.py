"""RFC 6962 Merkle trees: hashing, roots, inclusion and consistency proofs.

- A leaf is hashed with prefix 0x00, a node with 0x01; no leaf can pose as a node.
- A node (level, index) covers leaves index·2^level up to (index+1)·2^level. Only complete nodes are ever
  looked up: they never change again, whatever is appended.
- A proof is accepted only if it has exactly the hashes the sizes call for and leads to exactly the given
  roots.
- Consistency with the empty tree proves nothing, so it is refused rather than accepted.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TypeAlias

from holdproof.errors import InvalidInputError, ProofError

Node: TypeAlias = tuple[int, int]
Lookup: TypeAlias = Callable[[int, int], bytes]
Range: TypeAlias = tuple[int, int]

# RFC 6962 section 2.1: the hash of an empty tree is that of an empty string.
EMPTY_ROOT = sha256(b"").digest()


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf's bytes."""
    return sha256(b"\x00" + data).digest()


def leaf_hashes(leaves: Sequence[bytes]) -> list[bytes]:
    """Return the hashes of many leaves."""
    return [sha256(b"\x00" + data).digest() for data in leaves]


def node_hash(left_hash: bytes, right_hash: bytes) -> bytes:
    """Return the hash over two children."""
    return sha256(b"\x01" + left_hash + right_hash).digest()


def root(hashes: Sequence[bytes]) -> bytes:
    """Return the root over leaf hashes that are all in memory."""
    if not hashes:
        return EMPTY_ROOT
    row = list(hashes)
    while len(row) > 1:
        pairs = iter(row)
        # The last node of an odd row moves up unchanged (RFC 6962 duplicates nothing).
        odd = [row[-1]] if len(row) % 2 else []
        row = [sha256(b"\x01" + a + b).digest() for a, b in zip(pairs, pairs, strict=False)] + odd
    [digest] = row
    return digest


def root_at(size: int, lookup: Lookup) -> bytes:
    """Return the root of the tree's first `size` leaves, out of complete nodes."""
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
    """Return if the leaf hash stands at `index` under `root`, else raise ProofError (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        raise ProofError("inclusion: the index lies outside the tree", index=index, size=size)
    _check_hashes(leaf, root, *proof)
    node = index
    last = size - 1
    digest = leaf
    # `node` is the position on the way up, `last` that of the rightmost node of the same row.
    for sibling in proof:
        if last == 0:
            raise ProofError("inclusion: too many hashes", index=index, size=size, count=len(proof))
        # A right child, or the last node of its row, has its sibling on the left.
        if node & 1 or node == last:
            digest = node_hash(sibling, digest)
            # A last node without a right sibling moved up unchanged: skip those rows.
            while node and not node & 1:
                node = node >> 1
                last = last >> 1
        else:
            digest = node_hash(digest, sibling)
        node = node >> 1
        last = last >> 1
    if last:
        raise ProofError("inclusion: too few hashes", index=index, size=size, count=len(proof))
    if digest != root:
        raise ProofError("inclusion: another root", index=index, size=size, found=digest.hex(), root=root.hex())


def verify_consistency(old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]) -> None:
    """Return if the new tree extends the old one, else raise ProofError (RFC 9162, 2.1.4.2)."""
    if not 1 <= old <= new:
        raise ProofError("consistency: nothing is proven between these sizes", old=old, new=new)
    _check_hashes(old_root, new_root, *proof)
    # Nothing to prove between equal trees; a proof that is not empty would be malleable.
    if old == new:
        if proof or old_root != new_root:
            raise ProofError("consistency: the same size with two roots", old=old, new=new)
        return
    # If the old size is a power of two, its root is a node of the new tree and left out of the proof.
    path = list(proof) if old & (old - 1) else [old_root, *proof]
    if not path:
        raise ProofError("consistency: too few hashes", old=old, new=new, count=0)
    node = old - 1
    last = new - 1
    # Levels at which the old tree is complete need no hash: the proof starts above them.
    while node & 1:
        node = node >> 1
        last = last >> 1
    was = now = path[0]
    for sibling in path[1:]:
        if last == 0:
            raise ProofError("consistency: too many hashes", old=old, new=new, count=len(proof))
        if node & 1 or node == last:
            was = node_hash(sibling, was)
            now = node_hash(sibling, now)
            while node and not node & 1:
                node = node >> 1
                last = last >> 1
        else:
            now = node_hash(now, sibling)
        node = node >> 1
        last = last >> 1
    if last:
        raise ProofError("consistency: too few hashes", old=old, new=new, count=len(proof))
    if was != old_root or now != new_root:
        raise ProofError("consistency: other roots", old=old, new=new)


def _check_hashes(*hashes: bytes) -> None:
    if any(len(digest) != 32 for digest in hashes):
        raise ProofError("a hash has 32 bytes")


def _split(start: int, end: int) -> int:
    """Return where RFC 6962 divides a range: at the largest power of two smaller than its length."""
    return start + (1 << (end - start - 1).bit_length() - 1)


def _inclusion_ranges(index: int, size: int) -> list[Range]:
    """PATH(m, D[n]) of RFC 6962 section 2.1.1, as ranges of leaves, sibling first."""
    if not 0 <= index < size:
        raise InvalidInputError("the index lies outside the tree", index=index, size=size)
    start = 0
    end = size
    path = []
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
    """PROOF(m, D[n]) of RFC 6962 section 2.1.2, as ranges of leaves."""
    if not 1 <= old <= new:
        raise InvalidInputError("no consistency proof between these sizes", old=old, new=new)
    start = 0
    end = new
    path = []
    while old != end:
        middle = _split(start, end)
        if old <= middle:
            path.append((middle, end))
            end = middle
        else:
            path.append((start, middle))
            start = middle
    if start:
        path.append((start, end))
    return path[::-1]


def _cover(span: Range) -> list[Node]:
    """Return the complete nodes that make up a range, from left to right."""
    start, end = span
    nodes = []
    # The largest complete subtree that starts here, then the next: the binary digits of the length.
    while start < end:
        level = (end - start).bit_length() - 1
        nodes.append((level, start >> level))
        start += 1 << level
    return nodes


def _hash_range(span: Range, lookup: Lookup) -> bytes:
    """Return the Merkle tree hash of a range: its complete nodes, joined from the right."""
    hashes = [lookup(level, index) for level, index in _cover(span)]
    digest = hashes.pop()
    while hashes:
        digest = node_hash(hashes.pop(), digest)
    return digest
