"""How a number grew over time: steps from 0, on a true axis of time; laid out here, pure.

Between two measurements the number stands still: a slope would tell of moments that nobody looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from holdproof.server.console import axes, histogram

WIDTH: Final = 480.0
HEIGHT: Final = 150.0
LEFT: Final = 48.0
_RIGHT: Final = WIDTH - 4.0
"""Where the newest measurement is at most, so that its dot is not cut in half."""
_TOP: Final = 10.0
_FLOOR: Final = HEIGHT - 22.0
_MOST_LABELS: Final = 4
_MOST_DOTS: Final = 60
_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class GrowthDot:
    """One measurement."""

    x: float
    y: float
    says: str


@dataclass(frozen=True, slots=True)
class GrowthChart:
    """What is drawn."""

    title: str
    line: str
    area: str
    dots: tuple[GrowthDot, ...]
    ticks: tuple[histogram.HistogramTick, ...]
    labels: tuple[histogram.HistogramLabel, ...]
    says: str
    left_edge: float = LEFT
    width: float = WIDTH
    height: float = HEIGHT


def lay_out(title: str, points: Sequence[tuple[str, float]], *, begin: str, end: str, unit: str) -> GrowthChart | None:
    """Return the chart of measurements, which come oldest first; None where there is none."""
    if not points:
        return None
    start = _seconds(begin)
    span = max(_seconds(end) - start, 1.0)
    scale = axes.counts(max(value for _, value in points))
    places = [
        (
            LEFT + min(max((_seconds(at) - start) / span, 0.0), 1.0) * (_RIGHT - LEFT),
            _FLOOR - value / scale.top * (_FLOOR - _TOP),
        )
        for at, value in points
    ]
    line = _steps(places)
    # Many dots would cover the line: the line alone then tells as much.
    marks = zip(points, places, strict=True) if len(points) <= _MOST_DOTS else ()
    return GrowthChart(
        title,
        line,
        f"{line}V{_FLOOR:.1f}H{places[0][0]:.1f}Z",
        tuple(GrowthDot(x, y, f"{_exactly(at)}: {value:,.10g} {unit}") for (at, value), (x, y) in marks),
        tuple(histogram.HistogramTick(_FLOOR - mark.at * (_FLOOR - _TOP), mark.text) for mark in scale.marks),
        _labels(start, span),
        f"{title}: from {points[0][1]:,.10g} to {points[-1][1]:,.10g} {unit}",
    )


def _steps(places: Sequence[tuple[float, float]]) -> str:
    x, y = places[0]
    return "".join([f"M{x:.1f} {y:.1f}", *(f"H{x:.1f}V{y:.1f}" for x, y in places[1:]), f"H{_RIGHT:.1f}"])


def _labels(start: float, span: float) -> tuple[histogram.HistogramLabel, ...]:
    step = span / _MOST_LABELS
    times = [datetime.fromtimestamp(start + place * step, tz=UTC).isoformat() for place in range(_MOST_LABELS)]
    texts = [_label(each, step, span) for each in times]
    return tuple(
        histogram.HistogramLabel(LEFT + place * (_RIGHT - LEFT) / _MOST_LABELS, text, "start")
        for place, text in axes.thin(texts, most=_MOST_LABELS).items()
    )


def _label(at: str, step: float, span: float) -> str:
    # Days are told by their date, moments of one day by their time.
    if step >= _DAY_S:
        return at[5:10]
    return at[11:16] if span <= _DAY_S else f"{at[5:10]} {at[11:13]}h"


def _exactly(at: str) -> str:
    return f"{at[:16].replace('T', ' ')} UTC"


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()
