"""Validation of arguments: names, numbers, times, page sizes. The one place for it; every domain uses these functions.

Rules:
- A function returns the value in the form in which it is stored, or raises InvalidInputError with the argument's name.
- Arguments are validated before anything is written.
"""

import json
import sys
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from math import inf
from typing import Any, Final, TypeVar

from holdproof.errors import InvalidInputError
from holdproof.model import jsontext
from holdproof.model.namespaces import EVERY
from holdproof.model.times import later, to_micros, to_text

MOST_PAGE: Final = 1_000
LAST: Final = 2**53 - 1
"""After every row number: the largest integer that JSON carries exactly, where a listing has no upper bound."""
_LONGEST_NAME: Final = 500
_LONGEST_WORDS: Final = 1_000_000
_LONGEST_WHO: Final = 200
_LONGEST_ERROR: Final = 10_000
_MOST_SECONDS: Final = 3e9  # about a century: added to any moment of ours it stays within what a datetime can hold
_EXCERPT: Final = 100
_ASCII_JSON: Final = jsontext.encoder(ascii=True)

E = TypeVar("E", bound=StrEnum)

# --- texts -------------------------------------------------------------------------------------------------------


def name(what: str, text: Any, *, most: int = _LONGEST_NAME) -> str:
    """Validate a name that somebody chose: printable, not empty, at most `most` characters."""
    if not isinstance(text, str) or not text or len(text) > most or not text.isprintable():
        message = f"{what} must be a printable text of 1 to {most} characters"
        raise InvalidInputError(message, field=what, value=_excerpt(text))
    return text


def namespace(text: Any) -> str:
    """Validate the name of a namespace; `*` stands for all of them in tokens, so none can be called that."""
    if text == EVERY:
        raise InvalidInputError(f"no namespace is called {EVERY}: it stands for all of them", field="ns", value=EVERY)
    return name("ns", text)


def words(what: str, text: Any, *, least: int = 0, most: int = _LONGEST_WORDS) -> str:
    """Validate a text of any number of lines that both databases can store."""
    # PostgreSQL stores no NUL, and no database a lone surrogate.
    if not isinstance(text, str) or not least <= len(text) <= most or "\0" in text:
        message = f"{what} must be a text of {least} to {most} characters, without NUL"
        raise InvalidInputError(message, field=what, value=_excerpt(text))
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInputError(f"{what} is not valid Unicode: {error.reason}", field=what) from error
    return text


def optional_words(what: str, text: Any) -> str | None:
    """Validate a text of any number of lines, or None."""
    return None if text is None else words(what, text)


def who(text: Any) -> str:
    """Validate the name of the person who answers for a removal."""
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST_WHO:
        message = f"who must be a text that is not empty, of at most {_LONGEST_WHO} characters"
        raise InvalidInputError(message, field="who", value=_excerpt(text))
    return text


def one_of(what: str, value: Any, allowed: Collection[str]) -> str:
    """Validate one of a few words."""
    if not isinstance(value, str) or value not in allowed:
        message = f"{what} is one of {', '.join(sorted(allowed))}, not {value!r}"
        raise InvalidInputError(message, field=what, value=_excerpt(value))
    return value


def member(what: str, kind: type[E], value: Any) -> E:
    """Validate one of the words of an enumeration, and return it as its member."""
    # Asked for, not looked up: an enumeration may know other words for its members.
    try:
        return kind(value)
    except ValueError as error:
        message = f"{what} is one of {', '.join(kind)}, not {value!r}"
        raise InvalidInputError(message, field=what, value=_excerpt(value)) from error


def to_json(what: str, value: Any, encode: Callable[[Any], str] = _ASCII_JSON) -> str:
    """Return a value as JSON text, by default in ASCII, which every database stores."""
    try:
        return encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{what} must be plain JSON: {error}", field=what) from error


