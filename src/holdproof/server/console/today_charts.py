"""The charts of an overview, laid out from counts: columns by how flows ended, a strip of hours per agent; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdproof.model.activity import ActivityCount

_WIDTH: Final = 960.0
_HEIGHT: Final = 190.0
_LEFT: Final = 44.0
_TOP: Final = 8.0
_FLOOR: Final = 166.0
_MOST_LABELS: Final = 8
STATES: Final = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a column: its state, and what it says."""

    state: str
    x: float
    y: float
    width: float
    height: float
    says: str


@dataclass(frozen=True, slots=True)
class Label:
    """A word beside an axis."""

    x: float
    y: float
    says: str


@dataclass(frozen=True, slots=True)
class StackedColumns:
    """Counts in buckets of time, stacked by state."""

    title: str
    segments: tuple[Segment, ...]
    ticks: tuple[Label, ...]
    labels: tuple[Label, ...]
    width: float = _WIDTH
    height: float = _HEIGHT
    x: float = _LEFT


def stacked(title: str, buckets: Sequence[str], counts: Mapping[str, ActivityCount]) -> StackedColumns:
    """Lay out one column for each bucket, empty ones included."""
    highest = max((counts[each].ended for each in buckets if each in counts), default=0)
    top = nice_top(highest)
    step = (_WIDTH - _LEFT) / max(len(buckets), 1)
    segments = [
        segment
        for number, bucket in enumerate(buckets)
        if bucket in counts
        for segment in _column(counts[bucket], _LEFT + step * number, step, top)
    ]
    every = -(-len(buckets) // _MOST_LABELS)
    # Centered under their columns, and none so far right that it would be cut off.
    labels = tuple(
        Label(_LEFT + step * (number + 0.5), _HEIGHT - 6, label(bucket))
        for number, bucket in enumerate(buckets)
        if number % every == 0 and _LEFT + step * (number + 0.5) < _WIDTH - 24
    )
    numbers = sorted({0, top // 2, top} if top > 1 else {0, top})
    ticks = tuple(Label(_LEFT - 8, _y(number, top), f"{number:,}") for number in numbers)
    return StackedColumns(title, tuple(segments), ticks, labels)


def nice_top(highest: int) -> int:
    """Return an even number to end an axis with, at least as high as the highest column."""
    if highest <= 2:
        return 2
    for scale in range(12):
        for factor in (2, 4, 6, 8, 10):
            if factor * 10**scale >= highest:
                return int(factor * 10**scale)
    return highest


def _y(value: float, top: int) -> float:
    return _FLOOR - (_FLOOR - _TOP) * value / top


def _column(count: ActivityCount, x: float, step: float, top: int) -> Iterable[Segment]:
    base = 0
    gap = min(step * 0.15, 3.0)
    for state in STATES:
        number = getattr(count, state)
        if number:
            upper = _y(base + number, top)
            height = _y(base, top) - upper
            says = f"{label(count.bucket)}: {number:,} {state}"
            yield Segment(state, x + gap, upper, step - 2 * gap, height, says)
            base += number


def label(bucket: str) -> str:
    """Return a bucket as people say it: `14:00` for an hour, `11-18` for a day."""
    return f"{bucket[11:13]}:00" if len(bucket) > 10 else bucket[5:]


@dataclass(frozen=True, slots=True)
class Cell:
    """One hour of an agent: how much started, from nothing (0) to the most (4), and whether something failed."""

    x: float
    level: str
    says: str


@dataclass(frozen=True, slots=True)
class AgentStrip:
    """The hours of an agent, and its totals."""

    agent_id: str
    cells: tuple[Cell, ...]
    started: int
    ended: int
    failed: int
    escalations: int
    width: float


_CELL: Final = 10.0


def strips(buckets: Sequence[str], counts: Iterable[ActivityCount], most: int) -> list[AgentStrip]:
    """Lay out a strip for each of the busiest agents."""
    by_agent: dict[str, dict[str, ActivityCount]] = {}
    for each in counts:
        by_agent.setdefault(each.agent_id, {})[each.bucket] = each
    busiest = sorted(by_agent, key=lambda name: (-sum(each.started for each in by_agent[name].values()), name))[:most]
    highest = max((each.started for name in busiest for each in by_agent[name].values()), default=0)
    return [_strip(name, by_agent[name], buckets, highest) for name in busiest]


def _strip(agent_id: str, counts: Mapping[str, ActivityCount], buckets: Sequence[str], highest: int) -> AgentStrip:
    cells = tuple(
        Cell(number * _CELL, _level(counts[bucket], highest), _says(counts[bucket]))
        for number, bucket in enumerate(buckets)
        if bucket in counts
    )
    values = counts.values()
    return AgentStrip(
        agent_id,
        cells,
        sum(each.started for each in values),
        sum(each.ended for each in values),
        sum(each.failed for each in values),
        sum(each.escalations for each in values),
        len(buckets) * _CELL,
    )


def _level(count: ActivityCount, highest: int) -> str:
    if count.failed:
        return "hbad"
    # At least the palest of four: what happened at all is seen.
    return f"h{max(1, min(4, -(-4 * count.started // highest)))}" if count.started and highest else "h1"


def _says(count: ActivityCount) -> str:
    text = f"{label(count.bucket)}: {count.started:,} started"
    return f"{text}, {count.failed:,} failed" if count.failed else text
