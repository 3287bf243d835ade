"""C2SP signed notes: a text, a blank line, one signature line for each key.

- The text is UTF-8 ending in a newline, without control characters but newline; signatures cover it to that
  newline.
- The last blank line divides text and signatures; every line after it is a signature line.
- Signatures of unknown keys are ignored; one bad signature of a known key condemns the note; no good one,
  too.
- At most 100 signatures and 1,000,000 bytes are read.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from holdproof.crypto import b64, vkey
from holdproof.crypto.keys import Signer
from holdproof.crypto.lines import MAX_SIZE, decode_text
from holdproof.crypto.vkey import COSIGNATURE_V1, ED25519, VerifierKey
from holdproof.errors import FormatError, InvalidInputError, ProofError

MAX_SIGNATURES = 100
MAX_BYTES = 1_000_000

_DASH = "\u2014 "


@dataclass(frozen=True, slots=True)
class NoteSignature:
    """One signature line: who claims to have signed, with which key, and the bytes."""

    name: str
    key_id: bytes
    signature: bytes

    def line(self) -> str:
        """Return the signature line, newline included."""
        return f"{_DASH}{self.name} {b64.encode(self.key_id + self.signature)}\n"


@dataclass(frozen=True, slots=True)
class Note:
    """A text and its signatures, verified or not."""

    text: str
    signatures: tuple[NoteSignature, ...]

    def add(self, *signatures: NoteSignature) -> "Note":
        """Return the same note with more signatures; those it has already are not repeated."""
        fresh = tuple(dict.fromkeys(s for s in signatures if s not in self.signatures))
        return replace(self, signatures=self.signatures + fresh)


@dataclass(frozen=True, slots=True)
class Verified:
    """A known key whose signature holds; `seconds` is the time of a cosignature."""

    key: VerifierKey
    seconds: int | None = None


def sign(text: str, name: str, signer: Signer) -> NoteSignature:
    """Return a plain Ed25519 signature over a text."""
    key = VerifierKey(name, ED25519, signer.public)
    return NoteSignature(name, key.key_id, signer.sign(_check_text(text).encode()))


def cosign(text: str, name: str, signer: Signer, *, seconds: int) -> NoteSignature:
    """Return a cosignature/v1 over a text, at a time in POSIX seconds."""
    if not 0 <= seconds <= MAX_SIZE:
        raise InvalidInputError("the time of a cosignature is out of range", seconds=seconds)
    key = VerifierKey(name, COSIGNATURE_V1, signer.public)
    signature = signer.sign(vkey.cosignature_message(_check_text(text), seconds))
    return NoteSignature(name, key.key_id, seconds.to_bytes(8, "big") + signature)


def encode(note: Note) -> bytes:
    """Return the note as it is stored and sent."""
    if not 1 <= len(note.signatures) <= MAX_SIGNATURES:
        raise InvalidInputError(f"a note has 1 to {MAX_SIGNATURES} signatures", count=len(note.signatures))
    for signature in note.signatures:
        vkey.check_name(signature.name)
        if len(signature.key_id) != 4 or not signature.signature:
            raise InvalidInputError("a key id has 4 bytes, a signature at least one", name=signature.name)
    return f"{_check_text(note.text)}\n{''.join(s.line() for s in note.signatures)}".encode()


def parse(data: bytes) -> Note:
    """Return a note from untrusted bytes; no signature is verified yet."""
    if len(data) > MAX_BYTES:
        raise FormatError(f"signed note: more than {MAX_BYTES} bytes", length=len(data))
    text = decode_text(data, "signed note")
    # From the end: the text itself may contain blank lines.
    cut = text.rfind("\n\n")
    if cut < 0:
        raise FormatError("signed note: no blank line before the signatures")
    return Note(text[: cut + 1], parse_lines(text[cut + 2 :]))


def parse_lines(text: str) -> tuple[NoteSignature, ...]:
    """Return the signatures of one or more whole signature lines."""
    if not text.endswith("\n"):
        raise FormatError("signed note: the last signature line is not ended")
    rows = text[:-1].split("\n")
    if len(rows) > MAX_SIGNATURES:
        raise FormatError(f"signed note: more than {MAX_SIGNATURES} signatures", count=len(rows))
    return tuple(_parse_line(row) for row in rows)


def verify(note: Note, keys: Iterable[VerifierKey]) -> tuple[Verified, ...]:
    """Return the known keys that signed, each once; ProofError if there is none, or one of theirs is bad."""
    by_id: dict[tuple[str, bytes], VerifierKey] = {}
    for key in keys:
        # Key ids have four bytes: a collision would make the result depend on the order of keys.
        if by_id.setdefault((key.name, key.key_id), key) != key:
            raise InvalidInputError("two keys with one name and key id", name=key.name)
    verified: dict[VerifierKey, Verified] = {}
    for signature in note.signatures:
        # A signature of an unknown key is skipped, but a bad one of a known key raises.
        match = by_id.get((signature.name, signature.key_id))
        if match is not None:
            seconds = match.verify(note.text, signature.signature)
            verified.setdefault(match, Verified(match, seconds))
    if not verified:
        raise ProofError("signed note: no signature of a known key", known=[name for name, _ in by_id])
    return tuple(verified.values())


def _parse_line(row: str) -> NoteSignature:
    name, space, encoded = row.removeprefix(_DASH).partition(" ")
    if not row.startswith(_DASH) or not space or not vkey.is_name(name):
        raise FormatError("signed note: not a signature line", line=row[:200])
    data = b64.decode(encoded)
    if len(data) < 5:
        raise FormatError("signed note: a signature too short", name=name, length=len(data))
    return NoteSignature(name, data[:4], data[4:])


def _check_text(text: str) -> str:
    """Return the text, if a reader would take it as it is."""
    try:
        whole = decode_text(text.encode(), "note text").endswith("\n")
    except (FormatError, UnicodeEncodeError) as error:
        raise InvalidInputError("note text: control character or lone surrogate") from error
    if not whole:
        raise InvalidInputError("a note text ends in a newline")
    return text
