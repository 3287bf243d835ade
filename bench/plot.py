"""A plot as SVG, written by hand: a median with its spread for each of a few sizes."""

from collections.abc import Sequence
from html import escape

from bench.harness import Spread

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 720, 400, 70, 50, 50


def svg(title: str, axis: str, points: Sequence[tuple[str, Spread]]) -> str:
    """The points from left to right at even distances, over a line at 1."""
    top = max(1.5, *(spread.high for _, spread in points)) * 1.1
    step = (_WIDTH - 2 * _LEFT) / max(1, len(points) - 1)

    def y(value: float) -> float:
        return round(_HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM), 1)

    parts = [_text(_WIDTH / 2, _TOP / 2, title, 16), _text(_WIDTH / 2, _HEIGHT - 8, axis)]
    for tick in (0.0, 0.5, 1.0, 1.5):
        parts += [_line(_LEFT, y(tick), _WIDTH - _LEFT, y(tick), "#bbb"), _text(_LEFT / 2, y(tick) + 4, f"{tick:g}")]
    places = [(round(_LEFT + step * at, 1), label, spread) for at, (label, spread) in enumerate(points)]
    trace = " ".join(f"{x},{y(spread.median)}" for x, _, spread in places)
    parts.append(f'<polyline points="{trace}" fill="none" stroke="#1f6feb" stroke-width="2"/>')
    for x, label, spread in places:
        parts.append(_line(x, y(spread.low), x, y(spread.high), "#1f6feb"))
        parts.append(f'<circle cx="{x}" cy="{y(spread.median)}" r="4" fill="#1f6feb"/>')
        parts += [_text(x, y(spread.high) - 8, f"{spread.median:.2f}"), _text(x, _HEIGHT - _BOTTOM + 18, label)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}"/>'


def _text(x: float, y: float, words: str, size: int = 12) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="middle">{escape(words)}</text>'
