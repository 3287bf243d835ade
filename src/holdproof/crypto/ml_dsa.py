"""ML-DSA-44 (FIPS 204) of `cryptography`, which not every version and build of it has.

The two key classes are there in any case, so that keys can be told apart; where the algorithm is missing nothing is
one of them, and what needs it says which version has it.
"""

from typing import TYPE_CHECKING

from cryptography.exceptions import UnsupportedAlgorithm

from holdproof.errors import BadKeyError

__all__ = ["SIGNATURE_BYTES", "MLDSA44PrivateKey", "MLDSA44PublicKey", "generate", "load_public"]

SIGNATURE_BYTES = 2420
_PUBLIC_BYTES = 1312

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey, MLDSA44PublicKey
else:
    try:
        from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey, MLDSA44PublicKey
    except ImportError:

        class MLDSA44PrivateKey:
            """A private key that this `cryptography` cannot make."""

        class MLDSA44PublicKey:
            """A public key that this `cryptography` cannot read."""


def generate() -> MLDSA44PrivateKey:
    """Generate a private key; BadKeyError where the algorithm is missing."""
    try:
        return MLDSA44PrivateKey.generate()
    except (AttributeError, UnsupportedAlgorithm) as error:
        raise _missing() from error


def load_public(raw: bytes) -> MLDSA44PublicKey:
    """Load a public key from its 1,312 bytes; BadKeyError for another length, or where the algorithm is missing."""
    if len(raw) != _PUBLIC_BYTES:
        raise BadKeyError(f"an ML-DSA-44 public key has {_PUBLIC_BYTES} bytes", length=len(raw))
    try:
        return MLDSA44PublicKey.from_public_bytes(raw)
    except (AttributeError, UnsupportedAlgorithm) as error:
        raise _missing() from error


def _missing() -> BadKeyError:
    return BadKeyError("ML-DSA-44 needs cryptography 50 or newer: `pip install 'cryptography>=50'`", alg="ml-dsa-44")
