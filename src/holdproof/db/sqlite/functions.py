"""Text functions of SQLite in linear time, for connections that run SQL of applications.

SQLite's own `instr`, `replace`, `trim` and `unhex` compare every position with the whole second argument. One call on
texts of a few megabytes runs for hours, and nothing can stop it: SQLite looks at its progress handler and at
`interrupt` between instructions, and a call is one instruction. These take milliseconds for the longest texts allowed.
`json_patch` compares every name of one object with every name of the other. Its result is marked as JSON, which a
function of ours cannot do, so it is refused instead of replaced.

For texts without NUL the results are SQLite's, so that an index or a CHECK of an application that uses them stays valid
for other programs.
"""

from collections.abc import Callable
from typing import Any, Final

import apsw

Value = str | bytes | int | float | None

LONGEST_PATTERN: Final = 256
"""The longest pattern of LIKE and GLOB, whose time grows with the product of both lengths."""
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")


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


def _unhex(text: Value, ignored: Value = "") -> bytes | None:
    if text is None or ignored is None:
        return None
    whole = _text(text)
    separators = frozenset(_text(ignored)) - _HEX_DIGITS
    # Characters to ignore may stand between the two digits of no byte: they end a run of whole bytes.
    runs = [whole]
    if separators:
        one = next(iter(separators))
        runs = whole.translate(dict.fromkeys(map(ord, separators), one)).split(one)
    # `bytes.fromhex` would skip spaces, which SQLite does not.
    if not all(run.isascii() and (run.isalnum() or not run) for run in runs):
        return None
    try:
        return b"".join(map(bytes.fromhex, runs))
    except ValueError:
        return None


def _refuse_patch(target: Value, patch: Value) -> None:
    del target, patch
    # The end of the text tells the error from others: see `typed`.
    raise apsw.SQLError("json_patch, whose time grows with the product of both lengths, is prohibited")


_FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], tuple[int, ...]]]] = {
    "instr": (_instr, (2,)),
    "replace": (_replace, (3,)),
    "trim": (_trims(at_start=True, at_end=True), (1, 2)),
    "ltrim": (_trims(at_start=True, at_end=False), (1, 2)),
    "rtrim": (_trims(at_start=False, at_end=True), (1, 2)),
    "unhex": (_unhex, (1, 2)),
    "json_patch": (_refuse_patch, (2,)),
    "jsonb_patch": (_refuse_patch, (2,)),
}


def install(connection: apsw.Connection) -> None:
    """Replace the functions of a connection for good."""
    for name, (function, counts) in _FUNCTIONS.items():
        for count in counts:
            # Without a mark as harmless, a foreign schema that calls one of them could not even be read.
            connection.create_scalar_function(name, function, count, deterministic=True, flags=apsw.SQLITE_INNOCUOUS)
