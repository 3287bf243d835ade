"""Content identifiers: CIDv1 in bytes and text; CIDv0 is parsed, never created.

- CIDs created here are *plain*: CIDv1, dag-cbor or raw, sha2-256, in text base32 in lower case.
- Parsing is strict: version 1 (or the one form of version 0), minimal varints, a digest of exactly the stated
  and, for known functions, the right length, nothing after the end.
- One CID has one text per base: base32 lower case without padding (`b…`), base58btc (`z…`, or `Qm…` for version 0);
  stray bits are refused.
- Content is checked against sha2-256, sha2-512, blake2b-256 and identity; under any other function it is refused.

A CID is a tuple of its bytes: created, hashed and compared at the speed of C, and equal to no `bytes`.
"""

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import blake2b, sha256, sha512
from typing import NamedTuple

from holdproof.crypto import base58, varint
from holdproof.errors import FormatError, InvalidInputError, ProofError

RAW = 0x55
DAG_PB = 0x70
DAG_CBOR = 0x71
SHA2_256 = 0x12
MAX_DIGEST = 128

CBOR_PREFIX = bytes([1, DAG_CBOR, SHA2_256, 32])
RAW_PREFIX = bytes([1, RAW, SHA2_256, 32])
PLAIN_LENGTH = 36

_V0_PREFIX = bytes([SHA2_256, 32])
_V0_LENGTH = 34
_IDENTITY = 0x00
_BASE32 = re.compile(r"[a-z2-7]{2,300}")
_TO_DIGITS = str.maketrans("abcdefghijklmnopqrstuvwxyz234567", "0123456789abcdefghijklmnopqrstuv")


def _sha2_256(data: bytes) -> bytes:
    return sha256(data).digest()


def _sha2_512(data: bytes) -> bytes:
    return sha512(data).digest()


def _blake2b_256(data: bytes) -> bytes:
    return blake2b(data, digest_size=32).digest()


# By multihash code: length of the digest, and the function.
_FUNCTIONS: dict[int, tuple[int, Callable[[bytes], bytes]]] = {
    SHA2_256: (32, _sha2_256),
    0x13: (64, _sha2_512),
    0xB220: (32, _blake2b_256),
}


class CID(NamedTuple):
    """The name of a block: its codec and its hash. Created by the functions of this module, which check it."""

    raw: bytes

    @property
    def version(self) -> int:
        """1, or 0 for the older form."""
        return 0 if self.raw[:2] == _V0_PREFIX else 1

    @property
    def codec(self) -> int:
        """The multicodec of the content."""
        if self.version == 0:
            return DAG_PB
        codec, _ = varint.decode(self.raw, 1)
        return codec

    @property
    def digest(self) -> bytes:
        """The hash itself, without function and length."""
        if self.plain:
            return self.raw[4:]
        _, digest, _ = _multihash(self.raw, _hash_start(self))
        return digest

    @property
    def plain(self) -> bool:
        """Whether it is of the kind created here: CIDv1, dag-cbor or raw, sha2-256."""
        return self.raw[:4] in (CBOR_PREFIX, RAW_PREFIX)

    def __str__(self) -> str:
        if self.version == 0:
            return base58.encode(self.raw)
        if len(self.raw) == PLAIN_LENGTH:
            return "b" + _encode_base32(self.raw)
        return "b" + base64.b32encode(self.raw).decode("ascii").rstrip("=").lower()

    def __repr__(self) -> str:
        return f"CID({self})"


# Creates a CID without the Python-level __new__ of NamedTuple.
_NEW: Callable[[tuple[bytes]], CID] = partial(tuple.__new__, CID)


def of(data: bytes) -> CID:
    """Return the CID of a dag-cbor block."""
    return CID(CBOR_PREFIX + sha256(data).digest())


def of_raw(data: bytes) -> CID:
    """Return the CID of a block of raw bytes."""
    return CID(RAW_PREFIX + sha256(data).digest())


def trusted(raws: Iterable[bytes]) -> Iterator[CID]:
    """Yield the CIDs of byte strings that were parsed before; does not check them again."""
    return map(_NEW, zip(raws))


def parse(raw: bytes) -> CID:
    """Parse a CID; FormatError unless it is all of the bytes."""
    if len(raw) == PLAIN_LENGTH and raw.startswith((CBOR_PREFIX, RAW_PREFIX)):
        return CID(bytes(raw))
    cid, end = parse_at(raw, 0)
    if end != len(raw):
        raise FormatError("CID: bytes after its end", length=len(raw), end=end)
    return cid


