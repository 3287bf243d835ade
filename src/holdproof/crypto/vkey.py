"""C2SP verifier keys (vkeys): a name, a signature type and a public key, on one line.

- `<name>+<key id, 8 hex digits>+<base64(type byte || key)>`; the key id must be the one that follows from
  the rest.
- Key id = first four bytes of SHA-256(name || 0x0A || type byte || key).
- Types: 0x01, an Ed25519 signature over the note text; 0x04, an Ed25519 cosignature/v1 over the text and a time in
  seconds; 0x06, an ML-DSA-44 cosignature over time, origin, size and root of a checkpoint, and the name of the key.
- What a type 0x06 does not cover is refused under it: a checkpoint with extension lines.
"""

import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from holdproof.crypto import b64
from holdproof.crypto.canonical import sha256
from holdproof.crypto.keys import Alg, PublicKey, load_public_raw
from holdproof.crypto.lines import MAX_SIZE, decode_hash, decode_number, is_line
from holdproof.errors import BadKeyError, FormatError, InvalidInputError, ProofError

Kind: TypeAlias = Literal[1, 4, 6]
ED25519: Kind = 0x01
COSIGNATURE_V1: Kind = 0x04
ML_DSA_44: Kind = 0x06

COSIGNING: tuple[Kind, ...] = (COSIGNATURE_V1, ML_DSA_44)
"""The types that witnesses sign with."""

_KINDS: dict[Kind, Alg] = {ED25519: "ed25519", COSIGNATURE_V1: "ed25519", ML_DSA_44: "ml-dsa-44"}
_SUBTREE_LABEL = b"subtree/v1\n\0"
_MOST_NAME_BYTES = 255

_KEY_ID = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A key that signs notes under a name; `key_id` follows from the rest."""

    name: str
    kind: Kind
    public: PublicKey
    key_id: bytes = field(init=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.public.alg != _KINDS[self.kind]:
            what = f"a signature of type {self.kind} is made with {_KINDS[self.kind]}"
            raise BadKeyError(what, name=self.name, alg=self.public.alg)
        hashed = self.name.encode() + b"\n" + bytes([self.kind]) + self.public.raw
        object.__setattr__(self, "key_id", sha256(hashed)[:4])

    def encode(self) -> str:
        """Return the vkey line, without newline."""
        return f"{self.name}+{self.key_id.hex()}+{b64.encode(bytes([self.kind]) + self.public.raw)}"

    def verify(self, text: str, signature: bytes) -> int | None:
        """Verify a signature over a note text; ProofError if it is invalid.

        Returns the time of a cosignature in POSIX seconds, None for a plain signature.
        """
        if self.kind == ED25519:
            self.public.verify(text.encode(), signature)
            return None
        # A cosignature is eight bytes of time, then the signature over text and time.
        seconds = int.from_bytes(signature[:8], "big")
        if seconds > MAX_SIZE:
            raise ProofError("the cosignature's time is out of range", name=self.name)
        self.public.verify(self.cosigned_message(text, seconds), signature[8:])
        return seconds

    def cosigned_message(self, text: str, seconds: int) -> bytes:
        """Return the bytes that a cosignature of this key signs; FormatError for a text that it cannot cover."""
        return (
            subtree_message(self.name, text, seconds) if self.kind == ML_DSA_44 else cosignature_message(text, seconds)
        )


def parse(line: str) -> VerifierKey:
    """Parse a vkey line; BadKeyError where it is malformed or the key id does not belong to the key."""
    # From the left: names cannot contain a plus, base64 can.
    name, plus, rest = line.partition("+")
    key_id, second, material = rest.partition("+")
    if not plus or not second or not _KEY_ID.fullmatch(key_id) or not is_name(name):
        raise BadKeyError("not a verifier key", line=line[:200])
    try:
        data = b64.decode(material)
    except FormatError as error:
        raise BadKeyError("verifier key: not base64", name=name) from error
    kind = next((each for each in _KINDS if data[:1] == bytes([each])), None)
    if kind is None:
        raise BadKeyError("verifier key: of no type that is known here", name=name, known=[*_KINDS])
    key = VerifierKey(name, kind, load_public_raw(_KINDS[kind], data[1:]))
    if key.key_id.hex() != key_id:
        raise BadKeyError("verifier key: another key id", name=name, found=key_id, expected=key.key_id.hex())
    return key


def cosigning_kind(alg: Alg) -> Kind:
    """Return the type of a witness's signatures with a key of this algorithm."""
    return ML_DSA_44 if alg == "ml-dsa-44" else COSIGNATURE_V1


def cosignature_message(text: str, seconds: int) -> bytes:
    """Return the bytes that a cosignature/v1 signs: a header, the time, the note text."""
    return f"cosignature/v1\ntime {seconds}\n{text}".encode()


def subtree_message(name: str, text: str, seconds: int) -> bytes:
    """Return the bytes that an ML-DSA-44 cosignature signs for the checkpoint with this text.

    FormatError for a text that is no checkpoint, or that has extension lines, which it would not cover.
    """
    lines = text.removesuffix("\n").split("\n")
    if len(lines) != 3:
        raise FormatError("an ML-DSA-44 signature is over a checkpoint without extension lines", count=len(lines))
    origin, size, root = lines
    end = decode_number(size, "checkpoint size")
    parts = (
        _SUBTREE_LABEL,
        _short(name),
        seconds.to_bytes(8, "big"),
        _short(origin),
        bytes(8),  # the first leaf of a checkpoint is that of the tree
        end.to_bytes(8, "big"),
        decode_hash(root, "checkpoint root"),
    )
    return b"".join(parts)


def _short(text: str) -> bytes:
    """Encode a text after one byte of its length."""
    data = text.encode()
    if not 1 <= len(data) <= _MOST_NAME_BYTES:
        raise FormatError(f"under ML-DSA-44 a name or origin has 1 to {_MOST_NAME_BYTES} bytes", length=len(data))
    return bytes([len(data)]) + data


def is_name(name: str) -> bool:
    """Return whether a text can name a key: one line, no Unicode space, no plus."""
    return is_line(name) and "+" not in name and not any(char.isspace() for char in name)


def check_name(name: str) -> None:
    """Raise InvalidInputError where a text cannot name a key."""
    if not is_name(name):
        raise InvalidInputError("a key name is one word without spaces or plus", name=name)
