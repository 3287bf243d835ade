"""What changed between two values, as a person reads it: words of a text, lines of code, rows of a table; pure.

Rules:
- The pieces of a comparison, put together, are the two values again: nothing of either is left out but unchanged lines
  far from any change, and those are counted.
- However long a value is, comparing takes bounded time: what is too long is shown whole, old and new.
"""

import json
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
    pieces = [Piece(kind, each) for each in texts]
    hidden = _far(len(texts), number, total) if kind == "same" else range(0)
    if hidden:
        pieces[hidden.start : hidden.stop] = [Piece("gap", f"{len(hidden)} lines without a change")]
    return pieces


def _far(count: int, number: int, total: int) -> range:
    """Return which items of a step without a change are far from any change."""
    head = 0 if number == 0 else _AROUND
    tail = 0 if number == total - 1 else _AROUND
    far = range(head, count - tail)
    # A gap of one would take the place of that one.
    return far if len(far) > 1 else range(0)


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


class RowCell(NamedTuple):
    """What stands in a row; `was` says what stood there before, where that is something else."""

    text: str
    was: str | None = None


class RowChange(NamedTuple):
    """A row that is the `same`, `changed`, `add`ed or `cut`; `gap` says how many rows are left out."""

    kind: str
    cells: tuple[RowCell, ...]


@dataclass(frozen=True, slots=True)
class TableChange:
    """How a list of objects differs from another, row by row."""

    columns: tuple[str, ...]
    rows: tuple[RowChange, ...]


def rows(old: Any, new: Any) -> TableChange | None:
    """Return how a list of objects differs from another; None where either is no short table."""
    before, after = table(old), table(new)
    if before is None or after is None or before.left_out or after.left_out:
        return None
    columns = tuple(dict.fromkeys((*after.columns, *before.columns)))
    if len(columns) > _MOST_COLUMNS:
        return None
    old_rows, new_rows = ([tuple(_json(each, name) for name in columns) for each in value] for value in (old, new))
    steps = list(_row_steps(old_rows, new_rows))
    changes = (row for number, step in enumerate(steps) for row in _row_stretch(step, number, len(steps)))
    return TableChange(columns, tuple(changes))


def _json(row: dict[str, Any], name: str) -> str:
    """Return a value as JSON, which tells the text "1" from the number; nothing for what is not there."""
    return json.dumps(row[name], ensure_ascii=False, sort_keys=True, default=str) if name in row else ""


def _row_steps(old: list[tuple[str, ...]], new: list[tuple[str, ...]]) -> Iterator[list[RowChange]]:
    """Return stretches of rows; where rows took the place of others, they are beside those in their order."""
    for step, start, end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if step == "equal":
            yield [_row("same", each) for each in old[start:end]]
            continue
        pairs = list(zip(old[start:end], new[new_start:new_end], strict=False))
        yield [
            *(row for was, now in pairs for row in _changed(was, now)),
            *(_row("cut", each) for each in old[start + len(pairs) : end]),
            *(_row("add", each) for each in new[new_start + len(pairs) : new_end]),
        ]


def _row(kind: str, cells: tuple[str, ...]) -> RowChange:
    return RowChange(kind, tuple(RowCell(_plain(each)) for each in cells))


def _changed(was: tuple[str, ...], now: tuple[str, ...]) -> list[RowChange]:
    """Return one row with what changed in it, or two where nothing of the old one is left."""
    if all(one != other for one, other in zip(was, now, strict=True)):
        return [_row("cut", was), _row("add", now)]
    return [RowChange("changed", tuple(_cell(one, other) for one, other in zip(was, now, strict=True)))]


def _cell(was: str, now: str) -> RowCell:
    if was == now:
        return RowCell(_plain(now))
    texts = _plain(was), _plain(now)
    # A text that became the number it looks like: the quotes tell.
    return RowCell(now, was) if texts[0] == texts[1] else RowCell(texts[1], texts[0])


def _plain(text: str) -> str:
    """Return a text without its quotes, and a dash for what is not there."""
    return json.loads(text) if text.startswith('"') else text or "—"


def _row_stretch(step: list[RowChange], number: int, total: int) -> list[RowChange]:
    """Return the rows of one step; of a long one without a change only those beside a change."""
    hidden = _far(len(step), number, total) if step[0].kind == "same" else range(0)
    if hidden:
        step[hidden.start : hidden.stop] = [RowChange("gap", (RowCell(f"{len(hidden)} rows without a change"),))]
    return step


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