def to_json_object(what: str, value: Any) -> str:
    """Return a mapping as the text of a JSON object; None is an empty one."""
    if value is not None and not isinstance(value, Mapping):
        raise InvalidInputError(f"{what} must be a mapping of names to plain JSON", field=what)
    return to_json(what, dict(value or {}))


def json_text(what: str, text: Any) -> str:
    """Validate a JSON text that another program wrote and that is stored byte for byte."""
    try:
        json.loads(text, parse_constant=_refuse_constant)
        text.encode()
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInputError(f"{what} is no JSON: {error}", field=what, value=_excerpt(text)) from error
    return str(text)


def _refuse_constant(word: str) -> None:
    """NaN and Infinity, which Python's parser would accept."""
    raise ValueError(f"{word} is not JSON")


def error_text(error: BaseException) -> str:
    """Return an exception as a text that both databases can store: its type and message, cut at 10,000 characters."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # `__str__` of somebody else's exception may itself fail
        text = f"{type(error).__name__}, whose message cannot be read"
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")[:_LONGEST_ERROR]


# --- numbers -----------------------------------------------------------------------------------------------------


def number(what: str, value: Any, *, least: float = -inf, most: float = sys.float_info.max) -> float:
    """Validate a finite number within bounds."""
    # A bool is an int in Python, and NaN fails every comparison: neither is a number here.
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        bounds = "" if least == -inf else f" of at least {least:g}"
        if bounds and most != sys.float_info.max:
            bounds = f" from {least:g} to {most:g}"
        raise InvalidInputError(f"{what} is a finite number{bounds}", field=what, value=_excerpt(value))
    return float(value)


def count(what: str, value: Any, *, least: int = 0, most: int = 2**31 - 1) -> int:
    """Validate a whole number within bounds; by default what an INTEGER column of PostgreSQL holds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        bounds = f"from {least} to {most}"
        raise InvalidInputError(f"{what} is a whole number {bounds}", field=what, value=_excerpt(value))
    return value


def seconds(what: str, value: Any, *, least: float = 0.0) -> float:
    """Validate a span of time in seconds."""
    return number(what, value, least=least, most=_MOST_SECONDS)


def position(what: str, value: Any) -> int:
    """Validate the number of a row."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LAST:
        raise InvalidInputError(f"{what} is the number of a row", field=what, value=_excerpt(value))
    return value


def limited(limit: Any) -> int:
    """Validate the size of a page."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_PAGE:
        raise InvalidInputError(f"a page has 1 to {MOST_PAGE} rows", field="limit", value=_excerpt(limit))
    return limit


# --- times -------------------------------------------------------------------------------------------------------


def moment(what: str, text: Any) -> str:
    """Validate a time and return it in the format in which times are stored."""
    try:
        return to_text(to_micros(text))
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInputError(f"{what}: {error}", field=what, value=_excerpt(text)) from error


_SPANS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def moment_or_span(what: str, text: str, now: str) -> str:
    """Return a time in the format in which times are stored: given as such, or as how long ago (`30m`, `1h`, `7d`)."""
    number = text[:-1]
    if text[-1:] in _SPANS and number.isascii() and number.isdigit() and len(number) <= _LONGEST_SPAN:
        return later(now, -int(number) * _SPANS[text[-1]])
    try:
        return moment(what, text)
    except InvalidInputError as error:
        remedy = f"{what} is a time with its zone, as 2026-01-31T12:00:00Z, or how long ago: 90s, 30m, 1h, 7d, 2w"
        raise InvalidInputError(remedy, field=what, value=_excerpt(text)) from error


_LONGEST_SPAN: Final = 6
"""How many digits a span has; more would lead to before the first year."""


def _excerpt(value: Any) -> str:
    """As much of a value as an error can carry."""
    return str(value)[:_EXCERPT]


def with_article(word: str) -> str:
    """Return a word with its article: `an integer`, `a string`."""
    return f"{'an' if word[:1].lower() in set('aeiou') else 'a'} {word}"
