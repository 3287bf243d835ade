"""Signed notes: the C2SP example, Go's vectors, and strict reading."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import keys, note, vkey
from holdproof.crypto.note import NoteSignature, SignedNote
from holdproof.crypto.vkey import COSIGNATURE_V1, ED25519, VerifierKey
from holdproof.errors import FormatError, InvalidInputError, ProofError

from .material import LINES, LOG, NAMES, SIZES, STRANGER, WITNESS, mutations, refuses, rejected
from .test_vkey import ENOCH, PETER

# C2SP/C2SP, signed-note.md
POEM = (
    "Ognuno sta solo sul cuor della terra\ntrafitto da un raggio di sole:\n\ned è subito sera.\n\n"
    "\u2014 quasimodo.example/salvatore "
    "NnugSzTjtVAewIS+Z/iJhUPeFDkO/5QQ2i5ddnGITLlC+EhfLW9oJKONrMouFSQU0xMcXxj99ihAQwaqP3ZekRwNtIc=\n"
).encode()

# golang.org/x/mod/sumdb/note, note_test.go
TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
PETER_SEED = base64.b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]
PETER_LINE = (
    "\u2014 PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
ENOCH_LINE = (
    "\u2014 EnochRoot rwz+eBzmZa0SO3NbfRGzPCpDckykFXSdeX+MNtCOXm2/5n2tiOHp+vAF1aGrQ5ovTG01oOTGwnWLox33WWd1RvMc+QQ=\n"
)
PETER_KEY, ENOCH_KEY = vkey.parse(PETER), vkey.parse(ENOCH)
BOTH = f"{TEXT}\n{PETER_LINE}{ENOCH_LINE}".encode()

SIGNATURES = st.builds(NoteSignature, NAMES, st.binary(min_size=4, max_size=4), st.binary(min_size=1, max_size=80))
NOTES = st.builds(
    SignedNote,
    st.lists(LINES | st.just(""), min_size=1, max_size=5).map(lambda rows: "\n".join(rows) + "\n"),
    st.lists(SIGNATURES, min_size=1, max_size=5).map(tuple),
)


def test_the_example_of_the_c2sp_text_is_read_and_written_again() -> None:
    found = note.parse(POEM)
    assert found.text.endswith("sole:\n\ned è subito sera.\n")
    (signature,) = found.signatures
    assert (signature.name, signature.key_id.hex()) == ("quasimodo.example/salvatore", "367ba04b")
    assert len(signature.signature) == 64
    assert note.encode(found) == POEM


def test_go_s_signer_and_ours_write_the_same_note() -> None:
    signature = note.sign(TEXT, "PeterNeumann", keys.from_seed(PETER_SEED))
    assert note.encode(SignedNote(TEXT, (signature,))).decode() == f"{TEXT}\n{PETER_LINE}"
    assert VerifierKey("PeterNeumann", ED25519, keys.from_seed(PETER_SEED).public) == PETER_KEY


def test_one_known_key_is_enough_and_strangers_are_ignored() -> None:
    (one,) = note.verify(note.parse(BOTH), [PETER_KEY])
    assert (one.key, one.seconds) == (PETER_KEY, None)
    assert [found.key for found in note.verify(note.parse(BOTH), [ENOCH_KEY, PETER_KEY])] == [PETER_KEY, ENOCH_KEY]


def test_a_note_without_a_known_key_is_refused() -> None:
    for known in (
        [],
        [VerifierKey("PeterNeumann", ED25519, LOG.public)],
        [VerifierKey("x", ED25519, PETER_KEY.public)],
    ):
        with pytest.raises(ProofError, match="known"):
            note.verify(note.parse(BOTH), known)


def test_one_bad_signature_of_a_known_key_condemns_the_note() -> None:
    bad = NoteSignature("PeterNeumann", PETER_KEY.key_id, bytes(64))
    spoilt = note.parse(BOTH).add(bad)
    with pytest.raises(ProofError):
        note.verify(spoilt, [PETER_KEY, ENOCH_KEY])
    assert note.verify(spoilt, [ENOCH_KEY])


def test_a_key_that_signed_twice_counts_once() -> None:
    twice = f"{TEXT}\n{PETER_LINE}{PETER_LINE}".encode()
    assert len(note.verify(note.parse(twice), [PETER_KEY, PETER_KEY])) == 1


def test_two_keys_with_one_name_and_key_id_are_refused() -> None:
    other = VerifierKey("PeterNeumann", ED25519, LOG.public)
    object.__setattr__(other, "key_id", PETER_KEY.key_id)
    with pytest.raises(InvalidInputError):
        note.verify(note.parse(BOTH), [PETER_KEY, other])


@pytest.mark.parametrize(
    "data",
    [
        TEXT,
        TEXT + "\n",
        f"{TEXT}\n{PETER_LINE[:-1]}",
        f"{TEXT}\n{PETER_LINE[:-1]}x",
        f"\x01{TEXT}\n{PETER_LINE}",
        f"{TEXT}\r\n\n{PETER_LINE}",
        f"{TEXT}\t\n\n{PETER_LINE}",
        f"{TEXT}\n\u2014 Bad Name {PETER_LINE.split()[2]}\n",
        f"{TEXT}\n{PETER_LINE}Unexpected line.\n",
        f"{TEXT}\n{PETER_LINE}\n",
        f"{TEXT}\n{PETER_LINE.replace(chr(0x2014), '-')}",
        f"{TEXT}\n{PETER_LINE.replace(chr(0x2014), chr(0x2013))}",
        f"{TEXT}\n{PETER_LINE.replace(' ', '  ', 1)}",
        f"{TEXT}\n{PETER_LINE[:-1]} \n",
        f"{TEXT}\n\u2014 PeterNeumann\n",
        f"{TEXT}\n\u2014 PeterNeumann \n",
        f"{TEXT}\n\u2014 PeterNeumann x08goA==\n\n",
        f"{TEXT}\n\u2014 PeterNeumann x08gow==\n",
        f"{TEXT}\n\u2014 Peter+Neumann {PETER_LINE.split()[2]}\n",
        f"{TEXT}\n{PETER_LINE.replace('=', '')}",
        f"\n{PETER_LINE}",
        f"{TEXT}\n{PETER_LINE * 101}",
        f"{TEXT * 11_000}\n{PETER_LINE}",
    ],
    ids=lambda data: repr(data[-30:]),
)
def test_a_malformed_note_is_refused(data: str) -> None:
    rejected(note.parse, data.encode())


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    rejected(note.parse, b"\xff" + BOTH)


def test_a_hundred_signatures_are_read_and_written() -> None:
    data = f"{TEXT}\n{PETER_LINE * 100}".encode()
    assert len(note.parse(data).signatures) == 100
    assert note.encode(note.parse(data)) == data


def test_a_million_bytes_are_read_and_not_one_more() -> None:
    rest = len(f"\n\n{PETER_LINE}".encode())
    assert len(note.parse(f"{'a' * (1_000_000 - rest)}\n\n{PETER_LINE}".encode()).signatures) == 1
    rejected(note.parse, f"{'a' * (1_000_001 - rest)}\n\n{PETER_LINE}".encode())


@given(NOTES)
def test_a_note_survives_its_encoding(made: SignedNote) -> None:
    assert note.parse(note.encode(made)) == made


@given(NOTES)
def test_blank_lines_in_the_text_do_not_move_the_signatures(made: SignedNote) -> None:
    padded = SignedNote(f"\n\n{made.text}\n\n", made.signatures)
    assert note.parse(note.encode(padded)) == padded


@pytest.mark.parametrize("text", ["", "abc", "a\tb\n", "a\r\n", "\x00\n", "\ud800\n"])
def test_a_text_that_no_reader_takes_is_not_signed(text: str) -> None:
    with pytest.raises(InvalidInputError):
        note.sign(text, "a", LOG)
    with pytest.raises(InvalidInputError):
        note.cosign(text, "a", LOG, seconds=1)
    with pytest.raises(InvalidInputError):
        note.encode(SignedNote(text, (NoteSignature("a", bytes(4), b"s"),)))


@pytest.mark.parametrize(
    "signatures",
    [
        (),
        (NoteSignature("a", bytes(4), b"s"),) * 101,
        (NoteSignature("a b", bytes(4), b"s"),),
        (NoteSignature("a", bytes(3), b"s"),),
        (NoteSignature("a", bytes(4), b""),),
    ],
)
def test_a_note_that_no_reader_takes_is_not_written(signatures: tuple[NoteSignature, ...]) -> None:
    with pytest.raises(InvalidInputError):
        note.encode(SignedNote("a\n", signatures))


@given(NAMES, LINES, SIZES)
def test_a_cosignature_carries_its_time(name: str, line: str, seconds: int) -> None:
    made = SignedNote(f"{line}\n", (note.cosign(f"{line}\n", name, WITNESS, seconds=seconds),))
    key = VerifierKey(name, COSIGNATURE_V1, WITNESS.public)
    (found,) = note.verify(note.parse(note.encode(made)), [key])
    assert (found.key, found.seconds) == (key, seconds)


def test_a_cosignature_is_no_plain_signature_nor_the_reverse() -> None:
    plain, cosigned = note.sign("a\n", "w", LOG), note.cosign("a\n", "w", LOG, seconds=5)
    as_plain, as_cosigned = (VerifierKey("w", kind, LOG.public) for kind in (ED25519, COSIGNATURE_V1))
    with pytest.raises(ProofError):
        note.verify(SignedNote("a\n", (NoteSignature("w", as_cosigned.key_id, plain.signature),)), [as_cosigned])
    with pytest.raises(ProofError):
        note.verify(SignedNote("a\n", (NoteSignature("w", as_plain.key_id, cosigned.signature[8:]),)), [as_plain])


def test_the_time_of_a_cosignature_cannot_be_changed() -> None:
    good = note.cosign("a\n", "w", LOG, seconds=5)
    key = VerifierKey("w", COSIGNATURE_V1, LOG.public)
    for seconds in (6, 2**63):
        bad = NoteSignature("w", good.key_id, seconds.to_bytes(8, "big") + good.signature[8:])
        with pytest.raises(ProofError):
            note.verify(SignedNote("a\n", (bad,)), [key])
    for outside in (-1, 2**63):
        with pytest.raises(InvalidInputError):
            note.cosign("a\n", "w", LOG, seconds=outside)


def test_adding_a_signature_twice_adds_it_once() -> None:
    signature = note.sign("a\n", "w", LOG)
    made = SignedNote("a\n", (signature,))
    assert made.add(signature) == made
    more = note.sign("a\n", "s", STRANGER)
    assert made.add(more, more).signatures == (signature, more)


@given(mutations(BOTH))
def test_a_mutated_note_never_verifies_under_both_keys_unless_equal(data: bytes) -> None:
    try:
        found = note.parse(data)
        verified = note.verify(found, [PETER_KEY, ENOCH_KEY])
    except FormatError:
        return
    assert found.text == TEXT
    assert len(verified) < 2 or data == BOTH or set(found.signatures) == set(note.parse(BOTH).signatures)


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_arbitrary_bytes_are_a_note_or_a_format_error(data: bytes) -> None:
    refuses(note.parse, data)
    refuses(note.parse, b"a\n\n\xe2\x80\x94 " + data + b"\n")
