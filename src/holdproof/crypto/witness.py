"""C2SP tlog-witness: the pure half of a witness and of the log that asks it.

- A request is `old <size>`, the consistency proof one hash to a line, an empty line, the signed checkpoint.
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
    """What a witness knows of a log: its keys and the head it cosigned last (size 0: none yet)."""

    keys: tuple[VerifierKey, ...]
    size: int = 0
    root: bytes = merkle.EMPTY_ROOT


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; the body of a 200 is still to be filled with cosignature lines."""

    status: int
    body: str = ""
    content_type: str = TEXT_TYPE


def encode_request(request: AddCheckpoint) -> bytes:
    """Return the body of `add-checkpoint`."""
    old = encode_number(request.old_size, "old size")
    return f"old {old}\n{encode_proof(request.proof, 'consistency proof')}\n".encode() + request.head.encode()


def parse_request(data: bytes) -> AddCheckpoint:
    """Return a request from untrusted bytes; nothing is verified yet."""
    top, blank, head = data.partition(b"\n\n")
    first, *rows = decode_text(top, "add-checkpoint").split("\n")
    if not blank or not first.startswith("old "):
        raise FormatError("add-checkpoint: no old size line, or no checkpoint")
    old = decode_number(first.removeprefix("old "), "old size")
    return AddCheckpoint(old, decode_proof(rows, "add-checkpoint"), checkpoint.parse(head))


def review(request: AddCheckpoint, log: KnownLog | None) -> Answer:
    """Return what a witness must answer, given what it knows of the log that the checkpoint names."""
    head = request.head.checkpoint
    if log is None:
        return Answer(404, f"unknown log {head.origin}\n")
    try:
        checkpoint.verify(request.head, origin=head.origin, log_keys=log.keys)
    except ProofError as error:
        return Answer(403, f"{error}\n")
    return _review_size(request, log)


def _review_size(request: AddCheckpoint, log: KnownLog) -> Answer:
    """Return the answer to a request whose signature holds."""
    head = request.head.checkpoint
    if request.old_size > head.size:
        return Answer(400, "the old size is above the checkpoint's\n")
    # The client retries from the size in the body; the specification fixes this content type.
    if request.old_size != log.size:
        return Answer(409, f"{log.size}\n", SIZE_TYPE)
    if head.size == log.size and head.root != log.root:
        return Answer(409, "another root was cosigned at this size\n")
    if not _is_consistent(request, log):
        return Answer(422, "the consistency proof does not hold\n")
    return Answer(200)


def cosign(head: SignedCheckpoint, name: str, signer: Signer, *, seconds: int) -> NoteSignature:
    """Return the cosignature/v1 of a witness on a head; its `line()` is the body of the answer."""
    return note.cosign(head.note.text, name, signer, seconds=seconds)


def parse_cosignatures(data: bytes) -> tuple[NoteSignature, ...]:
    """Return the signature lines of a 200 answer; nothing is verified yet."""
    return note.parse_lines(decode_text(data, "cosignatures"))


def parse_size(data: bytes) -> int:
    """Return the size in a 409 answer of type `text/x.tlog.size`."""
    text = decode_text(data, "tlog size")
    if not text.endswith("\n"):
        raise FormatError("tlog size: the line is not ended")
    return decode_number(text[:-1], "tlog size")


def accept(head: SignedCheckpoint, data: bytes, witnesses: Iterable[VerifierKey]) -> SignedCheckpoint:
    """Return the head with an answer's cosignatures; unknown keys are ignored, ProofError if none is left."""
    cosignatures = parse_cosignatures(data)
    keys = tuple(witnesses)
    note.verify(replace(head.note, signatures=cosignatures), keys)
    names = {(key.name, key.key_id) for key in keys}
    return replace(head, note=head.note.add(*(s for s in cosignatures if (s.name, s.key_id) in names)))


def _is_consistent(request: AddCheckpoint, log: KnownLog) -> bool:
    head = request.head.checkpoint
    # Nothing was cosigned yet, so there is nothing to be consistent with.
    if log.size == 0:
        return not request.proof
    try:
        merkle.verify_consistency(log.size, head.size, log.root, head.root, request.proof)
    except ProofError:
        return False
    return True
