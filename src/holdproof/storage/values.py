"""What services are given and what they keep: names, words, numbers, JSON as text.

What is refused is refused before anything is written. JSON is kept as ASCII, so that no database finds fault with it.
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

from holdproof import validation
from holdproof.errors import InvalidInputError

E = TypeVar("E", bound=StrEnum)

_LONGEST_WORDS: Final = 1_000_000

name, number, limited = validation.name, validation.number, validation.limited


def words(what: str, text: Any, *, most: int = _LONGEST_WORDS) -> str:
    """A text of any lines that every database can keep; it may be empty."""
    return validation.words(what, text, least=0, most=most)


def maybe(what: str, text: Any) -> str | None:
    """The same, or nothing."""
    return None if text is None else words(what, text)


def one_of(what: str, kind: type[E], value: Any) -> E:
    """One of a few words."""
    try:
        return kind(value)
    except ValueError as error:
        allowed = ", ".join(kind)
        raise InvalidInputError(f"{what} is one of {allowed}, not {value!r}", field=what) from error


def count(what: str, value: Any) -> int:
    """How many there are of something."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise InvalidInputError(f"{what} is a whole number, 0 or more", field=what)
    return value


def dump(what: str, value: Any) -> str:
    """A value as JSON text; InvalidInputError where it has none."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{what} must be plain JSON: {error}", field=what) from error


def facts(what: str, value: Mapping[str, Any] | None) -> str:
    """A mapping as JSON text; none is an empty one."""
    if value is not None and not isinstance(value, Mapping):
        raise InvalidInputError(f"{what} is a mapping of names to plain JSON", field=what)
    return dump(what, dict(value or {}))


def load(text: str | None) -> dict[str, Any]:
    """The mapping in a column; what another program left there that is none is shown as `text`."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"text": value}
