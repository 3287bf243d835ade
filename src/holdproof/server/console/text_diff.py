"""What changed between two values, as a person reads it: words of a text, lines of code, rows of a table; pure.

Rules:
- The pieces of a comparison, put together, are the two values again: nothing of either is left out but unchanged lines
  far from any change, and those are counted.
- However long a value is, comparing takes bounded time: what is too long is shown whole, old and new.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

_TOKEN: Final = re.compile(r"\s+|\w+|[^\w\s]")
_MOST_TOKENS: Final = 1500
_MOST_LINES: Final = 800
_AROUND: Final = 3
_MOST_COLUMNS: Final = 8
_MOST_ROWS: Final = 200


class Piece(NamedTuple):
    """A stretch of text that is the `same`, `add`ed or `cut`; `gap` says how many lines are left out."""

    kind: str
    text: str


def words(old: str, new: str) -> list[Piece]:
    """Return how a text differs from another, word by word."""
    before = _TOKEN.findall(old)
    after = _TOKEN.findall(new)
    if len(before) + len(after) > _MOST_TOKENS:
        return [Piece("cut", old), Piece("add", new)]
    return [Piece(kind, "".join(tokens)) for kind, tokens in _steps(before, after)]


def lines(old: str, new: str) -> list[Piece]:
    """Return how a text of several lines differs from another; long stretches without a change are counted only."""
    before = old.split("\n")
    after = new.split("\n")
    if len(before) + len(after) > _MOST_LINES:
        return [*(Piece("cut", each) for each in before), *(Piece("add", each) for each in after)]
    steps = list(_steps(before, after))
    return [piece for number, step in enumerate(steps) for piece in _stretch(step, number, len(steps))]


def _steps(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    for step, start, end, new_start, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if step == "equal":
            yield "same", before[start:end]
            continue
        if end > start:
            yield "cut", before[start:end]
        if new_end > new_start:
            yield "add", after[new_start:new_end]


def _stretch(step: tuple[str, Sequence[str]], number: int, total: int) -> list[Piece]:
    """Return the lines of one step; of a long one without a change only those beside a change."""
    kind, texts = step
    head = 0 if number == 0 else _AROUND
    tail = 0 if number == total - 1 else _AROUND
    hidden = len(texts) - head - tail
    # A gap of one line would take the place of that line.
    if kind != "same" or hidden < 2:
        return [Piece(kind, each) for each in texts]
    shown_tail = texts[len(texts) - tail :]
    return [
        *(Piece(kind, each) for each in texts[:head]),
        Piece("gap", f"{hidden} lines without a change"),
        *(Piece(kind, each) for each in shown_tail),
    ]


@dataclass(frozen=True, slots=True)
class TableDiff:
    """A list of objects as rows; `left_out` counts rows that are not shown."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    left_out: int


def table(value: Any) -> TableDiff | None:
    """Return a list of objects with few columns as a table; None for anything else."""
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) and each for each in value):
        return None
    columns = tuple(dict.fromkeys(str(name) for each in value for name in each))
    if len(columns) > _MOST_COLUMNS:
        return None
    rows = tuple(tuple(each.get(name) for name in columns) for each in value[:_MOST_ROWS])
    return TableDiff(columns, rows, max(len(value) - _MOST_ROWS, 0))


def factor(old: Any, new: Any) -> str:
    """Return by how much a number grew or shrank, such as `+17,000 (x 1.68)`; nothing for what is no number."""
    if not (_is_number(old) and _is_number(new)) or old == new:
        return ""
    text = f"{new - old:+,.10g}"
    if old == 0 or (old < 0) != (new < 0):
        return text
    return f"{text} (\u00d7 {new / old:.3g})"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15
