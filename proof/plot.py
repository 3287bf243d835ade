"""Lines over time as one SVG, written by hand: a small panel a line, each from zero to a little above its highest."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

_WIDTH: Final = 300
_HEIGHT: Final = 130
_COLUMNS: Final = 3
_SIDE: Final = 12
_TOP: Final = 34
_HEAD: Final = 40
_SPANS: Final = 40

Line = Sequence[tuple[float, float]]


def panels(title: str, lines: Mapping[str, Sequence[Line]]) -> str:
    """Panels in rows; what stands in one panel (a median and its tail) shares its scale."""
    height = _HEAD + _HEIGHT * -(-len(lines) // _COLUMNS)
    parts = [_text(_SIDE, 24, title, 16)]
    for at, (name, drawn) in enumerate(lines.items()):
        left, top = _WIDTH * (at % _COLUMNS), _HEAD + _HEIGHT * (at // _COLUMNS)
        parts.append(f'<g transform="translate({left},{top})">{_panel(name, drawn)}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH * _COLUMNS} {height}" font-family="sans-serif">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _panel(name: str, drawn: Sequence[Line]) -> str:
    top = max((value for line in drawn for _, value in line), default=0.0) * 1.1 or 1.0
    end = max((at for line in drawn for at, _ in line), default=0.0) or 1.0
    floor, width = _HEIGHT - 16, _WIDTH - 2 * _SIDE
    parts = [_text(_SIDE, 14, name), _text(_SIDE, 28, _last(drawn), 10)]
    parts.append(f'<line x1="{_SIDE}" y1="{floor}" x2="{_SIDE + width}" y2="{floor}" stroke="#bbb"/>')
    for line, colour in zip(drawn, ("#1f6feb", "#d29922"), strict=False):
        points = (
            f"{_SIDE + at / end * width:.0f},{floor - value / top * (floor - _TOP):.1f}" for at, value in thin(line)
        )
        parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.2"/>')
    return "".join(parts)


def thin(line: Line, spans: int = _SPANS) -> list[tuple[float, float]]:
    """Reduce a line to the lowest and the highest point of each of `spans` equal spans, in their order.

    A peak of a single sample stays visible, and a drawing that is committed does not grow with the length of a run.
    """
    length = -(-len(line) // spans)
    if length <= 2:
        return list(line)
    points: list[tuple[float, float]] = []
    for start in range(0, len(line), length):
        span = line[start : start + length]
        extremes = {min(span, key=_value), max(span, key=_value)}
        points += sorted(extremes)
    return points


def _value(point: tuple[float, float]) -> float:
    return point[1]


def _last(drawn: Sequence[Line]) -> str:
    """The last values, so that the scale can be read."""
    return " · ".join(f"{line[-1][1]:,.4g}" for line in drawn if line)


def _text(x: float, y: float, words: str, size: int = 12) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}">{escape(words)}</text>'
