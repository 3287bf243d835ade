"""Plots as SVG, written by hand: bars for a race, lines for what grows."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

OURS, OTHERS, GRID = "#1f6feb", "#9aa4b2", "#d0d7de"
_COLOURS: Final = ("#1f6feb", "#bf3989", "#1a7f37", "#9a6700", "#8250df", "#cf222e", "#0a7d91", "#57606a")
_WIDTH: Final = 760

Point = tuple[float, float]


def bars(title: str, rows: Sequence[tuple[str, float, bool]]) -> str:
    """One bar a row of (name, rate, ours), the longest as wide as the plot."""
    left, height, top = 250, 24, 40
    most = max(rate for _, rate, _ in rows)
    parts = [_text(_WIDTH / 2, 22, title, size=15)]
    for at, (name, rate, ours) in enumerate(rows):
        y, wide = top + at * height, max(1.0, rate / most * (_WIDTH - left - 90))
        colour = OURS if ours else OTHERS
        parts.append(_text(left - 8, y + 14, name, anchor="end"))
        parts.append(f'<rect x="{left}" y="{y + 2}" width="{wide:.1f}" height="{height - 8}" fill="{colour}"/>')
        parts.append(_text(left + wide + 6, y + 14, _short(rate), anchor="start"))
    return _svg(top + len(rows) * height + 8, parts)


def lines(
    title: str,
    across: str,
    up: str,
    series: Mapping[str, Sequence[Point]],
    *,
    reach: float | None = None,
) -> str:
    """A line for each of a few series, both axes logarithmic, and what each is called; it reaches up to `reach`."""
    left, right, top, bottom, height = 60, 20, 40, 50, 360
    known = [point for points in series.values() for point in points]
    heights = [y for _, y in known] + ([] if reach is None else [reach])
    xs, ys = [_at(x) for x, _ in known], [_at(y) for y in heights]
    low_x, wide = min(xs), (max(xs) - min(xs)) or 1.0
    low_y = min([*ys, 0.0])
    tall = (max(ys) - low_y) * 1.05 or 1.0

    def place(point: Point) -> Point:
        x = left + (_at(point[0]) - low_x) / wide * (_WIDTH - left - right)
        y = height - bottom - (_at(point[1]) - low_y) / tall * (height - top - bottom)
        return round(x, 1), round(y, 1)

    parts = [_text(_WIDTH / 2, 22, title, size=15), _text(_WIDTH / 2, height - 10, across)]
    parts.append(_text(left, top - 6, up, anchor="start"))
    for tick in _ticks(heights):
        _, y = place((known[0][0], tick))
        parts += [_line(left, y, _WIDTH - right, y), _text(left - 6, y + 4, _short(tick), anchor="end")]
    for tick in _ticks([x for x, _ in known]):
        x, _ = place((tick, known[0][1]))
        parts.append(_text(x, height - bottom + 18, _short(tick)))
    for at, (name, points) in enumerate(series.items()):
        colour = _COLOURS[at % len(_COLOURS)]
        trace = " ".join(f"{x},{y}" for x, y in map(place, points))
        parts.append(f'<polyline points="{trace}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(points) <= 12:
            parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in map(place, points)]
        parts.append(_text(left + 8, height + 14 + at * 18, f"— {name}", anchor="start", colour=colour))
    return _svg(height + 10 + len(series) * 18, parts)


def _at(value: float) -> float:
    return math.log10(max(value, 1e-9))


def _ticks(values: Sequence[float]) -> list[float]:
    """A few round numbers among these values."""
    low, high = min(values), max(values)
    steps = [
        base * 10.0**power for power in range(math.floor(_at(low)), math.ceil(_at(high)) + 1) for base in (1, 2, 5)
    ]
    fine = [step for step in steps if low <= step <= high]
    return fine if len(fine) <= 9 else [step for step in fine if math.log10(step).is_integer()]


def _short(value: float) -> str:
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= limit:
            return f"{value / (1e3 if suffix == 'k' else limit):.3g}{suffix}"
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _svg(height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" font-family="sans-serif">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{GRID}"/>'


def _text(x: float, y: float, words: str, *, size: int = 12, anchor: str = "middle", colour: str = "#1f2328") -> str:
    look = f'font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(words)}</text>'
