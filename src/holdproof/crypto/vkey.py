"""C2SP verifier keys (vkeys): a name, a signature type and an Ed25519 key, on one line.

- `<name>+<key id, 8 hex digits>+<base64(type byte || key)>`; the key id must be the one that follows from
  the rest.
- Key id = first four bytes of SHA-256(name || 0x0A || type byte || key).
- Types: 0x01, a signature over the note text; 0x04, a cosignature/v1 over the text and a time in seconds.
"""

import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from holdproof.crypto import b64
from holdproof.crypto.canonical import sha256
from holdproof.crypto.keys import PublicKey, load_public_raw
from holdproof.crypto.lines import MAX_SIZE, is_line
from holdproof.errors import BadKeyError, FormatError, InvalidInputError, ProofError

Kind: TypeAlias = Literal[1, 4]
ED25519: Kind = 0x01
COSIGNATURE_V1: Kind = 0x04

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
        if self.public.alg != "ed25519":
            raise BadKeyError("notes are signed with Ed25519", name=self.name, alg=self.public.alg)
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
        # A cosignature is eight bytes of time, then the Ed25519 signature over text and time.
        seconds = int.from_bytes(signature[:8], "big")
        if seconds > MAX_SIZE:
            raise ProofError("the cosignature's time is out of range", name=self.name)
        self.public.verify(cosignature_message(text, seconds), signature[8:])
        return seconds


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
    if len(data) != 33 or data[0] not in (ED25519, COSIGNATURE_V1):
        raise BadKeyError("verifier key: not Ed25519, nor a cosignature/v1 key", name=name)
    kind: Kind = ED25519 if data[0] == ED25519 else COSIGNATURE_V1
    key = VerifierKey(name, kind, load_public_raw("ed25519", data[1:]))
    if key.key_id.hex() != key_id:
        raise BadKeyError("verifier key: another key id", name=name, found=key_id, expected=key.key_id.hex())
    return key


def cosignature_message(text: str, seconds: int) -> bytes:
    """Return the bytes that a cosignature/v1 signs: a header, the time, the note text."""
    return f"cosignature/v1\ntime {seconds}\n{text}".encode()


def is_name(name: str) -> bool:
    """Return whether a text can name a key: one line, no Unicode space, no plus."""
    return is_line(name) and "+" not in name and not any(char.isspace() for char in name)


def check_name(name: str) -> None:
    """Raise InvalidInputError where a text cannot name a key."""
    if not is_name(name):
        raise InvalidInputError("a key name is one word without spaces or plus", name=name)
