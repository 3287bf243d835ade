"""C2SP tlog-checkpoint: the signed head of a log.

- The note text is: origin, size in decimal, root in base64, then extension lines if any; no line is empty.
- A checkpoint is valid only for the origin the caller expects, under a key of that log; cosignatures of
  witnesses are counted by distinct key and never replace the log's own signature.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from holdproof.crypto import b64, note
from holdproof.crypto.keys import Signer
from holdproof.crypto.lines import LINE, MAX_SIZE, decode_hash, decode_number, is_line
from holdproof.crypto.note import SignedNote, VerifiedSignature
from holdproof.crypto.vkey import VerifierKey
from holdproof.errors import FormatError, InvalidInputError, ProofError

_LINES = re.compile(rf"(?:{LINE}\n)+")


@dataclass(frozen=True, slots=True)
class LogCheckpoint:
    """A tree head: origin of the log, number of leaves, root hash."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the note text, which is what gets signed; InvalidInputError where a field has no valid text."""
        if len(self.root) != 32:
            raise InvalidInputError("a root has 32 bytes", length=len(self.root))
        if not 0 <= self.size <= MAX_SIZE:
            raise InvalidInputError("size is out of range", what="size", value=self.size)
        text = "\n".join((self.origin, str(self.size), b64.encode(self.root), *self.extensions, ""))
        # All lines at once, because this runs for every signed head. The number of lines shows that none is two.
        if not _LINES.fullmatch(text) or text.count("\n") != 3 + len(self.extensions):
            raise InvalidInputError("checkpoint: an origin or extension is one line, not empty", line=self.origin)
        return text


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """A checkpoint together with the note that carries its signatures."""

    checkpoint: LogCheckpoint
    note: SignedNote

    def encode(self) -> bytes:
        """Return the signed note as it is stored and sent."""
        return note.encode(self.note)

    @property
    def file(self) -> bytes:
        """The bytes of its file, which are those of the note."""
        return self.encode()


def parse_text(text: str) -> LogCheckpoint:
    """Parse a checkpoint from a note text."""
    rows = text.split("\n")
    # The text ends in a newline, so that splitting leaves an empty last element.
    if len(rows) < 4 or rows.pop() or not all(map(is_line, rows)):
        raise FormatError("checkpoint: not three or more lines, none empty", count=len(rows))
    origin, size, root, *extensions = rows
    return LogCheckpoint(
        origin,
        decode_number(size, "checkpoint size"),
        decode_hash(root, "checkpoint root"),
        tuple(extensions),
    )


def parse(data: bytes) -> SignedCheckpoint:
    """Parse a signed checkpoint from untrusted bytes; verifies no signature."""
    parsed = note.parse(data)
    return SignedCheckpoint(parse_text(parsed.text), parsed)


def sign(checkpoint: LogCheckpoint, signer: Signer, *, name: str | None = None) -> SignedCheckpoint:
    """Sign a checkpoint; the key's name is the origin unless `name` says otherwise."""
    text = checkpoint.text()
    signature = note.sign(text, checkpoint.origin if name is None else name, signer)
    return SignedCheckpoint(checkpoint, SignedNote(text, (signature,)))


def verify(
    signed: SignedCheckpoint,
    *,
    origin: str,
    log_keys: Iterable[VerifierKey],
    witnesses: Iterable[VerifierKey] = (),
    quorum: int = 0,
    each_type: bool = True,
) -> tuple[VerifiedSignature, ...]:
    """Verify a checkpoint and return the witnesses' valid cosignatures.

    Raises ProofError for another origin, without a valid signature of a log key of each type that is among `log_keys`
    (without `each_type` of any), or with fewer than `quorum` witnesses.
    """
    if signed.checkpoint.origin != origin:
        raise ProofError("a checkpoint of another log", found=signed.checkpoint.origin, expected=origin)
    # The parsed fields are what callers use, the text is what was signed: they must say the same.
    if signed.checkpoint.text() != signed.note.text:
        raise ProofError("the checkpoint is not the one that was signed", origin=origin)
    own_keys = set(log_keys)
    witness_keys = set(witnesses)
    signatures = note.verify(signed.note, own_keys | witness_keys)
    signed_kinds = {signature.key.kind for signature in signatures if signature.key in own_keys}
    if not signed_kinds:
        raise ProofError("the log has not signed this checkpoint", origin=origin)
    # A log that signs with two algorithms: whoever breaks one of them must not get by without the other.
    if each_type and signed_kinds != {key.kind for key in own_keys}:
        raise ProofError("the log has not signed this checkpoint with each of its algorithms", origin=origin)
    # A key that is both the log's and a witness's does not count: a log cannot witness itself.
    cosignatures = tuple(each for each in signatures if each.key in witness_keys and each.key not in own_keys)
    # By public key, not by name: one witness under two names is one.
    if len({each.key.public for each in cosignatures}) < quorum:
        raise ProofError("too few witnesses", origin=origin, count=len(cosignatures), quorum=quorum)
    return cosignatures
