"""ECDSA P-256 signatures in their two forms: DER (X.509, DSSE, openssl) and raw r || s (AT protocol).

Each (r, s) has a twin (r, n - s) that is valid as well; formats that identify a record by its signature
require the lower s. Both parsers accept exactly one encoding and refuse r or s outside 1 … n-1.
"""

from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from holdproof.errors import FormatError

# The order n of the P-256 group (FIPS 186-5).
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def to_raw(der: bytes) -> bytes:
    """Convert a DER signature to the 64 bytes r || s."""
    try:
        r, s = decode_dss_signature(der)
    except ValueError as error:
        raise FormatError("not a DER ECDSA signature", length=len(der)) from error
    _check_range(r, s)
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def from_raw(raw: bytes) -> bytes:
    """Convert the 64 bytes r || s to a DER signature."""
    return encode_dss_signature(*_split(raw))


def lower_s(raw: bytes) -> bytes:
    """Return the same signature with the lower of its two s values."""
    r, s = _split(raw)
    return r.to_bytes(32, "big") + min(s, P256_ORDER - s).to_bytes(32, "big")


def is_low_s(raw: bytes) -> bool:
    """Return whether s is the lower of the two."""
    _, s = _split(raw)
    return s <= P256_ORDER // 2


def _split(raw: bytes) -> tuple[int, int]:
    if len(raw) != 64:
        raise FormatError("a raw P-256 signature has 64 bytes", length=len(raw))
    r = int.from_bytes(raw[:32], "big")
    s = int.from_bytes(raw[32:], "big")
    _check_range(r, s)
    return r, s


def _check_range(r: int, s: int) -> None:
    if not (0 < r < P256_ORDER and 0 < s < P256_ORDER):
        raise FormatError("ECDSA signature: r or s out of range")
