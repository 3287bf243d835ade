"""Text functions of SQLite in linear time, for connections that run SQL of applications.

SQLite's own `instr`, `replace` and `trim` compare every position with the whole second argument. One call on texts of a
few megabytes runs for hours, and nothing can stop it: SQLite looks at its progress handler and at `interrupt` between
instructions, and a call is one instruction. These take milliseconds for the longest texts that are allowed.

For texts without NUL the results are SQLite's, so that an index or a CHECK of an application that uses them stays valid
for other programs.
"""

from collections.abc import Callable
from typing import Any, Final

import apsw

Value = str | bytes | int | float | None

LONGEST_PATTERN: Final = 256
"""The longest pattern of LIKE and GLOB, whose time grows with the product of both lengths."""


def _text(value: Value) -> str:
    """Return a value as SQLite would write it in a text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    # Numbers are short, and only SQLite knows how it writes them.
    return str(apsw.Connection(":memory:").execute("SELECT CAST(? AS TEXT)", (value,)).get)


def _instr(text: Value, part: Value) -> int | None:
    if text is None or part is None:
        return None
    if isinstance(text, bytes) and isinstance(part, bytes):
        return text.find(part) + 1
    return _text(text).find(_text(part)) + 1


def _replace(text: Value, part: Value, by: Value) -> str | None:
    if text is None or part is None or by is None:
        return None
    whole = _text(text)
    searched = _text(part)
    return whole.replace(searched, _text(by)) if searched else whole


def _trims(*, at_start: bool, at_end: bool) -> Callable[..., str | None]:
    def trim(text: Value, characters: Value = " ") -> str | None:
        if text is None or characters is None:
            return None
        whole = _text(text)
        # A set: `str.strip` would search the characters again for each position.
        removed = frozenset(_text(characters))
        start = 0
        end = len(whole)
        while at_start and start < end and whole[start] in removed:
            start += 1
        while at_end and end > start and whole[end - 1] in removed:
            end -= 1
        return whole[start:end]

    return trim


_FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], tuple[int, ...]]]] = {
    "instr": (_instr, (2,)),
    "replace": (_replace, (3,)),
    "trim": (_trims(at_start=True, at_end=True), (1, 2)),
    "ltrim": (_trims(at_start=True, at_end=False), (1, 2)),
    "rtrim": (_trims(at_start=False, at_end=True), (1, 2)),
}


def install(connection: apsw.Connection) -> None:
    """Replace the functions of a connection for good."""
    for name, (function, counts) in _FUNCTIONS.items():
        for count in counts:
            connection.create_scalar_function(name, function, count, deterministic=True)
