"""Validation of what application tables store: texts, enums, counts, JSON columns; see `holdproof.validation`.

Input is refused before anything is written. JSON is stored as ASCII, which every database accepts.
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

from holdproof import validation
from holdproof.errors import InvalidInputError
from holdproof.model import jsontext

E = TypeVar("E", bound=StrEnum)

_LONGEST_WORDS: Final = 1_000_000

name = validation.name
number = validation.number
limited = validation.limited
_dumps = jsontext.encoder(ascii=True)


def words(what: str, text: Any, *, most: int = _LONGEST_WORDS) -> str:
    """Check a text that every database can store; it may be empty, and have several lines."""
    return validation.words(what, text, least=0, most=most)


def maybe(what: str, text: Any) -> str | None:
    """The same for an optional text."""
    return None if text is None else words(what, text)


def one_of(what: str, kind: type[E], value: Any) -> E:
    """Check that a value is one of an enum."""
    try:
        return kind(value)
    except ValueError as error:
        allowed = ", ".join(kind)
        raise InvalidInputError(f"{what} must be one of {allowed}, not {value!r}", field=what) from error


def count(what: str, value: Any) -> int:
    """Check a count, which every database can store."""
    # True is an int in Python, and 2**63 is more than a BIGINT holds.
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise InvalidInputError(f"{what} must be an integer, 0 or more", field=what)
    return value


def dump(what: str, value: Any) -> str:
    """Encode a value as JSON; raises InvalidInputError where that is impossible."""
    try:
        return _dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{what} must be plain JSON: {error}", field=what) from error


def facts(what: str, value: Mapping[str, Any] | None) -> str:
    """Encode a mapping as JSON; None is an empty one."""
    if value is not None and not isinstance(value, Mapping):
        raise InvalidInputError(f"{what} must be a mapping of names to plain JSON", field=what)
    return dump(what, dict(value or {}))


def load(text: str | None) -> dict[str, Any]:
    """Decode the mapping in a column; another value, left there by another program, becomes `{"text": value}`."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"text": value}
