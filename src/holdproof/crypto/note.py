"""C2SP signed notes: a text, a blank line, one signature line for each key.

- The text is UTF-8 ending in a newline, without control characters but newline; signatures cover it to that
  newline.
- The last blank line divides text and signatures; every line after it is a signature line.
- Signatures of unknown keys are ignored; one invalid signature of a known key makes the note invalid, and so does
  having no valid one.
- At most 100 signatures and 1,000,000 bytes are read.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from holdproof.crypto import b64, vkey
from holdproof.crypto.keys import Signer
from holdproof.crypto.lines import MAX_SIZE, decode_text
from holdproof.crypto.vkey import ED25519, VerifierKey
from holdproof.errors import FormatError, InvalidInputError, ProofError

MAX_SIGNATURES = 100
MAX_BYTES = 1_000_000

_DASH = "\u2014 "


@dataclass(frozen=True, slots=True)
class NoteSignature:
    """One signature line: the name of the claimed signer, the key id, and the signature bytes."""

    name: str
    key_id: bytes
    signature: bytes

    def line(self) -> str:
        """Return the signature line, newline included."""
        return f"{_DASH}{self.name} {b64.encode(self.key_id + self.signature)}\n"


@dataclass(frozen=True, slots=True)
class SignedNote:
    """A text and its signatures, verified or not."""

    text: str
    signatures: tuple[NoteSignature, ...]

    def add(self, *signatures: NoteSignature) -> "SignedNote":
        """Return the note with more signatures; those it already has are not repeated."""
        additions = tuple(dict.fromkeys(s for s in signatures if s not in self.signatures))
        return replace(self, signatures=self.signatures + additions)


@dataclass(frozen=True, slots=True)
class VerifiedSignature:
    """A known key whose signature is valid; `seconds` is the time of a cosignature, None for a plain signature."""

    key: VerifierKey
    seconds: int | None = None


def sign(text: str, name: str, signer: Signer) -> NoteSignature:
    """Sign a text with Ed25519."""
    key = VerifierKey(name, ED25519, signer.public)
    return NoteSignature(name, key.key_id, signer.sign(_check_text(text).encode()))


def cosign(text: str, name: str, signer: Signer, *, seconds: int) -> NoteSignature:
    """Make a cosignature over a text, at a time in POSIX seconds: cosignature/v1, or of type 6 with ML-DSA-44."""
    if not 0 <= seconds <= MAX_SIZE:
        raise InvalidInputError("the time of a cosignature is out of range", seconds=seconds)
    key = VerifierKey(name, vkey.cosigning_kind(signer.alg), signer.public)
    signature = signer.sign(key.cosigned_message(_check_text(text), seconds))
    return NoteSignature(name, key.key_id, seconds.to_bytes(8, "big") + signature)


def encode(note: SignedNote) -> bytes:
    """Encode the note as it is stored and sent; InvalidInputError where a reader would refuse it."""
    if not 1 <= len(note.signatures) <= MAX_SIGNATURES:
        raise InvalidInputError(f"a note has 1 to {MAX_SIGNATURES} signatures", count=len(note.signatures))
    for signature in note.signatures:
        vkey.check_name(signature.name)
        if len(signature.key_id) != 4 or not signature.signature:
            raise InvalidInputError("a key id has 4 bytes, a signature at least one", name=signature.name)
    return f"{_check_text(note.text)}\n{''.join(s.line() for s in note.signatures)}".encode()


def parse(data: bytes) -> SignedNote:
    """Parse a note from untrusted bytes; verifies no signature."""
    if len(data) > MAX_BYTES:
        raise FormatError(f"signed note: more than {MAX_BYTES} bytes", length=len(data))
    text = decode_text(data, "signed note")
    # The last blank line: the text itself may contain blank lines, signature lines cannot.
    cut = text.rfind("\n\n")
    if cut < 0:
        raise FormatError("signed note: no blank line before the signatures")
    return SignedNote(text[: cut + 1], parse_lines(text[cut + 2 :]))


def parse_lines(text: str) -> tuple[NoteSignature, ...]:
    """Parse one or more complete signature lines."""
    if not text.endswith("\n"):
        raise FormatError("signed note: the last signature line is not ended")
    rows = text[:-1].split("\n")
    if len(rows) > MAX_SIGNATURES:
        raise FormatError(f"signed note: more than {MAX_SIGNATURES} signatures", count=len(rows))
    return tuple(_parse_line(row) for row in rows)


def verify(note: SignedNote, keys: Iterable[VerifierKey]) -> tuple[VerifiedSignature, ...]:
    """Return the valid signatures of known keys, one per key.

    Raises ProofError if a known key's signature is invalid or no known key signed, InvalidInputError if two different
    keys share a name and key id.
    """
    # A key id has only 32 bits: two keys that share it cannot be told apart in a note, so such a pair is refused.
    keys_by_id: dict[tuple[str, bytes], VerifierKey] = {}
    for key in keys:
        if keys_by_id.setdefault((key.name, key.key_id), key) != key:
            raise InvalidInputError("two keys with one name and key id", name=key.name)
    verified: dict[VerifierKey, VerifiedSignature] = {}
    for signature in note.signatures:
        signer = keys_by_id.get((signature.name, signature.key_id))
        if signer is not None:
            seconds = signer.verify(note.text, signature.signature)
            verified.setdefault(signer, VerifiedSignature(signer, seconds))
    if not verified:
        raise ProofError("signed note: no signature of a known key", known=[name for name, _ in keys_by_id])
    return tuple(verified.values())


def _parse_line(row: str) -> NoteSignature:
    name, space, encoded = row.removeprefix(_DASH).partition(" ")
    if not row.startswith(_DASH) or not space or not vkey.is_name(name):
        raise FormatError("signed note: not a signature line", line=row[:200])
    data = b64.decode(encoded)
    # Four bytes of key id, and at least one of signature.
    if len(data) < 5:
        raise FormatError("signed note: a signature too short", name=name, length=len(data))
    return NoteSignature(name, data[:4], data[4:])


def _check_text(text: str) -> str:
    """Return the text if readers will accept it, else raise InvalidInputError."""
    try:
        is_ended = decode_text(text.encode(), "note text").endswith("\n")
    except (FormatError, UnicodeEncodeError) as error:
        raise InvalidInputError("note text: control character or lone surrogate") from error
    if not is_ended:
        raise InvalidInputError("a note text ends in a newline")
    return text