def parse_at(data: bytes, at: int) -> tuple[CID, int]:
    """Parse the CID that starts at an offset; returns it and the offset after it."""
    # The usual kinds first, without decoding their varints.
    if data.startswith((CBOR_PREFIX, RAW_PREFIX), at) and len(data) >= at + PLAIN_LENGTH:
        return CID(data[at : at + PLAIN_LENGTH]), at + PLAIN_LENGTH
    if data[at : at + 2] == _V0_PREFIX:
        end = at + _V0_LENGTH
        if len(data) < end:
            raise FormatError("CID: cut short", at=at)
        return CID(bytes(data[at:end])), end
    version, after = varint.decode(data, at)
    if version != 1:
        raise FormatError("CID: not version 1", at=at, version=version)
    _, after = varint.decode(data, after)
    _, _, end = _multihash(data, after)
    return CID(bytes(data[at:end])), end


def parse_argument(text: object) -> CID:
    """Parse a CID from a caller's argument; InvalidInputError where it is none."""
    try:
        return parse_text(text)  # type: ignore[arg-type]
    except (FormatError, AttributeError, TypeError) as error:
        raise InvalidInputError(f"not a CID: {error}", cid=str(text)[:100]) from error


def parse_text(text: str) -> CID:
    """Parse a CID from its text in lower-case base32 or base58btc; FormatError for any other text."""
    if text.startswith("Qm") and len(text) == 46:
        return parse(base58.decode(text))
    if text.startswith("z"):
        raw = base58.decode(text[1:])
    elif text.startswith("b"):
        raw = _decode_base32(text[1:])
    else:
        raise FormatError("CID: a base not used here", text=text[:100])
    if raw[:1] != b"\x01":  # CIDv0 has no multibase prefix
        raise FormatError("CID: not version 1", text=text[:100])
    return parse(raw)


def verify(cid: CID, data: bytes) -> None:
    """Return if the content hashes to the CID, else raise ProofError (FormatError if its function is unknown)."""
    raw = cid.raw
    if raw[:4] in (CBOR_PREFIX, RAW_PREFIX):
        matches = sha256(data).digest() == raw[4:]
    else:
        code, digest, _ = _multihash(raw, _hash_start(cid))
        if code not in _FUNCTIONS and code != _IDENTITY:
            raise FormatError("CID: a hash function not known here", function=code)
        if code == _IDENTITY:
            matches = digest == data
        else:
            _, function = _FUNCTIONS[code]
            matches = digest == function(data)
    if not matches:
        raise ProofError("the block is not what its CID names", cid=str(cid), size=len(data))


def _hash_start(cid: CID) -> int:
    """Return the offset of the multihash: after version and codec, or 0 in CIDv0, which has neither."""
    if cid.version == 0:
        return 0
    _, end = varint.decode(cid.raw, 1)
    return end


def _multihash(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Parse the multihash at an offset; returns the code of its function, the digest, and the offset after it."""
    code, at = varint.decode(data, at)
    length, at = varint.decode(data, at)
    end = at + length
    if length > MAX_DIGEST or end > len(data):
        raise FormatError("CID: the digest is cut short or too long", length=length)
    if code in _FUNCTIONS:
        expected, _ = _FUNCTIONS[code]
        if length != expected:
            raise FormatError("CID: a digest of the wrong length", function=code, length=length)
    return code, data[at:end], end


def _spreading_steps() -> list[tuple[int, int]]:
    """Return the steps that spread 64 groups of five bits to a byte each: which bits to move up, and how far.

    The first step separates the upper 32 groups from the lower, the next each half into quarters, down to single ones.
    """
    steps = []
    size = 64
    while size > 1:
        half = size // 2
        upper = sum(((1 << half * 5) - 1) << (start * 8 + half * 5) for start in range(0, 64, size))
        steps.append((upper, half * 3))
        size = half
    return steps


_SPREADING_STEPS = _spreading_steps()
_DIGITS = b"abcdefghijklmnopqrstuvwxyz234567" + bytes(224)


def _encode_base32(raw: bytes) -> str:
    """Encode the 36 bytes of a plain CID in base32."""
    # Every row that names a block has this text; six steps on one large integer are four times as fast as
    # base64.b32encode. 36 bytes are 288 bits; two zero bits make 58 groups of five.
    number = int.from_bytes(raw, "big") << 2
    for upper, distance in _SPREADING_STEPS:
        bits = number & upper
        number = number ^ bits | bits << distance
    return number.to_bytes(58, "big").translate(_DIGITS).decode("ascii")


def _decode_base32(text: str) -> bytes:
    """Decode base32 in lower case without padding; FormatError for stray bits, so that one CID has one text."""
    if not _BASE32.fullmatch(text):
        raise FormatError("CID: not base32 in lower case", length=len(text))
    number = int(text.translate(_TO_DIGITS), 32)  # ten times as fast as base64.b32decode
    length, spare = divmod(5 * len(text), 8)
    if spare > 4 or number & ((1 << spare) - 1):
        raise FormatError("CID: base32 with stray bits", length=len(text))
    return (number >> spare).to_bytes(length, "big")
