"""Keys and signatures: ECDSA P-256 (RFC 6979), Ed25519, RSA-PSS, with SHA-256; ML-DSA-44 (FIPS 204).

- A key is loaded strictly or not at all: one accepted encoding (DER in, the same DER out), nothing after
  its end, no other curve, no point off the curve or of low order, no RSA below 2,048 bits.
- keyid = hex SHA-256 of the DER SubjectPublicKeyInfo.
- The same key and message always give the same signature, except RSA-PSS and ML-DSA, which use random numbers.
- ML-DSA needs a `cryptography` that has it; without one such a key is refused with that reason.
- A private key never shows its secret in `repr`; only `to_pem` and `seed` return it.
"""

import re
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, get_args

from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from holdproof.crypto import b64, ml_dsa
from holdproof.crypto.canonical import sha256_hex
from holdproof.crypto.ml_dsa import MLDSA44PrivateKey, MLDSA44PublicKey
from holdproof.errors import BadKeyError, FormatError, InvalidInputError, ProofError

Alg: TypeAlias = Literal["ecdsa-p256-sha256", "ed25519", "rsa-pss-sha256", "ml-dsa-44"]
ALGS: tuple[Alg, ...] = get_args(Alg)

_PublicHandle: TypeAlias = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey | MLDSA44PublicKey
_PrivateHandle: TypeAlias = (
    ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey | MLDSA44PrivateKey
)

_MIN_RSA = 2048
_MAX_RSA = 8192
_SHA256 = hashes.SHA256()
_ECDSA = ec.ECDSA(_SHA256)
_ECDSA_RFC6979 = ec.ECDSA(_SHA256, deterministic_signing=True)
_PSS = padding.PSS(mgf=padding.MGF1(_SHA256), salt_length=32)
_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm, InternalError)
"""The library's errors for DER that is no key; InternalError where OpenSSL names no reason, as for short X448 keys."""
_PEM = re.compile(rb"-----BEGIN (?P<begin>[A-Z ]+)-----\n(?P<body>[A-Za-z0-9+/=\n]+)-----END (?P<end>[A-Z ]+)-----\n?")

# Ed25519 (RFC 8032): the field prime p, and d of the curve equation -x^2 + y^2 = 1 + d x^2 y^2.
FIELD_PRIME = 2**255 - 19
CURVE_D = -121665 * pow(121666, -1, FIELD_PRIME) % FIELD_PRIME
# y of the eight points whose order divides 8: order 1, 2, 4, and the two values of order 8.
_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
LOW_ORDER_Y = frozenset({1, FIELD_PRIME - 1, 0, _ORDER_8, FIELD_PRIME - _ORDER_8})


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key that passed all checks; two are equal when their DER is."""

    alg: Alg
    der: bytes = field(repr=False)
    keyid: str
    _handle: _PublicHandle = field(repr=False, compare=False)

    def verify(self, message: bytes, signature: bytes) -> None:
        """Return if the signature over the message is valid, else raise ProofError."""
        handle = self._handle
        try:
            if isinstance(handle, ed25519.Ed25519PublicKey | MLDSA44PublicKey):
                handle.verify(signature, message)
            elif isinstance(handle, ec.EllipticCurvePublicKey):
                handle.verify(signature, message, _ECDSA)
            else:
                handle.verify(signature, message, _PSS, _SHA256)
        except (InvalidSignature, ValueError) as error:
            raise ProofError("the signature does not hold", alg=self.alg, keyid=self.keyid) from error

    def to_pem(self) -> bytes:
        """Encode as SubjectPublicKeyInfo PEM."""
        return self._handle.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    @property
    def raw(self) -> bytes:
        """Ed25519: the 32 bytes; ML-DSA-44: the 1,312 bytes; P-256: the compressed point, 33 bytes; RSA has none."""
        if isinstance(self._handle, ed25519.Ed25519PublicKey | MLDSA44PublicKey):
            return self._handle.public_bytes_raw()
        if isinstance(self._handle, ec.EllipticCurvePublicKey):
            return self._handle.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint)
        raise BadKeyError("an RSA key has no raw form", alg=self.alg, keyid=self.keyid)


class Signer(Protocol):
    """Anything that signs: a `PrivateKey`, or a client of a KMS or HSM."""

    @property
    def alg(self) -> Alg:
        """The algorithm of every signature it makes."""

    @property
    def keyid(self) -> str:
        """The key id of its public key."""

    @property
    def public(self) -> PublicKey:
        """The public key its signatures verify under."""

    def sign(self, message: bytes) -> bytes:
        """Sign the message itself (not its hash); DER for ECDSA. May be called any number of times."""


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A private key in memory; a `Signer`."""

    public: PublicKey
    _handle: _PrivateHandle = field(repr=False, compare=False)

    @property
    def alg(self) -> Alg:
        """The algorithm of every signature it makes."""
        return self.public.alg

    @property
    def keyid(self) -> str:
        """The key id of its public key."""
        return self.public.keyid

    def sign(self, message: bytes) -> bytes:
        """Sign the message; DER for ECDSA."""
        handle = self._handle
        if isinstance(handle, ed25519.Ed25519PrivateKey | MLDSA44PrivateKey):
            return handle.sign(message)
        if isinstance(handle, ec.EllipticCurvePrivateKey):
            # Deterministic: no random number whose reuse or bias would give the key away.
            return handle.sign(message, _ECDSA_RFC6979)
        return handle.sign(message, _PSS, _SHA256)

    def to_pem(self, passphrase: bytes | None = None) -> bytes:
        """Encode as PKCS#8 PEM, encrypted if there is a passphrase."""
        if passphrase == b"":
            raise InvalidInputError("an empty passphrase protects nothing")
        return self._handle.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(passphrase)
            if passphrase is not None
            else serialization.NoEncryption(),
        )

    @property
    def seed(self) -> bytes:
        """The 32 secret bytes of an Ed25519 key, for a printed recovery."""
        if isinstance(self._handle, ed25519.Ed25519PrivateKey):
            return self._handle.private_bytes_raw()
        raise BadKeyError("only an Ed25519 key has a seed", alg=self.alg, keyid=self.keyid)


