"""Signed commits of a repository."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import cid as cids
from holdproof.crypto import commit as commits
from holdproof.crypto import dagcbor, didkey, mst, signatures, tid
from holdproof.crypto.cid import CID
from holdproof.crypto.commit import Commit
from holdproof.crypto.signatures import P256_ORDER
from holdproof.errors import BadKeyError, FormatError, InvalidInputError, ProofError

from .blocks import MUTATIONS, leaf, mutants
from .material import JUDGE, LOG, p256, rsa

DID = didkey.encode(JUDGE.public)
PLAIN = Commit(DID, mst.EMPTY_ROOT, tid.encode(1_700_000_000_000_000), leaf("before"))
SIGNED = commits.sign(PLAIN, JUDGE)
FIELDS: dict[str, Any] = {
    "did": DID,
    "version": 3,
    "data": PLAIN.data,
    "rev": PLAIN.rev,
    "prev": PLAIN.prev,
    "sig": SIGNED.sig,
}
COMMITS = st.builds(
    Commit,
    st.sampled_from([DID, "did:web:example.com", "did:plc:ewvi7nxzyoun6zhxrhs64oiz"]),
    st.builds(cids.of, st.binary(max_size=3)),
    st.builds(tid.encode, st.integers(0, tid.MAX_MICROS), st.integers(0, 1023)),
    st.none() | st.builds(cids.of, st.binary(max_size=3)),
)


@given(COMMITS)
def test_every_signed_commit_survives_and_verifies(commit: Commit) -> None:
    signed = commits.sign(commit, JUDGE)
    assert signatures.is_low_s(signed.sig)
    data = commits.encode(signed)
    assert commits.parse(data) == signed
    commits.verify(commits.parse(data), JUDGE.public)


@given(COMMITS)
def test_the_same_commit_has_the_same_signature(commit: Commit) -> None:
    assert commits.sign(commit, JUDGE) == commits.sign(commit, JUDGE)
    assert commits.sign(commits.sign(commit, JUDGE), JUDGE) == commits.sign(commit, JUDGE)


def test_exactly_the_five_other_fields_are_signed() -> None:
    unsigned = {name: value for name, value in FIELDS.items() if name != "sig"}
    assert commits.signed_bytes(PLAIN) == commits.signed_bytes(SIGNED) == dagcbor.encode(unsigned)
    assert commits.encode(SIGNED) == dagcbor.encode(FIELDS)
    JUDGE.public.verify(dagcbor.encode(unsigned), signatures.from_raw(SIGNED.sig))


def test_a_commit_has_the_bytes_that_it_always_had() -> None:
    """A vector of our own: deterministic signatures make the whole chain of CIDs reproducible."""
    assert str(cids.of(commits.encode(SIGNED))) == "bafyreidlko77redyxw3tt4mj2jdwopb3enysoi6rmue2plrvdw7yjtnz6q"


@pytest.mark.parametrize(
    "changed",
    [
        replace(SIGNED, did="did:web:example.com"),
        replace(SIGNED, data=leaf("other")),
        replace(SIGNED, rev=tid.encode(1)),
        replace(SIGNED, prev=None),
        replace(SIGNED, prev=leaf("other")),
        replace(SIGNED, sig=b""),
        replace(SIGNED, sig=bytes(64)),
        replace(SIGNED, sig=SIGNED.sig[:-1]),
        replace(SIGNED, sig=SIGNED.sig + b"\x00"),
        replace(SIGNED, sig=SIGNED.sig[32:] + SIGNED.sig[:32]),
        replace(SIGNED, sig=signatures.from_raw(SIGNED.sig)),  # DER
        replace(SIGNED, did="nobody"),
        replace(SIGNED, rev="now"),
    ],
)
def test_a_changed_commit_does_not_verify(changed: Commit) -> None:
    with pytest.raises(ProofError):
        commits.verify(changed, JUDGE.public)


def test_the_high_twin_of_a_signature_is_refused() -> None:
    s = int.from_bytes(SIGNED.sig[32:], "big")
    twin = SIGNED.sig[:32] + (P256_ORDER - s).to_bytes(32, "big")
    JUDGE.public.verify(commits.signed_bytes(SIGNED), signatures.from_raw(twin))
    with pytest.raises(ProofError, match="high twin"):
        commits.verify(replace(SIGNED, sig=twin), JUDGE.public)


def test_another_key_does_not_verify() -> None:
    for key in (p256(7).public, LOG.public, rsa().public):
        with pytest.raises(ProofError):
            commits.verify(SIGNED, key)


def test_only_p256_signs() -> None:
    for signer in (LOG, rsa()):
        with pytest.raises(BadKeyError):
            commits.sign(PLAIN, signer)


@pytest.mark.parametrize(
    "bad",
    [
        replace(PLAIN, did=""),
        replace(PLAIN, did="did:"),
        replace(PLAIN, did="did:key:"),
        replace(PLAIN, did="did:KEY:abc"),
        replace(PLAIN, did="did:web:a b"),
        replace(PLAIN, did="did:web:" + "x" * 3000),
        replace(PLAIN, data=cids.of_raw(b"")),
        replace(PLAIN, data=cids.parse(b"\x12\x20" + bytes(32))),
        replace(PLAIN, prev=cids.of_raw(b"")),
        replace(PLAIN, rev=""),
        replace(PLAIN, rev="3jzfcijpj2z21"),
    ],
)
def test_what_is_no_commit_is_neither_signed_nor_encoded(bad: Commit) -> None:
    with pytest.raises(InvalidInputError):
        commits.sign(bad, JUDGE)
    with pytest.raises(InvalidInputError):
        commits.encode(replace(bad, sig=SIGNED.sig))


def test_an_unsigned_commit_is_not_encoded() -> None:
    with pytest.raises(InvalidInputError):
        commits.encode(PLAIN)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"version": True},
        {"version": 3.0},
        {"version": "3"},
        {"did": "nobody"},
        {"did": None},
        {"did": b"did:web:a"},
        {"data": None},
        {"data": PLAIN.data.raw},
        {"data": cids.of_raw(b"")},
        {"prev": False},
        {"prev": cids.of_raw(b"")},
        {"rev": 5},
        {"rev": "yesterday"},
        {"sig": None},
        {"sig": b""},
        {"sig": bytes(63)},
        {"sig": "x" * 64},
        {"more": None},
    ],
)
def test_a_malformed_block_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        commits.parse(dagcbor.encode({**FIELDS, **changes}))


@pytest.mark.parametrize("missing", sorted(FIELDS))
def test_a_missing_field_is_refused(missing: str) -> None:
    with pytest.raises(FormatError):
        commits.parse(dagcbor.encode({name: value for name, value in FIELDS.items() if name != missing}))


@pytest.mark.parametrize("value", [None, [], 3, "commit"])
def test_another_value_is_refused(value: Any) -> None:
    with pytest.raises(FormatError):
        commits.parse(dagcbor.encode(value))


def test_mutated_commits_are_refused_or_do_not_verify() -> None:
    good = commits.encode(SIGNED)
    for data in mutants([good], MUTATIONS // 4):
        if data == good:
            continue
        try:
            found = commits.parse(data)
        except FormatError:
            continue
        with pytest.raises(ProofError):
            commits.verify(found, JUDGE.public)


def test_a_chain_of_commits_leads_back_to_the_first() -> None:
    blocks: dict[CID, bytes] = {}
    prev: CID | None = None
    rev: str | None = None
    for step in range(5):
        rev = tid.after(rev, 1000 - step)
        data = commits.encode(commits.sign(Commit(DID, leaf(str(step)), rev, prev), JUDGE))
        prev = cids.of(data)
        blocks[prev] = data
    seen = []
    while prev is not None:
        found = commits.parse(blocks[prev])
        commits.verify(found, didkey.parse(found.did))
        seen.append(found.rev)
        prev = found.prev
    assert len(seen) == 5
    assert seen == sorted(seen, reverse=True)
