"""RFC 6962 trees: published proofs, the RFC's own example, and properties of every proof."""

import base64
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import merkle
from holdproof.errors import InvalidInputError, ProofError
from tests.fixtures import fixture, load

from .material import DIGESTS, hashes, plain_lookup

# The one published vector that is waived: upstream accepts two equal roots of any length at equal sizes, and this
# one has roots of 12 bytes. A SHA-256 root has 32, so it is refused here.
WAIVED = "consistency/additional/sizes-are-equal-one-and-proof-is-empty.json"

LEAVES = hashes(300)
LOOKUP = plain_lookup(LEAVES)
PLACES = st.integers(1, 300).flatmap(lambda size: st.tuples(st.integers(0, size - 1), st.just(size)))
GROWTH = st.integers(1, 300).flatmap(lambda new: st.tuples(st.integers(1, new), st.just(new)))


def vectors(kind: str) -> dict[str, dict[str, Any]]:
    root = fixture("merkle")
    paths = sorted(Path(root, kind).rglob("*.json"))
    return {str(path.relative_to(root)): load(f"merkle/{path.relative_to(root)}") for path in paths}


def holds(verify: Any, *arguments: Any) -> bool:
    try:
        verify(*arguments)
    except ProofError:
        return False
    return True


def decoded(case: dict[str, Any], *names: str) -> list[bytes]:
    return [base64.b64decode(case[name] or "") for name in names]


def test_every_published_inclusion_proof_is_judged_as_published() -> None:
    wrong, cases = [], vectors("inclusion")
    for name, case in cases.items():
        leaf, root = decoded(case, "leafHash", "root")
        proof = [base64.b64decode(item) for item in case["proof"] or []]
        good = holds(merkle.verify_inclusion, leaf, case["leafIdx"], case["treeSize"], proof, root)
        if good == case["wantErr"]:
            wrong.append(name)
    assert (len(cases), wrong) == (98, [])


def test_every_published_consistency_proof_but_the_waived_one_is_judged_as_published() -> None:
    wrong, cases = [], vectors("consistency")
    for name, case in cases.items():
        old_root, new_root = decoded(case, "root1", "root2")
        proof = [base64.b64decode(item) for item in case["proof"] or []]
        good = holds(merkle.verify_consistency, case["size1"], case["size2"], old_root, new_root, proof)
        if good == case["wantErr"]:
            wrong.append(name)
    assert (len(cases), wrong) == (98, [WAIVED])
    assert len(decoded(cases[WAIVED], "root1")[0]) == 12


def test_the_hashes_of_certificate_transparency_come_out() -> None:
    leaves = [bytes.fromhex(text) for text in ("", "00", "10", "2021", "3031", "40414243")]
    digests = merkle.leaf_hashes(leaves)
    assert digests[0].hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert merkle.root(digests[:2]).hex() == "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"
    assert merkle.root(digests).hex() == "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef"
    assert merkle.root([]) == merkle.EMPTY_ROOT


def reference_root(leaves: list[bytes]) -> bytes:
    """MTH of RFC 6962 section 2.1, word for word."""
    if len(leaves) < 2:
        return leaves[0] if leaves else merkle.EMPTY_ROOT
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return merkle.node_hash(reference_root(leaves[:k]), reference_root(leaves[k:]))


@pytest.mark.parametrize("size", [*range(20), 63, 64, 65, 255, 256, 257, 300])
def test_the_root_is_the_one_the_rfc_defines(size: int) -> None:
    assert merkle.root(LEAVES[:size]) == reference_root(LEAVES[:size])
    assert merkle.root_at(size, LOOKUP) == reference_root(LEAVES[:size])


def test_a_leaf_cannot_pose_as_a_node() -> None:
    left, right = LEAVES[:2]
    assert merkle.leaf_hash(left + right) != merkle.node_hash(left, right)
    assert merkle.leaf_hash(b"\x01" + left + right) != merkle.node_hash(left, right)


def test_the_rfc_example_paths_have_the_printed_parts() -> None:
    """RFC 6962 section 2.1.3: the seven-leaf tree with its nodes a … l."""
    d = LEAVES[:7]
    a, b, c, e, f, g, h, i, j = (*d[:3], d[3], d[4], merkle.root(d[:2]), merkle.root(d[2:4]), merkle.root(d[4:6]), d[6])
    k, ell = merkle.root(d[:4]), merkle.root(d[4:7])
    assert (a, f) == (d[0], d[4])
    assert merkle.prove_inclusion(0, 7, LOOKUP) == (b, h, ell)
    assert merkle.prove_inclusion(3, 7, LOOKUP) == (c, g, ell)
    assert merkle.prove_inclusion(4, 7, LOOKUP) == (d[5], j, k)
    assert merkle.prove_inclusion(6, 7, LOOKUP) == (i, k)
    assert merkle.prove_consistency(3, 7, LOOKUP) == (c, e, g, ell)
    assert merkle.prove_consistency(4, 7, LOOKUP) == (ell,)
    assert merkle.prove_consistency(6, 7, LOOKUP) == (i, j, k)


@given(PLACES)
def test_every_inclusion_proof_verifies(place: tuple[int, int]) -> None:
    index, size = place
    proof = merkle.prove_inclusion(index, size, LOOKUP)
    merkle.verify_inclusion(LEAVES[index], index, size, proof, merkle.root(LEAVES[:size]))


