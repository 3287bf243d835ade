"""COSE Receipts (RFC 9942) of entries of the log: COSE_Sign1 (RFC 9052) over the root, with the path of one entry.

    18([ protected, {396: {-1: [ [size, index, [path]] ]}}, nil, signature ])

- Protected header: 1 (alg) = -8 EdDSA; 4 (kid) = the key id; 15 (CWT claims) = {1: origin of the log, 2: handle of the
  record}; 395 (verifiable data structure) = 1, the SHA-256 tree of RFC 9162, which hashes as ours does.
- The root is detached: a verifier computes it from the entry and the path, so that no receipt fits another entry.
- Deterministic CBOR: shortest heads, keys in the order of their bytes. Ed25519 signs alike each time, so that one
  entry under one head has one receipt.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from holdproof.crypto.dagcbor import head
from holdproof.crypto.keys import Signer
from holdproof.errors import BadKeyError

_UNSIGNED = 0
_NEGATIVE = 1
_BYTES = 2
_TEXT = 3
_ARRAY = 4
_MAP = 5
_TAG = 6
_NIL = b"\xf6"

_COSE_SIGN1 = 18
_ALG = 1
_KID = 4
_CWT_CLAIMS = 15
_VDS = 395
_VDP = 396
_INCLUSION = -1
_EDDSA = -8
_RFC9162_SHA256 = 1
_ISSUER = 1
_SUBJECT = 2


@dataclass(frozen=True, slots=True)
class Inclusion:
    """Where an entry stands in a tree, and its path to the root."""

    index: int
    size: int
    path: tuple[bytes, ...]
    root: bytes


def encode(inclusion: Inclusion, signer: Signer, *, issuer: str, subject: str) -> bytes:
    """Return the receipt of an entry, signed; the caller has checked that path and root are those of the log."""
    if signer.alg != "ed25519":
        raise BadKeyError("receipts are signed with the Ed25519 key of a log", alg=signer.alg)
    claims = _map([(_int(_ISSUER), _text(issuer)), (_int(_SUBJECT), _text(subject))])
    protected = _map(
        [
            (_int(_ALG), _int(_EDDSA)),
            (_int(_KID), _bytes(bytes.fromhex(signer.keyid))),
            (_int(_CWT_CLAIMS), claims),
            (_int(_VDS), _int(_RFC9162_SHA256)),
        ]
    )
    path = _array([_bytes(each) for each in inclusion.path])
    proof = _bytes(_array([_int(inclusion.size), _int(inclusion.index), path]))
    unprotected = _map([(_int(_VDP), _map([(_int(_INCLUSION), _array([proof]))]))])
    signature = signer.sign(to_be_signed(protected, inclusion.root))
    message = _array([_bytes(protected), unprotected, _NIL, _bytes(signature)])
    return head(_TAG, _COSE_SIGN1) + message


def to_be_signed(protected: bytes, payload: bytes) -> bytes:
    """Return the Sig_structure of RFC 9052: no signed note begins with its bytes, so neither passes for the other."""
    return _array([_text("Signature1"), _bytes(protected), _bytes(b""), _bytes(payload)])


def _int(value: int) -> bytes:
    return head(_UNSIGNED, value) if value >= 0 else head(_NEGATIVE, -1 - value)


def _bytes(value: bytes) -> bytes:
    return head(_BYTES, len(value)) + value


def _text(value: str) -> bytes:
    data = value.encode()
    return head(_TEXT, len(data)) + data


def _array(items: list[bytes]) -> bytes:
    return head(_ARRAY, len(items)) + b"".join(items)


def _map(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a map of encoded keys and values, in the order that deterministic CBOR has."""
    ordered = sorted(pairs)
    return head(_MAP, len(ordered)) + b"".join(key + value for key, value in ordered)
