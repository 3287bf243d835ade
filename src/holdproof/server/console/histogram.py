"""Columns over time, stacked by kind, each a link to its stretch of time; laid out here, pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from holdproof.server.console import axes

WIDTH: Final = 1000.0
HEIGHT: Final = 132.0
_LEFT: Final = 48.0
_TOP: Final = 8.0
_BOTTOM: Final = 24.0
_MOST_LABELS: Final = 7
_LETTER: Final = 6.2


@dataclass(frozen=True, slots=True)
class ColumnPart:
    """The flows of one kind in a column."""

    kind: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class StackedColumn:
    """A stretch of time."""

    x: float
    width: float
    parts: tuple[ColumnPart, ...]
    says: str
    href: str


@dataclass(frozen=True, slots=True)
class HistogramTick:
    """A line across, and its number."""

    y: float
    text: str


@dataclass(frozen=True, slots=True)
class HistogramLabel:
    """A moment below the columns."""

    x: float
    text: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """What is drawn."""

    columns: tuple[StackedColumn, ...]
    ticks: tuple[HistogramTick, ...]
    labels: tuple[HistogramLabel, ...]
    left_edge: float = _LEFT
    top: float = _TOP
    floor: float = HEIGHT - _BOTTOM
    width: float = WIDTH
    height: float = HEIGHT
    gap: float = 1.0


def lay_out(
    points: Sequence[tuple[str, Mapping[str, float]]],
    kinds: Sequence[str],
    *,
    bucket_s: float,
    unit: str,
    link: Callable[[int], str] = lambda _: "",
) -> Histogram:
    """Return stacked columns: for each moment the amounts by kind, drawn in the order of `kinds` from the floor up."""
    highest = max((sum(amounts.values()) for _, amounts in points), default=0.0)
    scale = axes.counts(highest)
    floor = HEIGHT - _BOTTOM
    step = (WIDTH - _LEFT) / max(len(points), 1)
    columns = tuple(
        StackedColumn(
            _LEFT + place * step,
            step,
            _stack(amounts, kinds, scale.top, floor),
            f"{moment(at, bucket_s)}: {axes.number(sum(amounts.values()))} {unit}",
            link(place),
        )
        for place, (at, amounts) in enumerate(points)
    )
    ticks = tuple(HistogramTick(floor - mark.at * (floor - _TOP), mark.text) for mark in scale.marks)
    return Histogram(columns, ticks, _labels([at for at, _ in points], step, bucket_s))


def _stack(amounts: Mapping[str, float], kinds: Sequence[str], top: float, floor: float) -> tuple[ColumnPart, ...]:
    parts: list[ColumnPart] = []
    y = floor
    for kind in kinds:
        height = amounts.get(kind, 0.0) / top * (floor - _TOP)
        if height > 0:
            # One that failed among thousands must still be visible.
            height = max(height, 1.5)
            y -= height
            parts.append(ColumnPart(kind.lower(), max(y, 0.0), height))
    return tuple(parts)


def _labels(moments: Sequence[str], step: float, bucket_s: float) -> tuple[HistogramLabel, ...]:
    texts = [moment(at, bucket_s) for at in moments]
    labels: list[HistogramLabel] = []
    for place, text in axes.thin(texts, most=_MOST_LABELS).items():
        x = _LEFT + place * step
        if x + len(text) * _LETTER > WIDTH:
            continue
        labels.append(HistogramLabel(x, text, "start"))
    return tuple(labels)


def moment(at: str, bucket_s: float) -> str:
    """Return a moment as exactly as a bucket of this width needs it: `11-18 20:10`."""
    if bucket_s >= 86_400:
        return at[:10]
    if bucket_s >= 60:
        return at[5:16].replace("T", " ")
    return at[11:19]


def address(path: str, query: Mapping[str, str]) -> str:
    """Return a path with a query; the path alone where the query is empty."""
    return f"{path}?{urlencode(query)}" if query else path
