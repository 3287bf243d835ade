"""The witness protocol: the C2SP example, every answer it prescribes, and cosignatures both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import checkpoint, merkle, note, witness
from holdproof.crypto.checkpoint import LogCheckpoint, SignedCheckpoint
from holdproof.crypto.keys import PrivateKey
from holdproof.crypto.vkey import COSIGNATURE_V1, VerifierKey
from holdproof.crypto.witness import AddCheckpoint, KnownLog
from holdproof.errors import FormatError, ProofError

from .material import DIGESTS, LOG, SIZES, STRANGER, WITNESS, hashes, mutations, plain_lookup, refuses, rejected
from .test_checkpoint import LOG_KEY, ORIGIN, WITNESS_KEY, signed

LEAVES = hashes(60)
LOOKUP = plain_lookup(LEAVES)

# C2SP/C2SP, tlog-witness.md
REQUEST = (
    "old 20852014\n"
    "PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=\n"
    "jrJZDmY8Y7SyJE0MWLpLozkIVMSMZcD5kvuKxPC3swk=\n"
    "5+pKlUdi2LeF/BcMHBn+Ku6yhPGNCswZZD1X/6QgPd8=\n"
    "/6WVhPs2CwSsb5rYBH5cjHV/wSmA79abXAwhXw3Kj/0=\n"
    "\n"
    "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
    "\n"
    "\u2014 example.com/behind-the-sofa "
    "Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"
    "\u2014 example.com/behind-the-sofa "
    "opLqBQsREYCgu6xQkYQwJr9fo45a62DN9EdmHXnZdXNqlcVGlCum2Wks+49/V6267UEjw6QUXTS5Rovnzv++qbSzm9Q=\n"
).encode()
RESPONSE = (
    "\u2014 witness.example/w1 "
    "CMp+6LWBU0anHGH5aNDTJkH/gj79sG+T6+iP2ThYN5krrDJbR1HDnucjL39QsZTSvVjyQLrdk3DXDqI5G2HgLatVs0pWh6Up69HVOw==\n"
    "\u2014 witness.example/w1 "
    "I7rEps0pvK2UqkS2gSpVUDhrhVtQV9lgF6pRrWAvjJHjyWpW7VcE3SiOlVlbQNt64vWhO+DlkL0+UfzuOBMh9ChdMkP1vi/lCAsmlw==\n"
).encode()


def head(size: int, *, signer: PrivateKey = LOG, root: bytes | None = None) -> SignedCheckpoint:
    return checkpoint.sign(LogCheckpoint(ORIGIN, size, merkle.root(LEAVES[:size]) if root is None else root), signer)


def request(old: int, new: int) -> AddCheckpoint:
    proof = merkle.prove_consistency(old, new, LOOKUP) if old else ()
    return AddCheckpoint(old, proof, head(new))


def known(size: int) -> KnownLog:
    return KnownLog((LOG_KEY,), size, merkle.root(LEAVES[:size]))


def test_the_example_request_of_the_c2sp_text_is_read_and_written_again() -> None:
    found = witness.parse_request(REQUEST)
    assert (found.old_size, len(found.proof)) == (20852014, 4)
    assert found.head.checkpoint.size == 20852163
    assert len(found.head.note.signatures) == 2
    assert witness.encode_request(found) == REQUEST


def test_the_example_answer_of_the_c2sp_text_is_read() -> None:
    found = witness.parse_cosignatures(RESPONSE)
    assert [(s.name, len(s.signature)) for s in found] == [("witness.example/w1", 72)] * 2
    assert "".join(s.line() for s in found).encode() == RESPONSE


@given(SIZES, st.lists(DIGESTS, max_size=63).map(tuple))
def test_a_request_survives_its_encoding(old: int, proof: tuple[bytes, ...]) -> None:
    made = AddCheckpoint(old, proof, signed())
    assert witness.parse_request(witness.encode_request(made)) == made


@given(st.integers(0, 60).flatmap(lambda new: st.tuples(st.integers(0, new), st.just(new))))
def test_every_consistent_step_is_cosigned(sizes: tuple[int, int]) -> None:
    old, new = sizes
    assert witness.review(request(old, new), known(old)).status == 200


def test_an_unknown_log_is_answered_404() -> None:
    assert witness.review(request(0, 5), None).status == 404


def test_a_head_without_a_trusted_signature_is_answered_403() -> None:
    forged = AddCheckpoint(0, (), head(5, signer=STRANGER))
    assert witness.review(forged, known(0)).status == 403
    assert witness.review(request(0, 5), KnownLog(())).status == 403


def test_an_old_size_above_the_head_is_answered_400() -> None:
    assert witness.review(AddCheckpoint(6, (), head(5)), known(6)).status == 400


def test_the_first_head_of_a_log_may_be_of_one_leaf() -> None:
    assert witness.review(request(0, 1), known(0)).status == 200


def test_a_log_of_which_no_head_was_cosigned_begins_at_nothing() -> None:
    assert witness.review(request(0, 5), KnownLog(known(0).keys)).status == 200


def test_an_old_size_that_is_not_the_witness_s_own_is_answered_409_with_its_size() -> None:
    answer = witness.review(request(3, 9), known(5))
    assert (answer.status, answer.body, answer.content_type) == (409, "5\n", "text/x.tlog.size")
    assert witness.parse_size(answer.body.encode()) == 5
    fresh = witness.review(request(3, 9), known(0))
    assert (fresh.status, fresh.body) == (409, "0\n")
    assert witness.review(request(0, 9), known(5)).body == "5\n"


def test_a_second_root_of_one_size_is_answered_409_and_is_not_mistaken_for_a_size() -> None:
    answer = witness.review(AddCheckpoint(5, (), head(5, root=bytes(32))), known(5))
    assert answer.status == 409
    assert answer.content_type != witness.SIZE_TYPE


def test_the_same_head_again_is_cosigned_again() -> None:
    assert witness.review(AddCheckpoint(5, (), head(5)), known(5)).status == 200


@pytest.mark.parametrize(
    "bad",
    [
        AddCheckpoint(5, (), head(9)),
        AddCheckpoint(5, merkle.prove_consistency(5, 9, LOOKUP)[::-1], head(9)),
        AddCheckpoint(5, (*merkle.prove_consistency(5, 9, LOOKUP), bytes(32)), head(9)),
        AddCheckpoint(5, merkle.prove_consistency(5, 9, LOOKUP), head(9, root=bytes(32))),
        AddCheckpoint(5, (bytes(32),), head(5)),
    ],
    ids=["missing", "reversed", "longer", "another root", "same size"],
)
def test_a_proof_that_fails_is_answered_422(bad: AddCheckpoint) -> None:
    assert witness.review(bad, known(5)).status == 422


def test_a_first_head_comes_without_proof_and_an_empty_tree_with_the_empty_root() -> None:
    assert witness.review(AddCheckpoint(0, (bytes(32),), head(5)), known(0)).status == 422
    assert witness.review(AddCheckpoint(0, (), head(0)), known(0)).status == 200
    assert witness.review(AddCheckpoint(0, (), head(0, root=bytes(32))), known(0)).status == 409


def test_a_cosignature_reaches_the_head_through_the_answer() -> None:
    made = head(9)
    line = witness.cosign(made, "w.example", WITNESS, seconds=1679315147).line()
    merged = witness.accept(made, line.encode(), [WITNESS_KEY])
    (seen,) = checkpoint.verify(merged, origin=ORIGIN, log_keys=[LOG_KEY], witnesses=[WITNESS_KEY], quorum=1)
    assert seen.seconds == 1679315147
    assert checkpoint.parse(merged.encode()) == merged
    assert witness.accept(merged, line.encode(), [WITNESS_KEY]) == merged


def test_cosignatures_of_unknown_keys_are_not_taken_over() -> None:
    made = head(9)
    ours = witness.cosign(made, "w.example", WITNESS, seconds=1)
    other = witness.cosign(made, "x.example", STRANGER, seconds=1)
    merged = witness.accept(made, (other.line() + ours.line()).encode(), [WITNESS_KEY])
    assert merged.note.signatures == (*made.note.signatures, ours)
    with pytest.raises(ProofError):
        witness.accept(made, other.line().encode(), [WITNESS_KEY])


def test_a_cosignature_of_another_head_is_refused() -> None:
    stale = witness.cosign(head(8), "w.example", WITNESS, seconds=1)
    with pytest.raises(ProofError):
        witness.accept(head(9), stale.line().encode(), [WITNESS_KEY])


def test_a_witness_s_plain_signature_is_no_cosignature() -> None:
    made = head(9)
    plain = note.sign(made.note.text, "w.example", WITNESS)
    with pytest.raises(ProofError):
        witness.accept(made, plain.line().encode(), [WITNESS_KEY])
    assert VerifierKey("w.example", COSIGNATURE_V1, WITNESS.public) == WITNESS_KEY


HASH = b"PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=\n"


@pytest.mark.parametrize(
    "top",
    [
        b"",
        b"1\n",
        b"old\n",
        b"old 01\n",
        b"old -1\n",
        b"old 1 \n",
        b"new 1\n",
        b" old 1\n",
        b"old 1\r\n",
        b"old 1\nYQ==\n",
        b"old 1\n" + HASH[:-2] + b"\n",
        b"old 1\n" + HASH * 64,
        b"old 1\n" + HASH + b"\n",
        b"old 9223372036854775808\n",
    ],
)
def test_a_malformed_request_is_refused(top: bytes) -> None:
    rejected(witness.parse_request, top + b"\n" + signed().encode())


def test_a_request_without_checkpoint_is_refused() -> None:
    for data in (b"old 1\n", b"old 1\n\n", b"old 1\n\nhello\n"):
        rejected(witness.parse_request, data)


@pytest.mark.parametrize("data", [b"", b"5", b"15", b"05\n", b"5\n\n", b"-5\n", b"five\n", b"\xff\n"])
def test_a_malformed_size_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        witness.parse_size(data)


@given(mutations(witness.encode_request(request(5, 9))))
def test_a_mutated_request_is_never_cosigned_as_another_head(data: bytes) -> None:
    try:
        found = witness.parse_request(data)
    except FormatError:
        return
    if witness.review(found, known(5)).status == 200:
        assert found.head.checkpoint == head(9).checkpoint


@given(st.binary())
def test_arbitrary_bytes_are_a_message_or_a_format_error(data: bytes) -> None:
    for parse in (witness.parse_request, witness.parse_cosignatures, witness.parse_size):
        refuses(parse, data)
    refuses(witness.parse_request, b"old 5\n" + data)
