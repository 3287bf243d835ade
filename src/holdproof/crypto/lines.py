"""The strict pieces that the C2SP text formats share: UTF-8 text, decimal numbers, one hash to a line."""

import re
from collections.abc import Iterable

from holdproof.crypto import b64
from holdproof.errors import FormatError, InvalidInputError

MAX_SIZE = 2**63 - 1
MAX_PROOF = 63

_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")
# One line of text: no control character (newline is one) and no lone surrogate, which UTF-8 cannot encode.
_LINE = re.compile(r"[^\x00-\x1f\ud800-\udfff]+")


def decode_text(data: bytes, what: str) -> str:
    """Return UTF-8 with no ASCII control character but newline."""
    try:
        text = data.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        raise FormatError(f"{what}: not UTF-8", what=what, offset=error.start) from error
    if control := _CONTROL.search(text):
        raise FormatError(f"{what}: control character", what=what, offset=control.start())
    return text


def is_line(text: str) -> bool:
    """Return whether a text can stand alone on a line: not empty, no control characters, encodable."""
    return _LINE.fullmatch(text) is not None


def decode_number(text: str, what: str) -> int:
    """Return an ASCII decimal without sign or leading zero, at most 2^63-1."""
    # The pattern bounds the digits first: int() of a very long text is slow.
    if not _DECIMAL.fullmatch(text) or (number := int(text)) > MAX_SIZE:
        raise FormatError(f"{what}: not a decimal number", what=what, text=text[:40])
    return number


def encode_number(number: int, what: str) -> str:
    """Return the decimal text of a number that a reader will accept."""
    if not 0 <= number <= MAX_SIZE:
        raise InvalidInputError(f"{what} is out of range", what=what, value=number)
    return str(number)


def decode_hash(text: str, what: str) -> bytes:
    """Return one SHA-256 hash in base64."""
    digest = b64.decode(text)
    if len(digest) != 32:
        raise FormatError(f"{what}: a hash has 32 bytes", what=what, length=len(digest))
    return digest


def decode_proof(rows: list[str], what: str) -> tuple[bytes, ...]:
    """Return at most 63 hashes, one to a line."""
    if len(rows) > MAX_PROOF:
        raise FormatError(f"{what}: more than {MAX_PROOF} hashes", what=what, count=len(rows))
    return tuple(decode_hash(row, what) for row in rows)


def encode_proof(proof: Iterable[bytes], what: str) -> str:
    """Return hashes in base64, one to a line, each line ended."""
    hashes = tuple(proof)
    if len(hashes) > MAX_PROOF or any(len(digest) != 32 for digest in hashes):
        raise InvalidInputError(f"{what}: a proof is at most {MAX_PROOF} hashes of 32 bytes", what=what)
    return "".join(f"{b64.encode(digest)}\n" for digest in hashes)
