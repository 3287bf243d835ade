"""C2SP tlog-checkpoint: the signed head of a log.

- The note text is: origin, size in decimal, root in base64, then extension lines if any; no line is empty.
- A checkpoint counts only for the origin the caller expects, under a key of that log; cosignatures of
  witnesses are counted by distinct key and never replace the log's own signature.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from holdproof.crypto import b64, note
from holdproof.crypto.keys import Signer
from holdproof.crypto.lines import decode_hash, decode_number, encode_number, is_line
from holdproof.crypto.note import Note, Verified
from holdproof.crypto.vkey import VerifierKey
from holdproof.errors import FormatError, InvalidInputError, ProofError


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A tree head: whose log, how many leaves, which root."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the note text: what is signed."""
        if len(self.root) != 32:
            raise InvalidInputError("a root has 32 bytes", length=len(self.root))
        for line in (self.origin, *self.extensions):
            if not is_line(line):
                raise InvalidInputError("checkpoint: an origin or extension is one line, not empty", line=line)
        size = encode_number(self.size, "size")
        return "\n".join((self.origin, size, b64.encode(self.root), *self.extensions, ""))


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """A checkpoint together with the note that carries its signatures."""

    checkpoint: Checkpoint
    note: Note

    def encode(self) -> bytes:
        """Return the signed note as it is stored and sent."""
        return note.encode(self.note)


def parse_text(text: str) -> Checkpoint:
    """Return a checkpoint from a note text."""
    rows = text.split("\n")
    if len(rows) < 4 or rows.pop() or not all(map(is_line, rows)):
        raise FormatError("checkpoint: not three or more lines, none empty", count=len(rows))
    origin, size, root, *extensions = rows
    return Checkpoint(
        origin,
        decode_number(size, "checkpoint size"),
        decode_hash(root, "checkpoint root"),
        tuple(extensions),
    )


def parse(data: bytes) -> SignedCheckpoint:
    """Return a signed checkpoint from untrusted bytes; no signature is verified yet."""
    parsed = note.parse(data)
    return SignedCheckpoint(parse_text(parsed.text), parsed)


def sign(checkpoint: Checkpoint, signer: Signer, *, name: str | None = None) -> SignedCheckpoint:
    """Sign a checkpoint; the key's name is the origin unless given."""
    text = checkpoint.text()
    signature = note.sign(text, checkpoint.origin if name is None else name, signer)
    return SignedCheckpoint(checkpoint, Note(text, (signature,)))


def verify(
    signed: SignedCheckpoint,
    *,
    origin: str,
    log_keys: Iterable[VerifierKey],
    witnesses: Iterable[VerifierKey] = (),
    quorum: int = 0,
) -> tuple[Verified, ...]:
    """Return the witnesses whose cosignature holds; ProofError without a log key's signature or the quorum."""
    if signed.checkpoint.origin != origin:
        raise ProofError("a checkpoint of another log", found=signed.checkpoint.origin, expected=origin)
    # The signature covers the note's text; the parsed fields must be exactly that text.
    if signed.checkpoint.text() != signed.note.text:
        raise ProofError("the checkpoint is not the one that was signed", origin=origin)
    log = set(log_keys)
    others = set(witnesses)
    signers = note.verify(signed.note, log | others)
    if not any(one.key in log for one in signers):
        raise ProofError("the log has not signed this checkpoint", origin=origin)
    cosigners = tuple(one for one in signers if one.key in others and one.key not in log)
    # Counted by key: one witness under two names is one witness.
    if len({one.key.public for one in cosigners}) < quorum:
        raise ProofError("too few witnesses", origin=origin, count=len(cosigners), quorum=quorum)
    return cosigners
