"""`did:key` for P-256 and Ed25519."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import base58, didkey, keys, signatures
from holdproof.crypto.b64 import decode
from holdproof.errors import BadKeyError, FormatError, ProofError
from tests.fixtures import load

from .blocks import MUTATIONS, mutants
from .material import JUDGE, LOG, p256, rsa

# did:key method specification, section "Test vectors"
ED25519 = "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp"


def test_the_published_p256_keys_have_their_names() -> None:
    for case in load("atproto/crypto/w3c_didkey_P256.json"):
        secret = base58.decode(case["privateKeyBytesBase58"])
        key = p256(int.from_bytes(secret, "big")).public
        assert didkey.encode(key) == case["publicDidKey"]
        assert didkey.parse(case["publicDidKey"]) == key


def test_a_published_ed25519_key_survives() -> None:
    key = didkey.parse(ED25519)
    assert key.alg == "ed25519"
    assert key.raw.hex() == "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
    assert didkey.encode(key) == ED25519


def test_secp256k1_is_refused_by_name() -> None:
    for case in load("atproto/crypto/w3c_didkey_K256.json"):
        with pytest.raises(BadKeyError, match="secp256k1"):
            didkey.parse(case["publicDidKey"])


def test_a_kind_without_a_name_here_is_refused_by_its_number() -> None:
    with pytest.raises(BadKeyError, match="0xec"):
        didkey.parse("did:key:z" + base58.encode(b"\xec\x01" + bytes(32)))


def test_the_published_signatures_are_judged_as_the_protocol_says() -> None:
    """Low s in 64 raw bytes holds; the high twin and DER do not; secp256k1 is not ours."""
    judged = 0
    for case in load("atproto/crypto/signature-fixtures.json"):
        if case["algorithm"] != "ES256":
            with pytest.raises(BadKeyError):
                didkey.parse(case["publicKeyDid"])
            continue
        judged += 1
        message, raw = (
            decode(text + "=" * (-len(text) % 4)) for text in (case["messageBase64"], case["signatureBase64"])
        )
        assert holds(case["publicKeyDid"], message, raw) == case["validSignature"], case["comment"]
    assert judged == 3


def holds(did: str, message: bytes, raw: bytes) -> bool:
    try:
        low = signatures.is_low_s(raw)
        didkey.parse(did).verify(message, signatures.from_raw(raw))
    except (FormatError, ProofError):
        return False
    return low


@given(st.integers(1, 2**255), st.binary(min_size=32, max_size=32))
def test_every_key_survives(scalar: int, seed: bytes) -> None:
    for key in (p256(scalar).public, keys.from_seed(seed).public):
        assert didkey.parse(didkey.encode(key)) == key


def test_rsa_has_no_name() -> None:
    with pytest.raises(BadKeyError):
        didkey.encode(rsa().public)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "did:key:",
        "did:key:z",
        ED25519[:-1],
        ED25519 + "1",
        ED25519.replace("did:key:z", "did:key:m"),
        ED25519.upper(),
        " " + ED25519,
        "did:web:example.com",
        "did:key:z" + base58.encode(b"\xed\x01" + bytes(31)),
        "did:key:z" + base58.encode(b"\xed\x01\x01" + bytes(31)),  # a point of low order
        "did:key:z" + base58.encode(b"\x80\x24\x02" + b"\xff" * 32),  # not on the curve
        "did:key:z" + base58.encode(b"\x80\x24\x04" + bytes(64)),  # uncompressed
        "did:key:z" + base58.encode(b"\xec\x01" + bytes(32)),  # x25519
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        didkey.parse(text)


def test_mutated_names_are_keys_or_refused() -> None:
    seeds = [didkey.encode(key).encode() for key in (JUDGE.public, LOG.public)]
    for data in mutants(seeds, MUTATIONS // 5):
        text = data.decode("utf-8", "replace")
        try:
            key = didkey.parse(text)
        except FormatError:
            continue
        assert didkey.encode(key) == text
