"""Lists as columns that fit the terminal: no row is wrapped.

Rules:
- On a terminal, long ids are shown by their end where that tells them apart (commands take it), and times as seen from
  now. In a pipe everything stands there whole, as in JSON.
- Columns are declared by importance. Where they do not fit, those that say nothing go first, then long texts are cut,
  then the last columns are left out, which the last line says.
"""

import re
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from rich.cells import cell_len
from rich.text import Text

from holdproof.cli import times

_GAP: Final = 2
_SHORT: Final = 8
_LEAST: Final = 16
"""How far a text is cut before a column is left out."""
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ID_BEGINNING: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{0,4}){0,3}(-[0-9a-f]{0,11})?")
_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z")
_NOTHING: Final = frozenset({"", "-", "none"})

Style = Callable[[str], Text]
Lines = Sequence[Sequence[str]]


def terminal_width() -> int | None:
    """Return how many columns the terminal has; None where the output is no terminal."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def rows(names: Sequence[str], items: Sequence[Any], cell: Callable[[Any], str]) -> list[list[str]]:
    """Return the cells of values; one without a field has an empty cell."""
    lines = [[cell(item[name]) if name in item else "" for name in names] for item in items]
    if terminal_width() is None or not lines:
        return lines
    columns = [_short(column) for column in zip(*lines, strict=True)]
    return [list(line) for line in zip(*columns, strict=True)]


def _short(column: Sequence[str]) -> list[str]:
    """Shorten the ids and times of a column."""
    ids = {each for each in column if _UUID.fullmatch(each)}
    is_clear = len({each[-_SHORT:] for each in ids}) == len(ids)
    present = times.now()

    def shortened(text: str) -> str:
        if text in ids and is_clear:
            return text[-_SHORT:]
        return times.relative(text, present) if _TIME.fullmatch(text) else text

    return [shortened(each) for each in column]


def aligned(heads: Sequence[str], lines: Lines, style: Style) -> Text:
    """Draw lines in columns, no wider than the terminal."""
    if not lines:
        return Text("none\n")
    width = terminal_width()
    visible, widths, left_out = _fitted(heads, lines, width)
    text = Text()
    head = "  ".join(_padded(_cut(heads[at], size), size) for at, size in zip(visible, widths, strict=True))
    text.append(f"{head.rstrip()}\n", style="dim")
    for line in lines:
        line_text = Text()
        for at, size in zip(visible, widths, strict=True):
            content = _cut(line[at], size)
            line_text.append(style(content)).append(" " * (size - cell_len(content) + _GAP))
        # Trailing spaces would wrap a line that otherwise fits the terminal.
        line_text.rstrip()
        text.append(line_text).append("\n")
    if left_out:
        note = f"not shown: {', '.join(left_out)} (--json, or a wider terminal)"
        text.append(f"{note if width is None else _cut(note, width)}\n", style="dim")
    return text


def _fitted(heads: Sequence[str], lines: Lines, width: int | None) -> tuple[list[int], list[int], list[str]]:
    """Return which columns are shown, how wide each is, and the names of those that say something and are left out."""
    columns = [*zip(*lines, strict=True)]
    natural = [max(map(cell_len, (head, *column))) for head, column in zip(heads, columns, strict=True)]
    visible = [*range(len(heads))]
    if width is None or _total(natural) <= width:
        return visible, natural, []
    visible = [at for at in visible if not _NOTHING.issuperset(columns[at])] or visible[:1]
    while len(visible) > 1 and _total([_least(natural[at]) for at in visible]) > width:
        visible.pop()
    widths = [natural[at] for at in visible]
    while (excess := _total(widths) - width) > 0:
        longest = max(range(len(widths)), key=widths.__getitem__)
        # Down to the second longest at most, so that several long columns share the room.
        others = [size for at, size in enumerate(widths) if at != longest and size < widths[longest]]
        room = widths[longest] - max([_LEAST, *others])
        widths[longest] -= min(excess, max(1, room))
    left_out = [
        heads[at].lower() for at in range(len(heads)) if at not in visible and not _NOTHING.issuperset(columns[at])
    ]
    return visible, widths, left_out


def _least(size: int) -> int:
    return min(size, _LEAST)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _padded(text: str, size: int) -> str:
    return text + " " * (size - cell_len(text))


def _cut(text: str, size: int) -> str:
    """Return as much of a text as fits, with a mark where something is missing."""
    if cell_len(text) <= size:
        return text
    while text and cell_len(text) > size - 1:
        text = text[:-1]
    return f"{text}{'…' if _unicode() else '~'}"


def _unicode() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "").lower().startswith("utf")


def is_part(word: str) -> bool:
    """Whether a word may be the end of an id, as lists show it, or the beginning of one that a store made."""
    return _is_end(word) or (len(word) >= _SHORT and _ID_BEGINNING.fullmatch(word) is not None)


def has_part(flow_id: str, word: str) -> bool:
    """Whether a word that `is_part` is the end of an id, or its beginning where a store made it.

    Of ids that people choose one may be the beginning of another: `2026-1` is not short for `2026-10`.
    """
    return (_is_end(word) and flow_id.endswith(word)) or (
        _UUID.fullmatch(flow_id) is not None and flow_id.startswith(word)
    )


def _is_end(word: str) -> bool:
    return re.fullmatch(rf"[0-9a-f]{{{_SHORT}}}", word) is not None