@given(GROWTH)
def test_every_consistency_proof_verifies(sizes: tuple[int, int]) -> None:
    old, new = sizes
    proof = merkle.prove_consistency(old, new, LOOKUP)
    merkle.verify_consistency(old, new, merkle.root(LEAVES[:old]), merkle.root(LEAVES[:new]), proof)


def mutate(proof: tuple[bytes, ...], how: int, at: int, junk: bytes) -> list[bytes]:
    """A proof that differs: a bit flipped, a hash left out, added, doubled, or two swapped."""
    found = list(proof)
    at = at % max(1, len(found))
    if how == 0 and found:
        found[at] = bytes([found[at][0] ^ 1]) + found[at][1:]
    elif how == 1 and found:
        del found[at]
    elif how == 2 and len(found) > 1:
        found[at], found[at - 1] = found[at - 1], found[at]
    elif how == 3 and found:
        found[at] = found[at][:-1]
    elif how == 4 and found:
        found.insert(at, found[at])
    else:
        found.insert(at, junk)
    return found


@given(PLACES, st.integers(0, 5), st.integers(0, 20), DIGESTS)
def test_every_mutated_inclusion_proof_fails(place: tuple[int, int], how: int, at: int, junk: bytes) -> None:
    index, size = place
    bad = mutate(merkle.prove_inclusion(index, size, LOOKUP), how, at, junk)
    assert not holds(merkle.verify_inclusion, LEAVES[index], index, size, bad, merkle.root(LEAVES[:size]))


@pytest.mark.parametrize("old", [3, 4, 5, 6])
def test_an_empty_proof_proves_no_growth(old: int) -> None:
    with pytest.raises(ProofError, match="too few hashes"):
        merkle.verify_consistency(old, 7, merkle.root(LEAVES[:old]), merkle.root(LEAVES[:7]), [])


@given(GROWTH, st.integers(0, 5), st.integers(0, 20), DIGESTS)
def test_every_mutated_consistency_proof_fails(sizes: tuple[int, int], how: int, at: int, junk: bytes) -> None:
    old, new = sizes
    bad = mutate(merkle.prove_consistency(old, new, LOOKUP), how, at, junk)
    roots = merkle.root(LEAVES[:old]), merkle.root(LEAVES[:new])
    assert not holds(merkle.verify_consistency, old, new, *roots, bad)


@given(PLACES, st.integers(0, 299), DIGESTS)
def test_an_inclusion_proof_fits_no_other_leaf_index_or_root(place: tuple[int, int], other: int, junk: bytes) -> None:
    index, size = place
    proof, root = merkle.prove_inclusion(index, size, LOOKUP), merkle.root(LEAVES[:size])
    assert not holds(merkle.verify_inclusion, junk, index, size, proof, root)
    assert not holds(merkle.verify_inclusion, LEAVES[index], index, size, proof, junk)
    if other != index:
        assert not holds(merkle.verify_inclusion, LEAVES[index], other, size, proof, root)


@given(GROWTH, DIGESTS)
def test_a_consistency_proof_fits_no_other_roots(sizes: tuple[int, int], junk: bytes) -> None:
    old, new = sizes
    proof = merkle.prove_consistency(old, new, LOOKUP)
    was, now = merkle.root(LEAVES[:old]), merkle.root(LEAVES[:new])
    assert not holds(merkle.verify_consistency, old, new, junk, now, proof)
    assert not holds(merkle.verify_consistency, old, new, was, junk, proof)
    if old != new:
        assert not holds(merkle.verify_consistency, old, new, now, was, proof)


@given(PLACES)
def test_the_planned_nodes_are_the_nodes_looked_up(place: tuple[int, int]) -> None:
    index, size = place
    seen: list[merkle.Node] = []

    def spy(level: int, at: int) -> bytes:
        seen.append((level, at))
        return LOOKUP(level, at)

    merkle.prove_inclusion(index, size, spy)
    assert seen == list(merkle.inclusion_nodes(index, size))
    seen.clear()
    merkle.prove_consistency(index + 1, size, spy)
    assert seen == list(merkle.consistency_nodes(index + 1, size))
    seen.clear()
    merkle.root_at(size, spy)
    assert seen == list(merkle.root_nodes(size))
    assert all((at + 1) << level <= size for level, at in seen)


@pytest.mark.parametrize(("index", "size"), [(0, 0), (1, 1), (-1, 1), (5, 3)])
def test_no_proof_is_made_for_a_leaf_outside_the_tree(index: int, size: int) -> None:
    with pytest.raises(InvalidInputError):
        merkle.prove_inclusion(index, size, LOOKUP)
    with pytest.raises(ProofError):
        merkle.verify_inclusion(LEAVES[0], index, size, [], LEAVES[0])


@pytest.mark.parametrize(("old", "new"), [(0, 0), (0, 1), (2, 1), (-1, 1)])
def test_no_consistency_is_proven_with_the_empty_or_a_smaller_tree(old: int, new: int) -> None:
    with pytest.raises(InvalidInputError):
        merkle.prove_consistency(old, new, LOOKUP)
    with pytest.raises(ProofError):
        merkle.verify_consistency(old, new, merkle.EMPTY_ROOT, LEAVES[0], [])


def test_a_negative_size_has_no_root() -> None:
    with pytest.raises(InvalidInputError):
        merkle.root_at(-1, LOOKUP)
