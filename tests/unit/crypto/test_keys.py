"""Keys: round trips, RFC vectors, Wycheproof, and everything a strict loader must refuse."""

import base64
import hashlib
import re
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa, x25519
from hypothesis import given, settings
from hypothesis import strategies as st

from holdproof.crypto import keys, signatures
from holdproof.crypto.keys import Alg, PrivateKey, PublicKey, Signer
from holdproof.errors import BadKeyError, InvalidInputError, ProofError
from tests.fixtures import load

from . import material
from .material import JUDGE, LOG, one_of_each, p256, refuses

SPKI = serialization.PublicFormat.SubjectPublicKeyInfo
DER = serialization.Encoding.DER


def armour(label: str, der: bytes) -> bytes:
    body = base64.encodebytes(der).replace(b"\n", b"")
    rows = b"\n".join(body[at : at + 64] for at in range(0, len(body), 64))
    return b"-----BEGIN %b-----\n%b\n-----END %b-----\n" % (label.encode(), rows, label.encode())


def unarmour(pem: bytes) -> bytes:
    return base64.b64decode(re.sub(rb"-----[^-]+-----", b"", pem))


@pytest.mark.parametrize("alg", keys.ALGS)
def test_a_generated_key_signs_what_its_public_key_verifies(alg: Alg) -> None:
    key = keys.generate(alg, rsa_bits=2048)
    assert key.alg == key.public.alg == alg
    key.public.verify(b"message", key.sign(b"message"))
    with pytest.raises(ProofError):
        key.public.verify(b"massage", key.sign(b"message"))


def test_each_key_survives_pem_with_and_without_passphrase() -> None:
    for key in one_of_each():
        assert keys.load_private(key.to_pem()).public == key.public
        assert keys.load_private(key.to_pem(b"secret"), b"secret").public == key.public
        assert b"ENCRYPTED" in key.to_pem(b"secret")
        assert keys.load_public_pem(key.public.to_pem()) == key.public
        assert keys.load_public_der(key.public.der) == key.public


def test_carriage_returns_in_pem_are_no_obstacle() -> None:
    assert keys.load_public_pem(JUDGE.public.to_pem().replace(b"\n", b"\r\n")) == JUDGE.public


def test_the_key_id_is_the_sha256_of_the_der_public_key() -> None:
    for key in one_of_each():
        assert key.keyid == key.public.keyid
        assert key.keyid == hashlib.sha256(key.public.der).hexdigest()


def test_a_private_key_does_not_show_its_secret() -> None:
    for key in one_of_each():
        assert "handle" not in repr(key)
        assert "seed" not in repr(key)
    assert LOG.seed.hex() not in repr(LOG)


def test_a_private_key_is_a_signer() -> None:
    signers: tuple[Signer, ...] = one_of_each()
    assert [signer.alg for signer in signers] == ["ecdsa-p256-sha256", "ed25519", "rsa-pss-sha256"]


def test_the_raw_form_of_a_public_key_loads_again() -> None:
    for key in (JUDGE, LOG):
        assert keys.load_public_raw(key.alg, key.public.raw) == key.public
    with pytest.raises(BadKeyError):
        _ = material.rsa().public.raw


def test_an_ed25519_key_comes_back_from_its_seed() -> None:
    assert keys.from_seed(LOG.seed).public == LOG.public
    with pytest.raises(BadKeyError):
        _ = JUDGE.seed
    with pytest.raises(BadKeyError):
        keys.from_seed(b"short")


@pytest.mark.parametrize(
    ("message", "signature"),
    [
        (
            b"sample",
            "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716"
            "f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8",
        ),
        (
            b"test",
            "f1abb023518351cd71d881567b1ea663ed3efcf6c5132b354f28d3b0b7d38367"
            "019f4113742a2b14bd25926b49c649155f267e60d3814b4c0cc84250e46f0083",
        ),
    ],
)
def test_ecdsa_signs_as_rfc_6979_prints_it(message: bytes, signature: str) -> None:
    assert signatures.to_raw(JUDGE.sign(message)).hex() == signature


def test_ed25519_signs_as_rfc_8032_prints_it() -> None:
    key = keys.from_seed(bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"))
    assert key.public.raw.hex() == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    assert key.sign(b"\x72").hex() == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )


@settings(max_examples=25)
@given(st.binary(max_size=200), st.integers(0, 10_000), st.integers(1, 255))
def test_a_signature_with_one_byte_changed_does_not_hold(message: bytes, at: int, change: int) -> None:
    for key in (JUDGE, LOG):
        signature = bytearray(key.sign(message))
        signature[at % len(signature)] ^= change
        with pytest.raises(ProofError):
            key.public.verify(message, bytes(signature))