def generate(alg: Alg = "ecdsa-p256-sha256", *, rsa_bits: int = 3072) -> PrivateKey:
    """Generate a key from the system's randomness."""
    if alg == "ecdsa-p256-sha256":
        return _private(ec.generate_private_key(ec.SECP256R1()))
    if alg == "ed25519":
        return _private(ed25519.Ed25519PrivateKey.generate())
    if alg == "rsa-pss-sha256":
        if not _MIN_RSA <= rsa_bits <= _MAX_RSA:
            raise InvalidInputError(f"RSA keys have {_MIN_RSA} to {_MAX_RSA} bits", rsa_bits=rsa_bits)
        return _private(rsa.generate_private_key(65537, rsa_bits))
    if alg == "ml-dsa-44":
        return _private(ml_dsa.generate())
    raise InvalidInputError(f"no such algorithm: {alg}", alg=alg, known=list(ALGS))


def from_seed(seed: bytes) -> PrivateKey:
    """Return the Ed25519 key of 32 secret bytes."""
    if len(seed) != 32:
        raise BadKeyError("an Ed25519 seed has 32 bytes", length=len(seed))
    return _private(ed25519.Ed25519PrivateKey.from_private_bytes(seed))


def load_private(pem: bytes, passphrase: bytes | None = None) -> PrivateKey:
    """Load a private key from PKCS#8 PEM; BadKeyError unless there is a passphrase exactly if the file is encrypted."""
    label, der = _unarmour(pem, ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"))
    if (label == "ENCRYPTED PRIVATE KEY") != (passphrase is not None):
        raise BadKeyError(
            "the key is not encrypted, yet a passphrase was given"
            if passphrase is not None
            else "the key is encrypted: give its passphrase",
            encrypted=passphrase is None,
        )
    # The library ignores bytes after the end of a private key.
    if not _is_one_sequence(der):
        raise BadKeyError("private key: data after its end", length=len(der))
    try:
        handle = serialization.load_der_private_key(der, passphrase)
    except _UNREADABLE as error:
        raise BadKeyError("the private key cannot be read: malformed, or a wrong passphrase") from error
    if not isinstance(handle, _PrivateHandle):
        raise BadKeyError("a private key of a kind not used here", kind=type(handle).__name__)
    return _private(handle)


def load_public_pem(pem: bytes) -> PublicKey:
    """Load a public key from SubjectPublicKeyInfo PEM."""
    _, der = _unarmour(pem, ("PUBLIC KEY",))
    return load_public_der(der)


def load_public_der(der: bytes) -> PublicKey:
    """Load a public key from DER SubjectPublicKeyInfo; BadKeyError unless it is the canonical encoding."""
    try:
        handle = serialization.load_der_public_key(der)
    except _UNREADABLE as error:
        raise BadKeyError("the public key cannot be read: malformed, or of an unknown kind") from error
    if not isinstance(handle, _PublicHandle):
        raise BadKeyError("a public key of a kind not used here", kind=type(handle).__name__)
    key = _public(handle)
    # The key id is the hash of the DER: a second encoding would give the same key a second id.
    if key.der != der:
        raise BadKeyError("public key: not the canonical encoding", alg=key.alg, keyid=key.keyid)
    return key


def load_public_raw(alg: Alg, raw: bytes) -> PublicKey:
    """Load a public key from its raw form: 32 bytes (Ed25519), 1,312 bytes (ML-DSA-44) or the point (P-256)."""
    if alg == "ed25519":
        check_ed25519(raw)
        return _public(ed25519.Ed25519PublicKey.from_public_bytes(raw))
    if alg == "ml-dsa-44":
        return _public(ml_dsa.load_public(raw))
    if alg != "ecdsa-p256-sha256":
        raise BadKeyError("this kind of key has no raw form", alg=alg)
    if len(raw) != 33:
        raise BadKeyError("a compressed P-256 point has 33 bytes", length=len(raw))
    try:
        return _public(ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), raw))
    except ValueError as error:
        raise BadKeyError("not a point of P-256", raw=raw.hex()) from error


