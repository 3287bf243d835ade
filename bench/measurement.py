"""How everything here is measured.

- Contestants of a race are interleaved (A B C A B C), so that a noisy minute hurts all of them alike.
- A sample starts from a fresh store; units that end in its warm-up do not count.
- A ratio is taken within each round and then the median over the rounds: slow drift cancels out.
"""

import gc
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

WARMUP_SHARE = 0.2


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    callers: tuple[int, ...] = (1, 8, 64, 512)
    repeats: int = 5
    seconds: float = 1.0
    backend: str = "all"
    fsync_ms: float = 0.0
    race: str = ""

    def wants(self, backend: str) -> bool:
        """Whether this backend takes part."""
        return self.backend in ("all", backend)

    @property
    def crowd(self) -> int:
        """The callers of a contestant that is measured at one number of them only."""
        return 64 if 64 in self.callers else max(self.callers)

    @property
    def disk(self) -> str:
        """What is said of the disk behind a goal."""
        return f" (+{self.fsync_ms:g} ms)" if self.fsync_ms else ""


class Meter:
    """Collects when each unit became durable; `open` until the time is up."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._stamps: list[float] = []
        self._begin = self._deadline = self._cpu = self._aside = 0.0

    def start(self) -> None:
        """The store is ready, the clock runs."""
        gc.collect()
        self._cpu = time.process_time()
        self._begin = time.perf_counter()
        self._deadline = self._begin + self._seconds * (1 + WARMUP_SHARE)

    def done(self, units: int = 1) -> bool:
        """Count finished units; False when the time is up. Safe from any thread (one append)."""
        now = time.perf_counter() - self._aside
        if units == 1:
            self._stamps.append(now)
        else:
            self._stamps.extend([now] * units)
        return now < self._deadline

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is done within is not measured: it prepares the next unit. For one thread only."""
        begin, cpu = time.perf_counter(), time.process_time()
        yield
        self._aside += time.perf_counter() - begin
        self._cpu += time.process_time() - cpu

    def finish(self) -> "Sample":
        """The rate within the window, and the CPU time of this process per unit."""
        cpu = time.process_time() - self._cpu
        warm = self._begin + self._seconds * WARMUP_SHARE
        return Sample(rate(self._stamps, warm, self._deadline), cpu / max(1, len(self._stamps)) * 1e6)


@dataclass(frozen=True)
class Sample:
    """One contestant in one round: units per second, CPU microseconds per unit."""

    rate: float
    cpu_us: float


def rate(stamps: Iterable[float], warm: float, deadline: float) -> float:
    """Units per second between the first unit that ends after `warm` and the first after `deadline`.

    Both ends of the window lie at the same place of a commit group, so whole groups are counted.
    """
    ordered = sorted(stamps)
    first = bisect_left(ordered, warm)
    last = max(bisect_left(ordered, deadline), first + 1)  # a unit may be longer than the window
    if last >= len(ordered) or ordered[last] <= ordered[first]:
        raise ValueError("too few units ended within the window: measure longer (--seconds)")
    return (last - first) / (ordered[last] - ordered[first])


@dataclass(frozen=True)
class Spread:
    """Median with the smallest and the largest value."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The spread of measured values."""
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True)
class Contestant:
    """A way to do the work: `sample` opens a fresh store, starts the meter, works until it is up, closes."""

    name: str
    callers: int
    sample: Callable[[Meter], None]

    @property
    def label(self) -> str:
        """How results and goals name it."""
        return f"{self.name} @{self.callers}"


@dataclass(frozen=True)
class Race:
    """Contestants for the same work, and those the others are compared with."""

    title: str
    contestants: Sequence[Contestant]
    references: Sequence[str]


@dataclass(frozen=True)
class Result:
    """One contestant over all rounds of its race."""

    race: str
    name: str
    callers: int
    rates: tuple[float, ...]
    cpu_us: float = 0.0
    ratios: dict[str, Spread] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """How goals name it."""
        return f"{self.name} @{self.callers}"

    def over(self, peer: "Result") -> Spread:
        """How many times as fast as the peer, round by round."""
        return Spread.of([mine / theirs for mine, theirs in zip(self.rates, peer.rates, strict=True)])

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON prints it."""
        ratios = {name: vars(ratio) for name, ratio in self.ratios.items()}
        head = {"race": self.race, "contestant": self.name, "callers": self.callers, "label": self.label}
        return {**head, "per_second": vars(Spread.of(self.rates)), "cpu_us": self.cpu_us, "ratios": ratios}


def run_race(race: Race, options: Options) -> list[Result]:
    """Measure every contestant, interleaved; nothing if another race is asked for."""
    if options.race not in race.title:
        return []
    samples: dict[str, list[Sample]] = {contestant.label: [] for contestant in race.contestants}
    for turn in range(options.repeats):
        for contestant in race.contestants:
            progress(f"{race.title}, round {turn + 1} of {options.repeats}: {contestant.label}")
            meter = Meter(options.seconds)
            contestant.sample(meter)
            samples[contestant.label].append(meter.finish())
    progress("")
    return compare(race, samples)


def compare(race: Race, samples: dict[str, list[Sample]]) -> list[Result]:
    """Results with their ratios to the references of the race."""
    plain = {c.label: _result(race, c, samples[c.label]) for c in race.contestants}
    return compare_with(list(plain.values()), race.title, race.references)


def compare_with(results: Sequence[Result], race: str, references: Sequence[str]) -> list[Result]:
    """Those of one race, with their ratios to its references."""
    plain = {result.label: result for result in results if result.race == race}
    known = {label: plain[label] for label in references if label in plain}
    return [
        Result(r.race, r.name, r.callers, r.rates, r.cpu_us, {k: r.over(p) for k, p in known.items()})
        for r in plain.values()
    ]


def _result(race: Race, contestant: Contestant, samples: Sequence[Sample]) -> Result:
    rates = tuple(sample.rate for sample in samples)
    cpu_us = median(sample.cpu_us for sample in samples)
    return Result(race.title, contestant.name, contestant.callers, rates, cpu_us)


def progress(text: str) -> None:
    """One line on the terminal, written over by the next; nothing elsewhere."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()
