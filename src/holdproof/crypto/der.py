"""DER, the encoding of ASN.1 that time tokens and certificates have: the little of it that we read and write.

Rules:
- Lengths are definite and as short as they can be, tags have one byte: anything else is a FormatError.
- What was read keeps its own bytes (`raw`): a signature is over those, never over something written again.
"""

from datetime import UTC, datetime
from typing import Final, NamedTuple

from holdproof.errors import FormatError

BOOLEAN: Final = 0x01
INTEGER: Final = 0x02
OCTETS: Final = 0x04
NULL: Final = 0x05
OID: Final = 0x06
TIME: Final = 0x18
SEQUENCE: Final = 0x30
SET: Final = 0x31


class Element(NamedTuple):
    """One element: its tag, what is in it, and all of its bytes."""

    tag: int
    body: bytes
    raw: bytes


def read(data: bytes) -> Element:
    """Return the element that these bytes are; FormatError if anything follows it."""
    element, end = _read(data, 0)
    if end != len(data):
        raise FormatError("DER: bytes after the end", length=len(data))
    return element


def _read(data: bytes, start: int) -> tuple[Element, int]:
    """Return the element at a place, and where it ends."""
    if len(data) < start + 2:
        raise FormatError("DER: cut off")
    tag, length = data[start], data[start + 1]
    at = start + 2
    if tag & 0x1F == 0x1F:
        raise FormatError("DER: a tag of more than one byte")
    if length >= 0x80:
        count = length & 0x7F
        digits = data[at : at + count]
        length = int.from_bytes(digits, "big")
        at += count
        if not 1 <= count <= 4 or len(digits) != count or length < 0x80 or digits[0] == 0:
            raise FormatError("DER: a length that is not written as it must be")
    if at + length > len(data):
        raise FormatError("DER: cut off")
    return Element(tag, data[at : at + length], data[start : at + length]), at + length


def children(element: Element, tag: int = SEQUENCE) -> list[Element]:
    """Return the elements inside one of this tag."""
    body = expect(element, tag).body
    inside: list[Element] = []
    at = 0
    while at < len(body):
        child, at = _read(body, at)
        inside.append(child)
    return inside


def expect(element: Element, tag: int) -> Element:
    """Return the element if it has this tag; FormatError otherwise."""
    if element.tag != tag:
        raise FormatError("DER: another element than expected", found=f"{element.tag:#04x}", expected=f"{tag:#04x}")
    return element


def integer(element: Element) -> int:
    """Return a whole number."""
    body = expect(element, INTEGER).body
    if not body or len(body) > 64:
        raise FormatError("DER: a number of no or too many digits")
    return int.from_bytes(body, "big", signed=True)


def oid(element: Element) -> str:
    """Return an object identifier as dotted numbers."""
    body = expect(element, OID).body
    # Before anything is read: numbers without an end would take a time that grows with their square.
    if not body or body[-1] >= 0x80 or len(body) > 32:
        raise FormatError("DER: not an object identifier")
    numbers: list[int] = []
    value = 0
    for byte in body:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def time(element: Element) -> datetime:
    """Return a moment; only UTC is allowed, with or without a fraction."""
    text = expect(element, TIME).body.decode("ascii", "replace")
    whole, dot, fraction = text.removesuffix("Z").partition(".")
    fits = text.endswith("Z") and len(whole) == 14 and whole.isdigit() and whole.isascii()
    if not fits or (dot and not (fraction.isdigit() and fraction.isascii() and len(fraction) <= 9)):
        raise FormatError("DER: not a moment in UTC")
    try:
        moment = datetime.strptime(whole, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError as error:
        raise FormatError("DER: not a moment in UTC") from error
    return moment.replace(microsecond=int(fraction.ljust(6, "0")[:6]) if dot else 0)


def write(tag: int, *parts: bytes) -> bytes:
    """Return an element of these parts."""
    body = b"".join(parts)
    if len(body) < 0x80:
        return bytes([tag, len(body)]) + body
    digits = len(body).to_bytes((len(body).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(digits)]) + digits + body


def write_integer(value: int) -> bytes:
    """Return a number that is not negative."""
    return write(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def write_oid(text: str) -> bytes:
    """Return an object identifier."""
    first, second, *rest = map(int, text.split("."))
    body = bytearray()
    for number in (40 * first + second, *rest):
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.append(number & 0x7F | 0x80)
        body += bytes(reversed(digits))
    return write(OID, bytes(body))