def check_ed25519(raw: bytes) -> None:
    """Raise BadKeyError unless raw bytes are a safe Ed25519 public key.

    Stricter than RFC 8032 section 5.1.3: the encoding is canonical (y below the field prime, no sign bit on x = 0),
    the point is on the curve and not of low order.
    """
    if len(raw) != 32:
        raise BadKeyError("an Ed25519 public key has 32 bytes", length=len(raw))
    y = int.from_bytes(raw, "little") & (2**255 - 1)
    if y >= FIELD_PRIME:
        raise BadKeyError("Ed25519 public key: not the canonical encoding", raw=raw.hex())
    # Under a key of low order one signature is valid for many messages. x = 0 has such a y, with either sign bit.
    if y in LOW_ORDER_Y:
        raise BadKeyError("Ed25519 public key: a point of low order", raw=raw.hex())
    numerator = (y * y - 1) % FIELD_PRIME
    denominator = (CURVE_D * y * y + 1) % FIELD_PRIME
    # x^2 = numerator / denominator needs a square root, which exists if Euler's criterion is 1; multiplying
    # instead of dividing does not change whether it is a square.
    if pow(numerator * denominator, (FIELD_PRIME - 1) // 2, FIELD_PRIME) != 1:
        raise BadKeyError("Ed25519 public key: not a point of the curve", raw=raw.hex())


def _private(handle: _PrivateHandle) -> PrivateKey:
    return PrivateKey(_public(handle.public_key()), handle)


def _public(handle: _PublicHandle) -> PublicKey:
    """Wrap a key that the library parsed, after checks of our own."""
    alg: Alg
    if isinstance(handle, ed25519.Ed25519PublicKey):
        alg = "ed25519"
        check_ed25519(handle.public_bytes_raw())
    elif isinstance(handle, ec.EllipticCurvePublicKey):
        alg = "ecdsa-p256-sha256"
        if not isinstance(handle.curve, ec.SECP256R1):
            raise BadKeyError("an EC key of another curve than P-256", curve=handle.curve.name)
    elif isinstance(handle, MLDSA44PublicKey):
        alg = "ml-dsa-44"
    else:
        alg = "rsa-pss-sha256"
        _check_rsa(handle)
    der = handle.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return PublicKey(alg, der, sha256_hex(der), handle)


def _check_rsa(handle: rsa.RSAPublicKey) -> None:
    """Raise BadKeyError unless length, modulus and exponent are as FIPS 186-5 allows."""
    numbers = handle.public_numbers()
    if not _MIN_RSA <= handle.key_size <= _MAX_RSA:
        raise BadKeyError(f"RSA keys have {_MIN_RSA} to {_MAX_RSA} bits", bits=handle.key_size)
    if not 65537 <= numbers.e < 2**256 or numbers.e % 2 == 0 or numbers.n % 2 == 0:
        raise BadKeyError("RSA key: weak exponent or modulus", bits=handle.key_size)


def _unarmour(pem: bytes, labels: tuple[str, ...]) -> tuple[str, bytes]:
    """Return label and DER of exactly one PEM block with one of the labels, and nothing before or after it."""
    match = _PEM.fullmatch(pem.replace(b"\r\n", b"\n"))
    if match is None or match["begin"] != match["end"] or (label := match["begin"].decode("ascii")) not in labels:
        raise BadKeyError(f"not one PEM block of {' or '.join(labels)}", length=len(pem))
    try:
        return label, b64.decode(match["body"].replace(b"\n", b"").decode("ascii"))
    except FormatError as error:
        raise BadKeyError("PEM block: not base64", label=label) from error


def _is_one_sequence(der: bytes) -> bool:
    """Return whether the outer DER SEQUENCE ends exactly where the bytes do."""
    if len(der) < 2 or der[0] != 0x30:
        return False
    if der[1] < 0x80:  # the short form: the length itself
        return len(der) == 2 + der[1]
    count = der[1] & 0x7F  # the long form: how many bytes of length follow
    return 0 < count <= 4 and len(der) == 2 + count + int.from_bytes(der[2 : 2 + count], "big")
