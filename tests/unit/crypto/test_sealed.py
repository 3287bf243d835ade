"""A file under a passphrase: it opens with that one, whole, or not at all."""

import hashlib

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdproof.crypto import sealed
from holdproof.errors import FormatError, InvalidInputError, ProofError

RANDOM = bytes(range(sealed.RANDOM))


def test_what_was_sealed_opens_with_its_passphrase_alone() -> None:
    made = sealed.seal(b"secret", "päss", RANDOM)
    assert sealed.unseal(made, "päss") == b"secret"
    assert b"secret" not in made
    with pytest.raises(ProofError):
        sealed.unseal(made, "pass")


def test_the_bytes_are_those_the_format_prescribes() -> None:
    salt, nonce = RANDOM[:16], RANDOM[16:]
    key = hashlib.scrypt("päss".encode(), salt=salt, n=32768, r=8, p=1, maxmem=2**26, dklen=32)
    head = b"holdproof-sealed/1\n" + salt + nonce
    assert (len(salt), len(nonce)) == (16, 12)
    assert sealed.seal(b"secret", "päss", RANDOM) == head + AESGCM(key).encrypt(nonce, b"secret", head)


def test_an_empty_file_can_be_sealed_too() -> None:
    assert sealed.unseal(sealed.seal(b"", "p", RANDOM), "p") == b""


def test_every_flipped_byte_is_noticed() -> None:
    made = sealed.seal(b"secret", "p", RANDOM)
    for at in range(0, len(made), 7):
        with pytest.raises(FormatError):
            sealed.unseal(made[:at] + bytes([made[at] ^ 1]) + made[at + 1 :], "p")
    for cut in (0, 10, 40, len(made) - 1):
        with pytest.raises(FormatError):
            sealed.unseal(made[:cut], "p")


def test_a_seal_needs_a_passphrase_and_randomness() -> None:
    for passphrase, random in (("", RANDOM), ("p", b"")):
        with pytest.raises(InvalidInputError):
            sealed.seal(b"x", passphrase, random)
