"""Timestamp identifiers (TID) of the AT Protocol: the `rev` of a commit.

- 13 characters of `234567abcdefghijklmnopqrstuvwxyz`; the order of the texts is the order of the numbers.
- 64 bits: a zero, 53 bits of microseconds since 1970, 10 bits of clock identifier.
- `after` always increases: with a clock that stands still or steps back it returns the next microsecond.
"""

import re

from holdproof.errors import FormatError, InvalidInputError

MAX_MICROS = 2**53 - 1
MAX_CLOCK = 2**10 - 1

_ALPHABET = "234567abcdefghijklmnopqrstuvwxyz"
# 13 characters have 65 bits: the first bit is always zero, so that the first character is one of sixteen.
_TID = re.compile(r"[234567a-j][234567a-z]{12}")
_TO_DIGITS = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")


def encode(micros: int, clock: int = 0) -> str:
    """Return the TID of a time, in microseconds since 1970, and a clock identifier."""
    if not 0 <= micros <= MAX_MICROS or not 0 <= clock <= MAX_CLOCK:
        raise InvalidInputError("a TID has 53 bits of microseconds and 10 of clock", micros=micros, clock=clock)
    number = micros << 10 | clock
    return "".join([_ALPHABET[number >> shift & 31] for shift in range(60, -1, -5)])


def parse(text: str) -> tuple[int, int]:
    """Parse a TID; returns microseconds since 1970 and the clock identifier."""
    if not _TID.fullmatch(text):
        raise FormatError("not a TID: 13 characters of base32-sortable", text=text[:100])
    number = int(text.translate(_TO_DIGITS), 32)
    return number >> 10, number & MAX_CLOCK


def after(last: str | None, micros: int, clock: int = 0) -> str:
    """Return the TID of a time, or the next free one if that is not later than `last`."""
    if last is not None:
        last_micros, _ = parse(last)
        micros = max(micros, last_micros + 1)
    return encode(micros, clock)
