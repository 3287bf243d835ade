"""What every list shares: its time range, its filters as a query, and the same rows as JSON or CSV.

Rules:
- A list has one address; `.json` or `.csv` behind its path gives the rows of the same query for programs.
- A time range is a word (`1h`, `24h`, `7d`, `30d`, `all`) or two moments in UTC; what is no time is an error.
- A cell of a CSV that a spreadsheet would run as a formula begins with an apostrophe.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from holdproof import validation
from holdproof.errors import NotFoundError
from holdproof.model.memory import plain
from holdproof.model.times import BEGINNING, END, later
from holdproof.model.value import Value

RANGES: Final[Mapping[str, float | None]] = {
    "1h": 3_600.0,
    "24h": 86_400.0,
    "7d": 604_800.0,
    "30d": 2_592_000.0,
    "all": None,
}
"""The ranges of time that a page offers, in seconds."""
FORMATS: Final = ("json", "csv")
MOST_ROWS: Final = 1_000
# Their full-width forms are formulas to some spreadsheets too.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From when to when rows are shown: as a word, or as the moments that a form sent."""

    word: str
    since: str
    until: str
    query: Mapping[str, str]
    """What of it stands in the address."""

    @property
    def custom(self) -> bool:
        """Whether it was given as moments."""
        return self.word == ""


def time_range(now: str, *, range: str = "", since: str = "", until: str = "", default: str = "24h") -> TimeRange:
    """Return the range that an address names; InvalidInputError for what is no range and no time."""
    if since or until:
        start = validation.moment("since", moment(since)) if since else BEGINNING
        end = validation.moment("until", moment(until)) if until else END
        return TimeRange("", start, end, {"since": since, "until": until})
    word = range or default
    validation.one_of("range", word, frozenset(RANGES))
    length = RANGES[word]
    start = BEGINNING if length is None else later(now, -length)
    return TimeRange(word, start, END, {"range": range} if range else {})


def moment(text: str) -> str:
    """Return a time as a form gives it, which knows no zone: UTC."""
    return f"{text}Z" if len(text) in {16, 19} and text[10:11] == "T" else text


def export(name: str, format: str, rows: Iterable[Value | Mapping[str, Any]], columns: Sequence[str]) -> Response:
    """Return rows as JSON or CSV; NotFoundError for any other format."""
    if format not in FORMATS:
        raise NotFoundError(f"there is no {name}.{format}; ask for {' or '.join(FORMATS)}", format=format)
    items = [plain(row if isinstance(row, Mapping) else row.to_dict()) for row in rows]
    if format == "json":
        return JSONResponse(items)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_cell(item.get(column)) for column in columns] for item in items)
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


def _cell(value: Any) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    text = "" if value is None else str(value)
    # A number is none, and one below zero has to stay a number.
    runs = isinstance(value, str) and text.startswith(_FORMULA)
    return f"'{text}" if runs else text