@settings(max_examples=25)
@given(st.binary(max_size=200), st.binary(max_size=300))
def test_arbitrary_bytes_are_never_a_signature(message: bytes, signature: bytes) -> None:
    for key in one_of_each():
        with pytest.raises(ProofError):
            key.public.verify(message, signature)


def _judge_wycheproof(path: str, load_key: Callable[[dict[str, Any]], PublicKey]) -> tuple[int, list[int]]:
    count, wrong = 0, []
    for group in load(path)["testGroups"]:
        key = load_key(group)
        for case in group["tests"]:
            count += 1
            try:
                key.verify(bytes.fromhex(case["msg"]), bytes.fromhex(case["sig"]))
                holds = True
            except ProofError:
                holds = False
            if holds != (case["result"] == "valid"):
                wrong.append(case["tcId"])
    return count, wrong


@pytest.mark.parametrize(
    ("name", "alg", "expected"),
    [
        ("ecdsa_secp256r1_sha256_test", "ecdsa-p256-sha256", 484),
        ("ed25519_test", "ed25519", 151),
        ("rsa_pss_2048_sha256_mgf1_32_test", "rsa-pss-sha256", 108),
    ],
)
def test_every_wycheproof_signature_is_judged_as_published(name: str, alg: Alg, expected: int) -> None:
    def load_key(group: dict[str, Any]) -> PublicKey:
        key = keys.load_public_der(bytes.fromhex(group["publicKeyDer"]))
        assert key.alg == alg
        assert keys.load_public_pem(group["publicKeyPem"].encode()) == key
        return key

    assert _judge_wycheproof(f"wycheproof/{name}.json", load_key) == (expected, [])


def _spki(handle: Any) -> bytes:
    data: bytes = handle.public_key().public_bytes(DER, SPKI)
    return data


def _p256_spki(point: bytes) -> bytes:
    head = bytes.fromhex("301306072a8648ce3d020106082a8648ce3d030107")
    bits = b"\x03" + bytes([len(point) + 1]) + b"\x00" + point
    return b"\x30" + bytes([len(head) + len(bits)]) + head + bits


def _off_curve() -> bytes:
    point = bytearray(b"\x04" + bytes(64))
    point[32], point[64] = 1, 1
    return _p256_spki(bytes(point))


BAD_PUBLIC: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "garbage": lambda: b"\x30\x03\x01\x01\xff",
    "trailing data": lambda: JUDGE.public.der + b"\x00",
    "trailing data (Ed25519)": lambda: LOG.public.der + b"\x00",
    "trailing data (RSA)": lambda: material.rsa().public.der + b"\x00",
    "cut short": lambda: JUDGE.public.der[:-1],
    "compressed point": lambda: _p256_spki(JUDGE.public.raw),
    "off the curve": _off_curve,
    "point at infinity": lambda: _p256_spki(b"\x00"),
    "P-384": lambda: _spki(ec.generate_private_key(ec.SECP384R1())),
    "secp256k1": lambda: _spki(ec.generate_private_key(ec.SECP256K1())),
    "RSA 1024": lambda: _spki(rsa.generate_private_key(65537, 1024)),
    "RSA 2047": lambda: _spki(rsa.generate_private_key(65537, 2047)),
    "RSA exponent 3": lambda: _spki(rsa.generate_private_key(3, 2048)),
    "Ed448": lambda: _spki(ed448.Ed448PrivateKey.generate()),
    "X25519": lambda: _spki(x25519.X25519PrivateKey.generate()),
}


@pytest.mark.parametrize("name", BAD_PUBLIC)
def test_a_bad_public_key_is_refused(name: str) -> None:
    der = BAD_PUBLIC[name]()
    with pytest.raises(BadKeyError):
        keys.load_public_der(der)
    with pytest.raises(BadKeyError):
        keys.load_public_pem(armour("PUBLIC KEY", der))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        bytes(32),
        b"\x04" + bytes(32),
        b"\x02" + b"\xff" * 32,
        b"\x02" + bytes(31) + b"\x01" + b"\x00",
    ],
)
def test_a_bad_compressed_point_is_refused(raw: bytes) -> None:
    with pytest.raises(BadKeyError):
        keys.load_public_raw("ecdsa-p256-sha256", raw)
    with pytest.raises(BadKeyError):
        keys.load_public_raw("rsa-pss-sha256", raw)


