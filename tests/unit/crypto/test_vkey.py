"""Verifier keys: Go's published key, and every mangling of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import b64, keys, vkey
from holdproof.crypto.vkey import COSIGNATURE_V1, ED25519, VerifierKey
from holdproof.errors import BadKeyError, FormatError, InvalidInputError, ProofError

from .material import JUDGE, LOG, NAMES

# golang.org/x/mod/sumdb/note, note_test.go
PETER = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
ENOCH = "EnochRoot+af0cfe78+ATtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop"


@pytest.mark.parametrize("line", [PETER, ENOCH])
def test_a_published_key_is_read_and_written(line: str) -> None:
    key = vkey.parse(line)
    assert key.encode() == line
    assert (key.kind, key.key_id.hex()) == (ED25519, line.split("+")[1])


@given(NAMES, st.sampled_from([ED25519, COSIGNATURE_V1]), st.binary(min_size=32, max_size=32))
def test_a_key_survives_its_line(name: str, kind: vkey.Kind, seed: bytes) -> None:
    key = VerifierKey(name, kind, keys.from_seed(seed).public)
    assert vkey.parse(key.encode()) == key


def test_no_part_of_a_key_is_a_key() -> None:
    for start in range(len(PETER)):
        for end in range(start, len(PETER) + 1):
            if (start, end) != (0, len(PETER)):
                with pytest.raises(BadKeyError):
                    vkey.parse(PETER[start:end])


def test_no_key_with_one_character_changed_is_a_key() -> None:
    for at in range(len(PETER)):
        with pytest.raises(BadKeyError):
            vkey.parse(PETER[:at] + chr(ord(PETER[at]) + 1) + PETER[at + 1 :])


@pytest.mark.parametrize(
    "line",
    [
        "PeterNeumann+cc469956+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TWBADKEY==",  # too long, key id adjusted
        "PeterNeumann+173116ae+ZRpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",  # unknown type, key id adjusted
        PETER.replace("c74f20a3", "C74F20A3"),
        PETER + "\n",
        " " + PETER,
    ],
)
def test_a_mangled_key_is_refused(line: str) -> None:
    with pytest.raises(BadKeyError):
        vkey.parse(line)


def test_the_type_is_part_of_the_key_id() -> None:
    plain, cosigner = (VerifierKey("a", kind, LOG.public) for kind in (ED25519, COSIGNATURE_V1))
    assert plain.key_id != cosigner.key_id
    assert plain != cosigner


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\n", "a\u00a0b", "a\u2003b", "\x00", "a\x7f\x01", "\ud800"])
def test_a_name_with_space_plus_or_control_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError):
        VerifierKey(name, ED25519, LOG.public)


def test_only_ed25519_keys_sign_notes() -> None:
    with pytest.raises(BadKeyError):
        VerifierKey("a", ED25519, JUDGE.public)


@given(st.text())
def test_arbitrary_text_is_a_key_or_a_format_error(line: str) -> None:
    try:
        key = vkey.parse(line)
    except FormatError:
        return
    assert key.encode() == line


def test_the_type_byte_is_one_for_signatures_and_four_for_cosignatures() -> None:
    for kind, byte in ((ED25519, 1), (COSIGNATURE_V1, 4)):
        line = VerifierKey("a", kind, LOG.public).encode()
        assert b64.decode(line.split("+", 2)[2]) == bytes([byte]) + LOG.public.raw


def cosignature(seconds: int) -> bytes:
    return seconds.to_bytes(8, "big") + LOG.sign(vkey.cosignature_message("text\n", seconds))


def test_a_cosignature_tells_its_time_up_to_63_bits() -> None:
    key = VerifierKey("a", COSIGNATURE_V1, LOG.public)
    for seconds in (0, 2**63 - 1):
        assert key.verify("text\n", cosignature(seconds)) == seconds
    with pytest.raises(ProofError, match="out of range"):
        key.verify("text\n", cosignature(2**63))


@pytest.mark.parametrize("bad", [b"", bytes(8), bytes(72), cosignature(5)[:-1], cosignature(5) + b"\x00"])
def test_a_cosignature_cut_short_or_too_long_does_not_hold(bad: bytes) -> None:
    with pytest.raises(ProofError):
        VerifierKey("a", COSIGNATURE_V1, LOG.public).verify("text\n", bad)


def test_the_cosigned_message_is_the_one_of_the_c2sp_text() -> None:
    text = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
    assert vkey.cosignature_message(text, 1679315147).decode() == f"cosignature/v1\ntime 1679315147\n{text}"
