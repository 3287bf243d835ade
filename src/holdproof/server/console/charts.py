"""Lines of scores and waterfalls of traces, laid out here and drawn by a template; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10
from typing import Final

from holdproof.server.console import axes

WIDTH: Final = 460.0
LEFT: Final = 46.0
_TOP: Final = 10.0
_BOTTOM: Final = 20.0


@dataclass(frozen=True, slots=True)
class Dot:
    """A point of a line, and what it says."""

    x: float
    y: float
    says: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A line across the chart, and its number."""

    y: float
    says: str


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn: a title for screen readers, ticks, and dots."""

    title: str
    height: float
    ticks: tuple[Tick, ...]
    dots: tuple[Dot, ...] = ()
    first: str = ""
    last: str = ""
    width: float = WIDTH
    margin: float = LEFT

    @property
    def path(self) -> str:
        """The dots as one line."""
        return " ".join(f"{dot.x:.1f},{dot.y:.1f}" for dot in self.dots)


def line(title: str, points: Sequence[tuple[str, float]], *, width: float = WIDTH, height: float = 150.0) -> Chart:
    """Values in their order, each with its label, as a line; the axis begins at 0, or below where a value is."""
    # NaN and infinity are valid scores of a record, and have no place on an axis.
    finite = [(label, value) for label, value in points if isfinite(value)]
    low, high = _bounds([value for _, value in finite])
    step = (width - LEFT - 8) / max(len(finite) - 1, 1)
    dots = tuple(
        Dot(LEFT + step * at, _y(value, low, high, height), f"{label}: {value:g}")
        for at, (label, value) in enumerate(finite)
    )
    ends = (finite[0][0], finite[-1][0]) if finite else ("", "")
    return Chart(title, height, _ticks(low, high, height), dots, *ends, width=width)


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    low = min(0.0, *values) if values else 0.0
    high = max(0.0, *values) if values else 1.0
    return (low, high) if low < high else (0.0, 1.0)


def _y(value: float, low: float, high: float, height: float) -> float:
    return _TOP + (height - _TOP - _BOTTOM) * (1 - (value - low) / (high - low))


def _ticks(low: float, high: float, height: float) -> tuple[Tick, ...]:
    return tuple(
        Tick(_y(value, low, high, height), number(value, high - low)) for value in (low, (low + high) / 2, high)
    )


_UNITS: Final = ((1e9, "G"), (1e6, "M"), (1e4, "k"))
"""From ten thousand on a number is told in thousands: beside an axis there is room for six letters."""


def number(value: float, spread: float) -> str:
    """Return a number as an axis tells it: short, and with as many digits as tell it from its neighbours."""
    size = max(abs(value), abs(spread))
    if 0 < spread < 1e-3 and size < 1:
        return f"{value:.2g}"
    least, letter = next(((least, letter) for least, letter in _UNITS if size >= least), (1.0, ""))
    scale = 1e3 if letter == "k" else least
    step = spread / scale / 2
    # The neighbours are half of the spread away: one digit more than that difference has tells them apart.
    decimals = 0 if step <= 0 or step >= 10 else min(max(1 - floor(log10(step)), 0), 4)
    text = f"{value / scale:.{decimals}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}{letter}"


# --- traces ------------------------------------------------------------------------------------------------------

_ROW: Final = 22.0
_NAMES: Final = 220.0


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """Something that took its time: microseconds since 1970, and what it was part of."""

    id: str
    parent: str | None
    name: str
    start: int
    end: int
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Strip:
    """One span of a waterfall, in its row."""

    span: TraceSpan
    x: float
    y: float
    width: float
    indent: float
    says: str


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The spans of a trace below one another, in the order they began, children below their parents."""

    strips: tuple[Strip, ...]
    height: float
    total_s: float
    width: float = 900.0
    names: float = _NAMES
    row: float = _ROW


def waterfall(spans: Sequence[TraceSpan]) -> Waterfall:
    """The spans of one trace as they are drawn."""
    if not spans:
        return Waterfall((), 0.0, 0.0)
    begin = min(each.start for each in spans)
    end = max(each.end for each in spans)
    scale = (900.0 - _NAMES - 70) / max(end - begin, 1)
    strips = tuple(
        Strip(
            each,
            _NAMES + (each.start - begin) * scale,
            number * _ROW,
            # Two pixels at least, or a short span would be invisible.
            max((each.end - each.start) * scale, 2.0),
            min(depth, 8) * 12.0,
            axes.length((each.end - each.start) / 1_000_000),
        )
        for number, (depth, each) in enumerate(_ordered(spans))
    )
    return Waterfall(strips, len(strips) * _ROW + 4, (end - begin) / 1_000_000)


def _ordered(spans: Sequence[TraceSpan]) -> list[tuple[int, TraceSpan]]:
    """Each span after its parent, with its depth; one whose parent is not here is a beginning, a ring too."""
    # Walked with a stack instead of recursion: a trace may be as deep as its sender likes.
    ids = {each.id for each in spans}
    below: dict[str | None, list[TraceSpan]] = {}
    for each in sorted(spans, key=lambda span: (span.start, -span.end)):
        parent = each.parent if each.parent in ids and each.parent != each.id else None
        below.setdefault(parent, []).append(each)
    ordered: list[tuple[int, TraceSpan]] = []
    coming = [(0, each) for each in reversed(below.pop(None, []))]
    while coming:
        depth, each = coming.pop()
        ordered.append((depth, each))
        coming += [(depth + 1, child) for child in reversed(below.pop(each.id, []))]
    # What is left are rings of parents: shown flat, so that no span is missing from the page.
    return ordered + [(0, each) for ring in below.values() for each in ring]
