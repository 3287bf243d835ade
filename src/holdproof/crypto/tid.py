"""Timestamp identifiers (TID) of the AT Protocol: the `rev` of a commit.

- 13 characters of `234567abcdefghijklmnopqrstuvwxyz`; the order of the texts is the order of the numbers.
- 64 bits: a zero, 53 bits of microseconds since 1970, 10 bits of clock identifier.
- `after` never goes back: a clock that stands still or steps back gives the next microsecond.
"""

import re

from holdproof.errors import FormatError, InvalidInputError

MAX_MICROS = 2**53 - 1
MAX_CLOCK = 2**10 - 1

_ALPHABET = "234567abcdefghijklmnopqrstuvwxyz"
_TID = re.compile(r"[234567a-j][234567a-z]{12}")
_TO_DIGITS = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")


def encode(micros: int, clock: int = 0) -> str:
    """Return the TID of a moment, in microseconds since 1970, and a clock identifier."""
    if not 0 <= micros <= MAX_MICROS or not 0 <= clock <= MAX_CLOCK:
        raise InvalidInputError("a TID has 53 bits of microseconds and 10 of clock", micros=micros, clock=clock)
    number = micros << 10 | clock
    return "".join([_ALPHABET[number >> shift & 31] for shift in range(60, -1, -5)])


def parse(text: str) -> tuple[int, int]:
    """Microseconds and clock identifier of a TID."""
    if not _TID.fullmatch(text):
        raise FormatError("not a TID: 13 characters of base32-sortable", text=text[:100])
    number = int(text.translate(_TO_DIGITS), 32)
    return number >> 10, number & MAX_CLOCK


def after(last: str | None, micros: int, clock: int = 0) -> str:
    """Return the TID of a moment, later than the last one in any case."""
    return encode(micros if last is None else max(micros, parse(last)[0] + 1), clock)
