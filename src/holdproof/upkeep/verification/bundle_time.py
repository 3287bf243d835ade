"""The time in a bundle: a head over all of its records that a time authority stamped, and that the head continues.

    time/head.note       the head that was stamped
    time/token.tsr       the authority's answer (RFC 3161): openssl ts -verify -data head.note -in token.tsr …
    time/authority.pem   the certificate that the answer was checked with

Rules:
- The stamped head covers every record, and a consistency proof (`time` in bundle.json) leads from it to the bundle's
  head: so every record existed at the time of the token.
- The bundle brings the certificate with it. Whether it is the right one only the reader can say: the report
  tells its fingerprint.
"""

from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

from holdproof.crypto import checkpoint, merkle, timestamp
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.errors import FormatError, ProofError
from holdproof.evidence import timestamps
from holdproof.model.timestamps import StampedHead

_HEAD: Final = "time/head.note"
_TOKEN: Final = "time/token.tsr"  # noqa: S105 (a name)
_CERTIFICATE: Final = "time/authority.pem"
NAMES: Final = frozenset({_HEAD, _TOKEN, _CERTIFICATE})
_MOST_HASHES: Final = 64


def members(stamped: StampedHead) -> dict[str, bytes]:
    """Return the parts of a bundle that say when."""
    return {
        _HEAD: stamped.head.encode(),
        _TOKEN: b64decode(stamped.token),
        _CERTIFICATE: stamped.certificate.encode(),
    }


def check_proof(value: Any) -> None:
    """Raise FormatError for a consistency proof that is not written as it must be."""
    if not isinstance(value, list) or len(value) > _MOST_HASHES:
        raise FormatError("bundle.json: `time` is no proof")
    if not all(isinstance(each, str) and len(each) == 64 and each == each.lower() for each in value):
        raise FormatError("bundle.json: a hash of `time` is none")


def check(files: Mapping[str, bytes], proof: list[str], last_index: int, head: SignedCheckpoint) -> str:
    """Check the stamped head; return the sentence that tells the reader what it shows."""
    stamped = checkpoint.parse(files[_HEAD])
    about, newest = stamped.checkpoint, head.checkpoint
    if about.origin != newest.origin or about.size <= last_index:
        raise ProofError("the stamped head does not cover the records", size=about.size, index=last_index)
    try:
        hashes = [bytes.fromhex(each) for each in proof]
        pem = files[_CERTIFICATE].decode()
    except ValueError as error:
        raise FormatError("bundle: the time's proof or certificate cannot be read") from error
    merkle.verify_consistency(about.size, newest.size, about.root, newest.root, hashes)
    stamp = timestamp.verify(files[_TOKEN], files[_HEAD], timestamp.certificates(pem))
    return (
        f"it existed at {timestamps.text(stamp)}: so says the time authority {stamp.authority}, whose certificate leads"
        f" to the one with SHA-256 {stamp.fingerprint}; compare it with what the authority publishes"
    )
