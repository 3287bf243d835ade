"""Axes: round numbers and times to write beside a chart, each label once; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Final

_TIMES_S: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600),
    *(7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_592_000, 7_776_000, 31_536_000),
)
_UNITS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_SUFFIXES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class AxisMark:
    """A place on an axis, from 0 to 1, and what is written there."""

    at: float
    text: str


def length(seconds: float) -> str:
    """Return a length of time as a person says it: `2 min 5 s`, `340 ms`."""
    if seconds < 0.0005:
        return "0 ms" if seconds <= 0 else "<1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for number, (size, unit) in enumerate(_UNITS):
        if whole >= size:
            rest = whole % int(size)
            smaller, name = _UNITS[min(number + 1, len(_UNITS) - 1)]
            minor = int(rest // smaller)
            return f"{int(whole // size)} {unit}" + (f" {minor} {name}" if minor and size > 1 else "")
    return f"{whole} s"


def number(value: float) -> str:
    """Return a number as an axis shows it: `1.5 k`, `20`, `0.25`."""
    for size, suffix in _SUFFIXES:
        if abs(value) >= size:
            return f"{value / size:.3g} {suffix}"
    return f"{value:.3g}"


def seconds(total: float, *, most: int = 8) -> tuple[AxisMark, ...]:
    """Return marks at round times since the beginning of a stretch of time."""
    step = next((each for each in _TIMES_S if total / each <= most), total / most)
    marks = [AxisMark(0.0, "0")]
    at = step
    while total > 0 and at <= total * 0.96:
        text = length(at)
        # A label that is there already says nothing about the place it stands at.
        if text != marks[-1].text:
            marks.append(AxisMark(at / total, text))
        at += step
    return tuple(marks)


@dataclass(frozen=True, slots=True)
class AxisScale:
    """An axis of numbers from 0: its marks, and the round number at its top."""

    marks: tuple[AxisMark, ...]
    top: float


def counts(highest: float, *, most: int = 3) -> AxisScale:
    """Return an axis with round numbers, from 0 to at least the highest."""
    if highest <= 0:
        return AxisScale((AxisMark(0.0, "0"), AxisMark(1.0, "1")), 1.0)
    raw = highest / most
    size = 10.0 ** floor(log10(raw))
    step = max(next(size * each for each in (1, 2, 5, 10) if size * each >= raw * 0.999), 1.0 if highest >= 1 else 0.0)
    steps = 1
    while step * steps < highest * 0.999:
        steps += 1
    return AxisScale(tuple(AxisMark(each / steps, number(step * each)) for each in range(steps + 1)), step * steps)


def thin(labels: Sequence[str], *, most: int) -> dict[int, str]:
    """Return at most so many of the labels by their place, evenly spread, each text once."""
    every = max(-(-len(labels) // most), 1)
    chosen: dict[int, str] = {}
    for place in range(0, len(labels), every):
        if labels[place] not in chosen.values():
            chosen[place] = labels[place]
    return chosen
