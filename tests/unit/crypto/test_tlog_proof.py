"""tlog-proof files: the C2SP example's shape, offline verification, strict reading."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import checkpoint, merkle, tlog_proof
from holdproof.crypto.checkpoint import LogCheckpoint
from holdproof.crypto.tlog_proof import TlogProof
from holdproof.errors import FormatError, InvalidInputError, ProofError

from .material import DIGESTS, LOG, SIZES, hashes, mutations, plain_lookup, refuses, rejected
from .test_checkpoint import LOG_KEY, ORIGIN, WITNESS_KEY, cosigned, signed

LEAVES = hashes(70)
LOOKUP = plain_lookup(LEAVES)
HEAD = LogCheckpoint(ORIGIN, 70, merkle.root(LEAVES))

# C2SP/C2SP, tlog-proof.md, as printed down to the hashes; the printed signatures are abridged, so the head is
# signed here.
PRINTED = b"""c2sp.org/tlog-proof@v1
extra YWdlLXYxLjIuMS1kYXJ3aW4tYXJtNjQudGFyLmd6kYXJ3aW4tYXJ
index 73894
gSKyXoYZUgZ6jduWYrkDOARinOMGJveXjgMkBTcdPlQ=
B95lDa8R83lS8n0eG+o0buTxRKQTYFi//1U8anccXmA=
EKNzoDWG8LGC0Yp9o+sv3qllpMP9uHQ9B20KNL+Q1zs=
RoopEkOdqkYqMB4MJXrbt/hMjOxsVn0IrWjpz1ZMMes=
AHCioX9nLjsrse6YhjRRmk1WUEirVOLLRoOQ6vfO5vk=

