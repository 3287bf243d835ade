"""Unsigned varints as multiformats uses them (LEB128).

- One number has one encoding: no padding with zero groups.
- At most nine bytes, so at most 2^63 - 1.
"""

from holdproof.errors import FormatError, InvalidInputError

MAX = 2**63 - 1
MAX_BYTES = 9


def encode(number: int) -> bytes:
    """Encode a number from 0 to 2^63 - 1."""
    if not 0 <= number <= MAX:
        raise InvalidInputError("a varint holds 0 to 2^63 - 1", number=number)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def decode(data: bytes, at: int = 0) -> tuple[int, int]:
    """Decode the number that starts at an offset; returns it and the offset after it."""
    number = shift = 0
    for byte in data[at : at + MAX_BYTES]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            # A last group of zeros adds nothing: the same number has a shorter encoding.
            if byte == 0 and shift > 7:
                raise FormatError("varint: padded with zeros", at=at)
            return number, at + shift // 7
    raise FormatError("varint: cut short, or longer than nine bytes", at=at)
