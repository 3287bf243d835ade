"""Base58 in the Bitcoin alphabet (base58btc): one byte string has exactly one accepted text.

- Encoding and decoding take quadratic time, so lengths have a small limit: this is for identifiers, not content.
"""

from holdproof.errors import FormatError, InvalidInputError

MAX_TEXT = 256
MAX_BYTES = 187  # no longer byte string is sure to fit the text

_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_VALUES = {letter: value for value, letter in enumerate(_ALPHABET)}


def encode(data: bytes) -> str:
    """Encode bytes; each leading zero byte becomes a leading `1`."""
    if len(data) > MAX_BYTES:
        raise InvalidInputError("base58: more bytes than an identifier has", length=len(data), limit=MAX_BYTES)
    number = int.from_bytes(data, "big")
    letters = []
    while number:
        number, value = divmod(number, 58)
        letters.append(_ALPHABET[value])
    letters.extend("1" * (len(data) - len(data.lstrip(b"\x00"))))
    return "".join(reversed(letters))


def decode(text: str) -> bytes:
    """Decode a text; FormatError for other characters or too many."""
    if len(text) > MAX_TEXT:
        raise FormatError("base58: longer than an identifier is", length=len(text), limit=MAX_TEXT)
    number = 0
    for letter in text:
        value = _VALUES.get(letter)
        if value is None:
            raise FormatError("base58: a character outside the alphabet", length=len(text))
        number = number * 58 + value
    # The number does not show leading zeros: each leading `1` is one zero byte.
    zeros = len(text) - len(text.lstrip("1"))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")
