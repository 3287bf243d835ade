"""Parsing rules that the C2SP text formats share: UTF-8 text, decimal numbers, one hash per line."""

import re
from collections.abc import Iterable
from typing import Final

from holdproof.crypto import b64
from holdproof.errors import FormatError, InvalidInputError

MAX_SIZE = 2**63 - 1
MAX_PROOF = 63

_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")
LINE: Final = r"[^\x00-\x1f\ud800-\udfff]+"
"""One line: no control character, newline included, and no lone surrogate, which UTF-8 cannot encode."""
_LINE = re.compile(LINE)


def decode_text(data: bytes, what: str) -> str:
    """Decode UTF-8 text that has no ASCII control character except newline; FormatError otherwise."""
    try:
        text = data.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        raise FormatError(f"{what}: not UTF-8", what=what, offset=error.start) from error
    if control := _CONTROL.search(text):
        raise FormatError(f"{what}: control character", what=what, offset=control.start())
    return text


def is_line(text: str) -> bool:
    """Return whether a text can be one line: not empty, no control character, encodable as UTF-8."""
    return _LINE.fullmatch(text) is not None


def decode_number(text: str, what: str) -> int:
    """Parse an ASCII decimal without sign or leading zero, at most 2^63-1."""
    if not _DECIMAL.fullmatch(text) or (number := int(text)) > MAX_SIZE:
        raise FormatError(f"{what}: not a decimal number", what=what, text=text[:40])
    return number


def encode_number(number: int, what: str) -> str:
    """Return the decimal text of a number; InvalidInputError outside the range that readers accept."""
    if not 0 <= number <= MAX_SIZE:
        raise InvalidInputError(f"{what} is out of range", what=what, value=number)
    return str(number)


def decode_hash(text: str, what: str) -> bytes:
    """Parse one SHA-256 hash in base64."""
    digest = b64.decode(text)
    if len(digest) != 32:
        raise FormatError(f"{what}: a hash has 32 bytes", what=what, length=len(digest))
    return digest


def decode_proof(rows: list[str], what: str) -> tuple[bytes, ...]:
    """Parse the hashes of a Merkle proof, one per line, at most 63."""
    # A tree of 2^63 leaves has 63 levels: a longer proof cannot be valid, and is refused before it costs time.
    if len(rows) > MAX_PROOF:
        raise FormatError(f"{what}: more than {MAX_PROOF} hashes", what=what, count=len(rows))
    return tuple(decode_hash(row, what) for row in rows)


def encode_proof(proof: Iterable[bytes], what: str) -> str:
    """Return the hashes of a Merkle proof in base64, one per line, each line ended by a newline."""
    hashes = tuple(proof)
    if len(hashes) > MAX_PROOF or any(len(digest) != 32 for digest in hashes):
        raise InvalidInputError(f"{what}: a proof is at most {MAX_PROOF} hashes of 32 bytes", what=what)
    return "".join(f"{b64.encode(digest)}\n" for digest in hashes)
