"""Floats as Lisp reads and prints them: single precision unless marked `d`; the fewest digits that lead back."""

import math
import re
import struct
from typing import Final

from holdproof.errors import InvalidInputError
from holdproof.model.lisp import Float

_MARK: Final = re.compile(r"[esfdl]", re.IGNORECASE)
_SINGLE_DIGITS: Final = 9
# Between these Lisp prints a float without exponent.
_LEAST: Final = 1e-3
_MOST: Final = 1e7


def read(word: str) -> Float:
    """A float from its text; one that is too large, or too small to be told from zero, is refused."""
    mark = _MARK.search(word)
    double = mark is not None and mark[0].lower() in "dl"
    # Lisp marks the type of a float by the letter of its exponent; Python knows only e.
    value = float(_MARK.sub("e", word))
    if not double:
        value = to_single(value)
    if math.isinf(value) or (value == 0 and _MARK.split(word)[0].strip("+-0.")):
        raise InvalidInputError("a float that its precision cannot hold", value=word[:40])
    return Float(value, double)


def to_single(value: float) -> float:
    """The nearest float of single precision."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def write(number: Float) -> str:
    """The text of a float, as SBCL prints it."""
    if not math.isfinite(number.value):
        raise InvalidInputError("infinities and NaN have no text in Lisp", value=str(number.value))
    if not number.double and to_single(number.value) != number.value:
        raise InvalidInputError("a single float of more precision than it has", value=repr(number.value))
    digits, exponent = _shortest(number)
    sign = "-" if math.copysign(1, number.value) < 0 else ""
    size = abs(number.value)
    if size == 0 or _LEAST <= size < _MOST:
        return sign + _fixed(digits, exponent) + ("d0" if number.double else "")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}{'d' if number.double else 'e'}{exponent}"


def _shortest(number: Float) -> tuple[str, int]:
    """The digits, and the power of ten of the first."""
    size = abs(number.value)
    if number.double:
        text = _scientific(size)
    else:
        tries = (f"{size:.{places}e}" for places in range(_SINGLE_DIGITS))
        text = next(text for text in tries if to_single(float(text)) == size)
    mantissa, _, exponent = text.partition("e")
    return mantissa.replace(".", "").rstrip("0") or "0", int(exponent)


def _scientific(size: float) -> str:
    tries = (f"{size:.{places}e}" for places in range(18))
    return next(text for text in tries if float(text) == size)


def _fixed(digits: str, exponent: int) -> str:
    if exponent < 0:
        return f"0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    return f"{whole}.{digits[exponent + 1 :] or '0'}"
