"""A file under a passphrase: it opens with that one, whole, or not at all."""

import pytest

from holdfast.crypto import sealed
from holdfast.errors import FormatError, InvalidInputError, ProofError

RANDOM = bytes(range(sealed.RANDOM))


def test_what_was_sealed_opens_with_its_passphrase_alone() -> None:
    made = sealed.seal(b"secret", "päss", RANDOM)
    assert sealed.unseal(made, "päss") == b"secret"
    assert b"secret" not in made
    with pytest.raises(ProofError):
        sealed.unseal(made, "pass")


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
