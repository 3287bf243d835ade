"""Whether a line is flat: its last third beside the third before it; the first third is for warming up.

Medians, because a neighbour on the machine, a checkpoint or an image makes single samples high. Of times the lower
quartile, what an act takes when nobody is in its way, beside what a bare row took on the same disk. Flat is no more
than a share above, and a little besides, below which nothing is told apart from noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Final

LEAST: Final = 9
"""With fewer samples there is nothing to compare."""


@dataclass(frozen=True, slots=True)
class Flat:
    """How much the last third may lie above the middle one: a share of it, and so much besides."""

    share: float
    besides: float
    quiet: bool = False
    """Compare the lower quartiles instead of the medians."""


LINES: Final[Mapping[str, Flat]] = {
    "memory MB": Flat(0.03, 3.0),
    "Python blocks": Flat(0.02, 5_000),
    "open files": Flat(0, 2),
    "threads": Flat(0, 1),
    "kernel, what may go MB": Flat(0.10, 0.3),
    "kernel, bytes a leaf kept for good": Flat(0.05, 5),
    "membrane.db MB": Flat(0.10, 0.2),
    "telemetry.db MB": Flat(0.10, 0.3),
    "write-ahead logs MB": Flat(0.10, 1.0),
    "blobs MB": Flat(0.10, 0.3),
    "images MB": Flat(0.25, 0.5),
    "image files": Flat(0.25, 2),
    "cache MB": Flat(0.10, 0.3),
    "CPU ms an act, upkeep and all": Flat(0.25, 1.0),
    "heads MB": Flat(0, 0.6),  # it grows to half a megabyte, and is thinned then
}
MEDIAN_TIME: Final = Flat(0.5, 1.0, quiet=True)
TAIL_TIME: Final = Flat(2.0, 10.0, quiet=True)


def rule(line: str) -> Flat | None:
    """How a line is judged; None for one that may rise."""
    if line.endswith("p50 ms"):
        return MEDIAN_TIME
    return TAIL_TIME if line.endswith("p99 ms") else LINES.get(line)


def judge(line: str, values: Sequence[float], machine: Sequence[float] = ()) -> str | None:
    """What is wrong with a line; None if it is flat, or too short to say, or may rise.

    A time may rise as much as what the machine itself (`machine`) took for the same thing all along.
    """
    allowed = rule(line)
    if allowed is None or len(values) < LEAST:
        return None
    middle, last = levels(values, allowed)
    slower = 1.0
    if allowed.quiet and len(machine) >= LEAST:
        before, after = levels(machine, allowed)
        slower = max(1.0, after / before)
    if last <= middle * (1 + allowed.share) * slower + allowed.besides:
        return None
    return f"{line} is not flat: {middle:g} in the middle third, {last:g} in the last"


def levels(values: Sequence[float], allowed: Flat) -> tuple[float, float]:
    """Where the middle third lies, and the last."""
    third = len(values) // 3
    level = (lambda part: quantiles(part, n=4)[0]) if allowed.quiet else median
    return level(values[-2 * third : -third]), level(values[-third:])