"""


def proof_of(index: int, extra: bytes = b"") -> TlogProof:
    return TlogProof(index, merkle.prove_inclusion(index, 70, LOOKUP), cosigned(HEAD), extra)


def test_the_example_of_the_c2sp_text_is_read_and_written_again() -> None:
    head = signed(LogCheckpoint("example.com/fancylog", 109482, bytes(32)))
    found = tlog_proof.parse(PRINTED + head.encode())
    assert (found.index, len(found.proof)) == (73894, 5)
    assert found.extra.startswith(b"age-v1.2.1-darwin-arm64.tar.gz")
    assert found.head == head
    assert tlog_proof.encode(found) == PRINTED + head.encode()


@given(st.integers(0, 69), st.binary(max_size=50))
def test_every_entry_of_a_log_is_proven_offline(index: int, extra: bytes) -> None:
    made = proof_of(index, extra)
    found = tlog_proof.parse(tlog_proof.encode(made))
    assert found == made
    seen = tlog_proof.verify(found, LEAVES[index], origin=ORIGIN, log_keys=[LOG_KEY], witnesses=[WITNESS_KEY], quorum=1)
    assert [one.key for one in seen] == [WITNESS_KEY]


@given(st.integers(0, 69), st.integers(0, 69))
def test_a_proof_proves_no_other_entry(index: int, other: int) -> None:
    if index != other:
        with pytest.raises(ProofError):
            tlog_proof.verify(proof_of(index), LEAVES[other], origin=ORIGIN, log_keys=[LOG_KEY])


def test_a_proof_needs_the_log_s_signature_and_the_quorum() -> None:
    made = proof_of(5)
    with pytest.raises(ProofError):
        tlog_proof.verify(made, LEAVES[5], origin="other.example", log_keys=[LOG_KEY])
    with pytest.raises(ProofError):
        tlog_proof.verify(made, LEAVES[5], origin=ORIGIN, log_keys=[])
    with pytest.raises(ProofError):
        tlog_proof.verify(made, LEAVES[5], origin=ORIGIN, log_keys=[LOG_KEY], quorum=1)


def test_an_index_beyond_the_head_is_refused() -> None:
    small = TlogProof(70, (), checkpoint.sign(HEAD, LOG))
    with pytest.raises(ProofError):
        tlog_proof.verify(small, LEAVES[0], origin=ORIGIN, log_keys=[LOG_KEY])


def test_a_log_of_one_entry_has_a_proof_without_hashes() -> None:
    head = signed(LogCheckpoint(ORIGIN, 1, LEAVES[0]))
    data = tlog_proof.encode(TlogProof(0, (), head))
    assert data == b"c2sp.org/tlog-proof@v1\nindex 0\n\n" + head.encode()
    tlog_proof.verify(tlog_proof.parse(data), LEAVES[0], origin=ORIGIN, log_keys=[LOG_KEY])


@given(SIZES, st.lists(DIGESTS, max_size=63).map(tuple), st.binary(max_size=40))
def test_a_proof_survives_its_encoding(index: int, proof: tuple[bytes, ...], extra: bytes) -> None:
    made = TlogProof(index, proof, signed(), extra)
    assert tlog_proof.parse(tlog_proof.encode(made)) == made


@pytest.mark.parametrize(
    "made",
    [
        TlogProof(-1, (), signed()),
        TlogProof(0, (bytes(31),), signed()),
        TlogProof(0, (bytes(32),) * 64, signed()),
    ],
    ids=["index", "hash", "count"],
)
def test_an_impossible_proof_is_not_written(made: TlogProof) -> None:
    with pytest.raises(InvalidInputError):
        tlog_proof.encode(made)


HASH = b"gSKyXoYZUgZ6jduWYrkDOARinOMGJveXjgMkBTcdPlQ=\n"


@pytest.mark.parametrize(
    "top",
    [
        b"",
        b"c2sp.org/tlog-proof@v1\n",
        b"c2sp.org/tlog-proof@v2\nindex 0\n",
        b"c2sp.org/tlog-proof@v1 \nindex 0\n",
        b"index 0\n",
        b"c2sp.org/tlog-proof@v1\nindex\n",
        b"c2sp.org/tlog-proof@v1\nindex 00\n",
        b"c2sp.org/tlog-proof@v1\nindex -1\n",
        b"c2sp.org/tlog-proof@v1\nindex 0 \n",
        b"c2sp.org/tlog-proof@v1\nindex 0\nextra YQ==\n",
        b"c2sp.org/tlog-proof@v1\nextra \nindex 0\n",
        b"c2sp.org/tlog-proof@v1\nextra YQ\nindex 0\n",
        b"c2sp.org/tlog-proof@v1\nextra YQ==\nextra YQ==\nindex 0\n",
        b"c2sp.org/tlog-proof@v1\nindex 0\nYQ==\n",
        b"c2sp.org/tlog-proof@v1\nindex 0\n" + HASH * 64,
        b"c2sp.org/tlog-proof@v1\r\nindex 0\r\n",
        b"c2sp.org/tlog-proof@v1\nindex 0\n\n",
    ],
)
def test_a_malformed_proof_is_refused(top: bytes) -> None:
    rejected(tlog_proof.parse, top + b"\n" + signed().encode())


def test_a_proof_without_its_head_is_refused() -> None:
    rejected(tlog_proof.parse, b"c2sp.org/tlog-proof@v1\nindex 0\n")
    rejected(tlog_proof.parse, b"c2sp.org/tlog-proof@v1\nindex 0\n\n")


@given(mutations(tlog_proof.encode(proof_of(33))))
def test_a_mutated_proof_fails_or_proves_the_same(data: bytes) -> None:
    try:
        found = tlog_proof.parse(data)
        tlog_proof.verify(found, LEAVES[33], origin=ORIGIN, log_keys=[LOG_KEY])
    except FormatError:
        return
    assert (found.index, found.proof, found.head.checkpoint) == (33, proof_of(33).proof, HEAD)


@given(st.binary())
def test_arbitrary_bytes_are_a_proof_or_a_format_error(data: bytes) -> None:
    refuses(tlog_proof.parse, data)
    refuses(tlog_proof.parse, b"c2sp.org/tlog-proof@v1\n" + data)