@pytest.mark.parametrize(
    "change",
    [
        lambda pem: b"Subject: me\n" + pem,
        lambda pem: pem + b"more",
        lambda pem: pem + pem,
        lambda pem: pem.replace(b"PUBLIC KEY", b"RSA PUBLIC KEY"),
        lambda pem: pem.replace(b"END PUBLIC", b"END PRIVATE"),
        lambda pem: pem.replace(b"\n-----END", b"=\n-----END"),
        lambda pem: pem.replace(b"-----BEGIN", b"----BEGIN"),
        lambda pem: JUDGE.to_pem(),
    ],
)
def test_only_one_bare_pem_block_is_a_public_key(change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(BadKeyError):
        keys.load_public_pem(change(JUDGE.public.to_pem()))


def _mismatched() -> bytes:
    """A P-256 private key that carries the public point of another."""
    ours, other = unarmour(JUDGE.to_pem()), p256(12345).public.der[-64:]
    return armour("PRIVATE KEY", ours[:-64] + other)


BAD_PRIVATE: dict[str, tuple[Callable[[], bytes], bytes | None]] = {
    "empty": (lambda: b"", None),
    "a public key": (lambda: JUDGE.public.to_pem(), None),
    "passphrase missing": (lambda: JUDGE.to_pem(b"secret"), None),
    "wrong passphrase": (lambda: JUDGE.to_pem(b"secret"), b"guess"),
    "needless passphrase": (lambda: JUDGE.to_pem(), b"secret"),
    "trailing data": (lambda: armour("PRIVATE KEY", unarmour(JUDGE.to_pem()) + b"\x00"), None),
    "not DER": (lambda: armour("PRIVATE KEY", b"hello"), None),
    "one byte": (lambda: armour("PRIVATE KEY", b"\x30"), None),
    "another point": (_mismatched, None),
    "traditional": (
        lambda: ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        ),
        None,
    ),
    "P-384": (lambda: _pkcs8(ec.generate_private_key(ec.SECP384R1())), None),
    "RSA 1024": (lambda: _pkcs8(rsa.generate_private_key(65537, 1024)), None),
    "X25519": (lambda: _pkcs8(x25519.X25519PrivateKey.generate()), None),
    "X448 with 32 bytes": (
        lambda: (
            b"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VvBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n"
            b"-----END PRIVATE KEY-----\n"
        ),
        None,
    ),
}


def _pkcs8(handle: Any) -> bytes:
    pem: bytes = handle.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem


@pytest.mark.parametrize("name", BAD_PRIVATE)
def test_a_bad_private_key_is_refused(name: str) -> None:
    make, passphrase = BAD_PRIVATE[name]
    with pytest.raises(BadKeyError):
        keys.load_private(make(), passphrase)


def test_a_private_key_is_never_written_under_an_empty_passphrase() -> None:
    with pytest.raises(InvalidInputError):
        JUDGE.to_pem(b"")


def test_unknown_algorithms_and_short_rsa_keys_are_not_generated() -> None:
    with pytest.raises(InvalidInputError):
        keys.generate("rot13")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        keys.generate("rsa-pss-sha256", rsa_bits=1024)


@given(st.binary(max_size=150))
def test_arbitrary_bytes_are_a_key_or_a_bad_key_error(data: bytes) -> None:
    for parse in (keys.load_public_der, keys.load_public_pem, keys.load_private):
        refuses(parse, data)
    for label, read in (("PUBLIC KEY", keys.load_public_pem), ("PRIVATE KEY", keys.load_private)):
        refuses(read, armour(label, data))


@settings(max_examples=300)
@given(st.data())
def test_a_mutated_public_key_is_refused_or_another_key(data: st.DataObject) -> None:
    for key in (JUDGE, LOG):
        changed = data.draw(material.mutations(key.public.der))
        try:
            found = keys.load_public_der(changed)
        except BadKeyError:
            continue
        assert found.der == changed


def test_two_private_keys_are_equal_when_their_public_keys_are() -> None:
    assert p256(7) == p256(7)
    assert p256(7) != p256(8)
    assert isinstance(p256(7), PrivateKey)


@pytest.mark.parametrize("alg", ["ed25519", "ecdsa-p256-sha256"])
def test_a_flipped_bit_of_a_key_file_is_the_same_key_another_or_refused(alg: Alg) -> None:
    """Of an identifier that becomes another curve's, OpenSSL says that it failed within."""
    pem = keys.generate(alg).to_pem(None)
    for at in range(len(pem) * 8):
        damaged = bytearray(pem)
        damaged[at // 8] ^= 1 << at % 8
        try:
            assert keys.load_private(bytes(damaged)).alg in keys.ALGS
        except BadKeyError:
            continue
