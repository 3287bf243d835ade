"""What every domain is given: names, numbers, times, sizes of pages. It is refused before anything is written."""

import sys
from math import inf
from typing import Any, Final

from holdproof.errors import InvalidInputError
from holdproof.model.times import to_micros, to_text

MOST_PAGE: Final = 1_000
LAST: Final = 2**53 - 1
"""The number after every row, where none is given."""
_LONGEST_NAME: Final = 500
_LONGEST_WHO: Final = 200
_SHOWN: Final = 100


def name(what: str, text: Any, *, most: int = _LONGEST_NAME) -> str:
    """A name somebody chose: not empty, not endless, no control characters."""
    if not isinstance(text, str) or not text or len(text) > most or not text.isprintable():
        said = f"{what} must be a printable text of 1 to {most} characters"
        raise InvalidInputError(said, field=what, value=_shown(text))
    return text


def words(what: str, text: Any, *, least: int = 1, most: int) -> str:
    """A text of any lines that every database can keep: PostgreSQL keeps no NUL, and none a lone surrogate."""
    if not isinstance(text, str) or not least <= len(text) <= most or "\0" in text:
        said = f"{what} must be a text of {least} to {most} characters, without NUL"
        raise InvalidInputError(said, field=what, value=_shown(text))
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInputError(f"{what} is no Unicode: {error.reason}", field=what) from error
    return text


def who(text: Any) -> str:
    """Whoever answers for a removal, as its record names them."""
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST_WHO:
        said = f"who does this is a text that is not empty, {_LONGEST_WHO} characters at most"
        raise InvalidInputError(said, field="who", value=_shown(text))
    return text


def number(what: str, value: Any, *, least: float = -inf, most: float = sys.float_info.max) -> float:
    """A finite number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        bounds = "" if least == -inf else f" of at least {least:g}"
        if bounds and most != sys.float_info.max:
            bounds = f" from {least:g} to {most:g}"
        raise InvalidInputError(f"{what} is a finite number{bounds}", field=what, value=_shown(value))
    return float(value)


def moment(what: str, text: Any) -> str:
    """A time as it is stored."""
    try:
        return to_text(to_micros(text))
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInputError(f"{what}: {error}", field=what, value=_shown(text)) from error


def position(what: str, value: Any) -> int:
    """The number of a row, as far as every database counts."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LAST:
        raise InvalidInputError(f"{what} is the number of a row", field=what, value=_shown(value))
    return value


def limited(limit: Any) -> int:
    """The size of a page."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_PAGE:
        raise InvalidInputError(f"a page has 1 to {MOST_PAGE} rows", field="limit", value=_shown(limit))
    return limit


def _shown(value: Any) -> str:
    """As much of it as an error can carry."""
    return str(value)[:_SHOWN]
