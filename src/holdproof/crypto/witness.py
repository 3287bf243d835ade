"""C2SP tlog-witness: messages and decisions of a witness and of the log that asks it, without any I/O.

- A request is `old <size>`, the consistency proof one hash per line, an empty line, the signed checkpoint.
- The witness answers 404 to an unknown log, 403 without a trusted signature, 400 to an old size above the
  checkpoint's, 409 to an old size that is not its own or a second root of one size, 422 to a proof that
  fails; else 200 with its cosignature, after it has stored the checkpoint.
- Comparing the old size and storing the new checkpoint must be one transaction of the caller.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from holdproof.crypto import checkpoint, merkle, note
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.keys import Signer
from holdproof.crypto.lines import decode_number, decode_proof, decode_text, encode_number, encode_proof
from holdproof.crypto.note import NoteSignature
from holdproof.crypto.vkey import VerifierKey
from holdproof.errors import FormatError, ProofError

SIZE_TYPE = "text/x.tlog.size"
TEXT_TYPE = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class AddCheckpoint:
    """A request to cosign: the size last cosigned, the proof from there, the new head."""

    old_size: int
    proof: tuple[bytes, ...]
    head: SignedCheckpoint


@dataclass(frozen=True, slots=True)
class KnownLog:
    """A log as its witness knows it: its keys and the head cosigned last (size 0: none yet)."""

    keys: tuple[VerifierKey, ...]
    size: int = 0
    root: bytes = merkle.EMPTY_ROOT


@dataclass(frozen=True, slots=True)
class WitnessResponse:
    """An HTTP response; for a 200 the caller fills the body with cosignature lines."""

    status: int
    body: str = ""
    content_type: str = TEXT_TYPE


def encode_request(request: AddCheckpoint) -> bytes:
    """Encode the body of an `add-checkpoint` request."""
    old = encode_number(request.old_size, "old size")
    return f"old {old}\n{encode_proof(request.proof, 'consistency proof')}\n".encode() + request.head.encode()


def parse_request(data: bytes) -> AddCheckpoint:
    """Parse a request from untrusted bytes; verifies nothing."""
    top, blank, head = data.partition(b"\n\n")
    first, *rows = decode_text(top, "add-checkpoint").split("\n")
    if not blank or not first.startswith("old "):
        raise FormatError("add-checkpoint: no old size line, or no checkpoint")
    old = decode_number(first.removeprefix("old "), "old size")
    return AddCheckpoint(old, decode_proof(rows, "add-checkpoint"), checkpoint.parse(head))


def review(request: AddCheckpoint, log: KnownLog | None) -> WitnessResponse:
    """Decide how a witness must respond; `log` is the one the checkpoint names, None if the witness has none such."""
    head = request.head.checkpoint
    if log is None:
        return WitnessResponse(404, f"unknown log {head.origin}\n")
    try:
        checkpoint.verify(request.head, origin=head.origin, log_keys=log.keys)
    except ProofError as error:
        return WitnessResponse(403, f"{error}\n")
    return _review_size(request, log)


def _review_size(request: AddCheckpoint, log: KnownLog) -> WitnessResponse:
    """Decide about a request whose signature is valid; the order of the checks is the specification's."""
    head = request.head.checkpoint
    if request.old_size > head.size:
        return WitnessResponse(400, "the old size is above the checkpoint's\n")
    # The body tells the log which size to prove consistency from in its next request.
    if request.old_size != log.size:
        return WitnessResponse(409, f"{log.size}\n", SIZE_TYPE)
    # Two roots of one size are a fork; a witness signs one of them at most.
    if head.size == log.size and head.root != log.root:
        return WitnessResponse(409, "another root was cosigned at this size\n")
    if not _is_consistent(request, log):
        return WitnessResponse(422, "the consistency proof does not hold\n")
    return WitnessResponse(200)


def cosign(head: SignedCheckpoint, name: str, signer: Signer, *, seconds: int) -> NoteSignature:
    """Cosign a head (cosignature/v1); the `line()` of the result is the body of the response."""
    return note.cosign(head.note.text, name, signer, seconds=seconds)


def parse_cosignatures(data: bytes) -> tuple[NoteSignature, ...]:
    """Parse the signature lines of a 200 response; verifies nothing."""
    return note.parse_lines(decode_text(data, "cosignatures"))


def parse_size(data: bytes) -> int:
    """Parse the size in a 409 response of type `text/x.tlog.size`."""
    text = decode_text(data, "tlog size")
    if not text.endswith("\n"):
        raise FormatError("tlog size: the line is not ended")
    return decode_number(text[:-1], "tlog size")


def accept(head: SignedCheckpoint, data: bytes, witnesses: Iterable[VerifierKey]) -> SignedCheckpoint:
    """Return the head with the cosignatures of a response added.

    Ignores signatures of unknown keys; raises ProofError if a known one is invalid or none is known.
    """
    signatures = parse_cosignatures(data)
    keys = tuple(witnesses)
    # The signatures of the response are verified alone: the log's own signature must not make up for a missing one.
    note.verify(replace(head.note, signatures=signatures), keys)
    key_ids = {(key.name, key.key_id) for key in keys}
    return replace(head, note=head.note.add(*(each for each in signatures if (each.name, each.key_id) in key_ids)))


def _is_consistent(request: AddCheckpoint, log: KnownLog) -> bool:
    """Return whether the request's proof leads from the head cosigned last to the new one."""
    head = request.head.checkpoint
    if log.size == 0:  # nothing to be consistent with: C2SP demands an empty proof
        return not request.proof
    try:
        merkle.verify_consistency(log.size, head.size, log.root, head.root, request.proof)
    except ProofError:
        return False
    return True
