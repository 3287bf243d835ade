"""Checkpoints: the C2SP example, who must have signed, and strict reading."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import checkpoint, note
from holdproof.crypto.checkpoint import LogCheckpoint, SignedCheckpoint
from holdproof.crypto.note import SignedNote
from holdproof.crypto.vkey import COSIGNATURE_V1, ED25519, VerifierKey
from holdproof.errors import FormatError, InvalidInputError, ProofError

from .material import DIGESTS, LINES, LOG, NAMES, SIZES, STRANGER, WITNESS, mutations, refuses, rejected

# C2SP/C2SP, tlog-cosignature.md
SOFA = (
    "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n"
    "\u2014 example.com/behind-the-sofa "
    "Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"
    "\u2014 witness.example.com/w1 "
    "jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n"
).encode()

ORIGIN = "log.example/42"
LOG_KEY = VerifierKey(ORIGIN, ED25519, LOG.public)
WITNESS_KEY = VerifierKey("w.example", COSIGNATURE_V1, WITNESS.public)
HEAD = LogCheckpoint(ORIGIN, 7, bytes(range(32)))
CHECKPOINTS = st.builds(LogCheckpoint, LINES, SIZES, DIGESTS, st.lists(LINES, max_size=3).map(tuple))


def signed(head: LogCheckpoint = HEAD) -> SignedCheckpoint:
    return checkpoint.sign(head, LOG)


def cosigned(head: LogCheckpoint = HEAD) -> SignedCheckpoint:
    made = signed(head)
    return SignedCheckpoint(head, made.note.add(note.cosign(made.note.text, "w.example", WITNESS, seconds=1000)))


def test_the_example_of_the_c2sp_text_is_read_and_written_again() -> None:
    found = checkpoint.parse(SOFA)
    assert found.checkpoint.origin == "example.com/behind-the-sofa"
    assert found.checkpoint.size == 20852163
    assert found.checkpoint.root == base64.b64decode("CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=")
    assert [(s.name, len(s.signature)) for s in found.note.signatures] == [
        ("example.com/behind-the-sofa", 64),
        ("witness.example.com/w1", 72),
    ]
    assert int.from_bytes(found.note.signatures[1].signature[:8], "big") == 1679315147
    assert found.encode() == SOFA


@given(CHECKPOINTS)
def test_a_checkpoint_survives_its_text(head: LogCheckpoint) -> None:
    assert checkpoint.parse_text(head.text()) == head


@given(NAMES, SIZES, DIGESTS)
def test_a_signed_checkpoint_survives_its_encoding_and_verifies(origin: str, size: int, root: bytes) -> None:
    made = checkpoint.sign(LogCheckpoint(origin, size, root), LOG)
    assert checkpoint.parse(made.encode()) == made
    assert checkpoint.verify(made, origin=origin, log_keys=[VerifierKey(origin, ED25519, LOG.public)]) == ()


def test_the_empty_tree_is_written_as_zero() -> None:
    assert LogCheckpoint("a", 0, bytes(32)).text() == f"a\n0\n{'A' * 43}=\n"


def test_a_checkpoint_of_another_log_is_refused() -> None:
    with pytest.raises(ProofError, match="another log"):
        checkpoint.verify(signed(), origin="log.example/43", log_keys=[LOG_KEY])


def test_a_checkpoint_that_only_witnesses_signed_is_refused() -> None:
    alone = SignedCheckpoint(HEAD, SignedNote(HEAD.text(), cosigned().note.signatures[1:]))
    with pytest.raises(ProofError, match="log has not signed"):
        checkpoint.verify(alone, origin=ORIGIN, log_keys=[LOG_KEY], witnesses=[WITNESS_KEY])


def test_a_checkpoint_that_a_stranger_signed_in_the_log_s_name_is_refused() -> None:
    with pytest.raises(ProofError):
        checkpoint.verify(checkpoint.sign(HEAD, STRANGER), origin=ORIGIN, log_keys=[LOG_KEY])


def test_a_value_that_differs_from_the_signed_text_is_refused() -> None:
    forged = SignedCheckpoint(LogCheckpoint(ORIGIN, 8, HEAD.root), signed().note)
    with pytest.raises(ProofError, match="not the one"):
        checkpoint.verify(forged, origin=ORIGIN, log_keys=[LOG_KEY])


def test_witnesses_are_counted_towards_the_quorum() -> None:
    (seen,) = checkpoint.verify(cosigned(), origin=ORIGIN, log_keys=[LOG_KEY], witnesses=[WITNESS_KEY], quorum=1)
    assert (seen.key, seen.seconds) == (WITNESS_KEY, 1000)
    with pytest.raises(ProofError, match="too few witnesses"):
        checkpoint.verify(signed(), origin=ORIGIN, log_keys=[LOG_KEY], witnesses=[WITNESS_KEY], quorum=1)


def test_the_log_is_not_its_own_witness() -> None:
    with pytest.raises(ProofError, match="too few witnesses"):
        checkpoint.verify(signed(), origin=ORIGIN, log_keys=[LOG_KEY], witnesses=[LOG_KEY], quorum=1)


def test_one_witness_under_two_names_counts_once() -> None:
    made = cosigned()
    alias = VerifierKey("alias.example", COSIGNATURE_V1, WITNESS.public)
    both = made.note.add(note.cosign(made.note.text, "alias.example", WITNESS, seconds=5))
    with pytest.raises(ProofError, match="too few witnesses"):
        checkpoint.verify(
            SignedCheckpoint(HEAD, both), origin=ORIGIN, log_keys=[LOG_KEY], witnesses=[WITNESS_KEY, alias], quorum=2
        )


def test_a_key_after_rotation_signs_under_its_own_name() -> None:
    made = checkpoint.sign(HEAD, STRANGER, name="log.example/42-b")
    rotated = VerifierKey("log.example/42-b", ED25519, STRANGER.public)
    assert checkpoint.verify(made, origin=ORIGIN, log_keys=[LOG_KEY, rotated]) == ()


ROOT = "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I="


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "a\n1\n",
        f"a\n1\n{ROOT}",
        f"\n1\n{ROOT}\n",
        f"a\n\n{ROOT}\n",
        f"a\n01\n{ROOT}\n",
        f"a\n-1\n{ROOT}\n",
        f"a\n+1\n{ROOT}\n",
        f"a\n1.0\n{ROOT}\n",
        f"a\n 1\n{ROOT}\n",
        f"a\n1_0\n{ROOT}\n",
        f"a\n\u0661\n{ROOT}\n",
        f"a\n9223372036854775808\n{ROOT}\n",
        f"a\n99999999999999999999\n{ROOT}\n",
        f"a\n1\n{ROOT[:-1]}\n",
        "a\n1\nYQ==\n",
        f"a\n1\n{ROOT}\n\n",
        f"a\n1\n{ROOT}\n\nextension\n",
        f"a\r\n1\n{ROOT}\n",
    ],
    ids=repr,
)
def test_a_malformed_checkpoint_is_refused(text: str) -> None:
    rejected(lambda data: checkpoint.parse_text(data.decode()), text.encode())


@pytest.mark.parametrize(
    "head",
    [
        LogCheckpoint("", 1, bytes(32)),
        LogCheckpoint("a\nb", 1, bytes(32)),
        LogCheckpoint("a", -1, bytes(32)),
        LogCheckpoint("a", 2**63, bytes(32)),
        LogCheckpoint("a", 1, bytes(31)),
        LogCheckpoint("a", 1, bytes(32), ("",)),
        LogCheckpoint("a", 1, bytes(32), ("x\ty",)),
        LogCheckpoint("a b", 1, bytes(32)),
    ],
    ids=repr,
)
def test_an_impossible_checkpoint_is_not_signed(head: LogCheckpoint) -> None:
    with pytest.raises(InvalidInputError):
        checkpoint.sign(head, LOG)


@given(mutations(cosigned().encode()))
def test_a_mutated_checkpoint_is_refused_or_says_the_same(data: bytes) -> None:
    try:
        found = checkpoint.parse(data)
        checkpoint.verify(found, origin=ORIGIN, log_keys=[LOG_KEY])
    except FormatError:
        return
    assert found.checkpoint == HEAD


@given(st.binary())
def test_arbitrary_bytes_are_a_checkpoint_or_a_format_error(data: bytes) -> None:
    refuses(checkpoint.parse, data)
    refuses(checkpoint.parse, data + b"\n\n\xe2\x80\x94 a AAAAAAA=\n")
