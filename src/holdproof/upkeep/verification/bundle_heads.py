"""What outsiders attest about a bundle: a head over all of its records that they saw, and that its head continues.

    time/head.note            the head that a time authority stamped
    time/token.tsr            the authority's answer (RFC 3161): openssl ts -verify -data head.note -in token.tsr …
    time/authority.pem        the certificate that the answer was checked with
    anchor/head.note          the head that another log has an entry of
    anchor/head.tlog-proof    that entry, its path and the checkpoint of the other log (C2SP tlog-proof)
    anchor/log.vkey           the key of the other log that the proof was checked with

Rules:
- The attested head covers every record, and a consistency proof (`time` and `anchor` in bundle.json) leads from it to
  the bundle's head: so every record existed before the attestation.
- The bundle brings certificate and key with it. Whether they are the right ones only the reader can say: the report
  tells the certificate's fingerprint, and the key.
"""

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from holdproof.crypto import anchor, checkpoint, merkle, timestamp, tlog_proof
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.errors import BadKeyError, FormatError, ProofError
from holdproof.evidence import timestamps
from holdproof.model.anchors import AnchoredHead
from holdproof.model.timestamps import StampedHead

_MOST_HASHES: Final = 64
Files = Mapping[str, bytes]


def time_members(stamped: StampedHead) -> dict[str, bytes]:
    """Return the parts of a bundle that say when."""
    return {
        "time/head.note": stamped.head.encode(),
        "time/token.tsr": b64decode(stamped.token),
        "time/authority.pem": stamped.certificate.encode(),
    }


def anchor_members(anchored: AnchoredHead) -> dict[str, bytes]:
    """Return the parts of a bundle that say which log has it."""
    return {
        "anchor/head.note": anchored.head.encode(),
        "anchor/head.tlog-proof": anchored.proof.encode(),
        "anchor/log.vkey": f"{anchored.key}\n".encode(),
    }


def _check_time(files: Files) -> str:
    try:
        pem = files["time/authority.pem"].decode()
    except UnicodeDecodeError as error:
        raise FormatError("bundle: the time authority's certificate cannot be read") from error
    stamp = timestamp.verify(files["time/token.tsr"], files["time/head.note"], timestamp.certificates(pem))
    return (
        f"it existed at {timestamps.text(stamp)}: so says the time authority {stamp.authority}, whose certificate leads"
        f" to the one with SHA-256 {stamp.fingerprint}; compare it with what the authority publishes"
    )


def _check_anchor(files: Files) -> str:
    try:
        key = anchor.parse_key(files["anchor/log.vkey"].decode())
    except (UnicodeDecodeError, BadKeyError) as error:
        raise FormatError("bundle: the key of the log it is anchored in cannot be read") from error
    proof = tlog_proof.parse(files["anchor/head.tlog-proof"])
    anchor.verify(proof, files["anchor/head.note"], key)
    return (
        f"it is anchored: a head over it is entry {proof.index} of the log {key.name}, whose key is {key.encode()};"
        " compare the key with what that log publishes"
    )


class Attestation(NamedTuple):
    """One way to attest a head: its parts, and the check of what they say, which returns a sentence for the reader."""

    names: frozenset[str]
    head: str
    check: Callable[[Files], str]


ATTESTATIONS: Final[Mapping[str, Attestation]] = {
    "time": Attestation(
        frozenset({"time/head.note", "time/token.tsr", "time/authority.pem"}), "time/head.note", _check_time
    ),
    "anchor": Attestation(
        frozenset({"anchor/head.note", "anchor/head.tlog-proof", "anchor/log.vkey"}), "anchor/head.note", _check_anchor
    ),
}
"""By their names in bundle.json."""


def names(about: Mapping[str, Any]) -> set[str]:
    """Return the parts that a bundle must have for what its bundle.json lists."""
    return {part for name, each in ATTESTATIONS.items() if name in about for part in each.names}


def check_proofs(about: Mapping[str, Any]) -> None:
    """Raise FormatError for a consistency proof in bundle.json that is not written as it must be."""
    for name in ATTESTATIONS:
        value = about.get(name, [])
        if not isinstance(value, list) or len(value) > _MOST_HASHES:
            raise FormatError(f"bundle.json: `{name}` is no proof")
        if not all(isinstance(each, str) and len(each) == 64 and each == each.lower() for each in value):
            raise FormatError(f"bundle.json: a hash of `{name}` is none")


def check(files: Files, about: Mapping[str, Any], last_index: int, head: SignedCheckpoint) -> list[str]:
    """Check every attestation of a bundle; return the sentences that tell the reader what they show."""
    sentences: list[str] = []
    for name, attestation in ATTESTATIONS.items():
        if name in about:
            _check_continued(checkpoint.parse(files[attestation.head]), about[name], last_index, head)
            sentences.append(attestation.check(files))
    return sentences


def _check_continued(attested: SignedCheckpoint, proof: list[str], last_index: int, head: SignedCheckpoint) -> None:
    """Refuse an attested head that does not cover all records, or that the bundle's head does not continue."""
    then = attested.checkpoint
    newest = head.checkpoint
    if then.origin != newest.origin or then.size <= last_index:
        raise ProofError("the attested head does not cover the records", size=then.size, index=last_index)
    try:
        hashes = [bytes.fromhex(each) for each in proof]
    except ValueError as error:
        raise FormatError("bundle.json: a hash of a consistency proof is none") from error
    merkle.verify_consistency(then.size, newest.size, then.root, newest.root, hashes)
