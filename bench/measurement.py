"""How everything here is measured.

- Contestants of a race are interleaved (A B C A B C), so that a noisy minute hurts all of them alike.
- A sample starts from a fresh store; units that end in its warm-up do not count.
- A ratio is taken within each round and then the median over the rounds: slow drift cancels out.
- A contestant that fails leaves its race, and the others go on (journal.py).
- Where the time of the run is limited (`until`) a race has its first round whatever that takes, and others while they
  fit into a quarter of the time that is left: what comes later has its turn too.
"""

import gc
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any, Final, TypeVar

from bench.journal import Journal

T = TypeVar("T")

WARMUP_SHARE = 0.2
_SHARE: Final = 0.25
"""The part of the time that is left which one race may take for further rounds."""
_STRETCHES: Final = (1, 4, 16)
"""How much longer a sample is measured where too few units ended within it."""


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    callers: tuple[int, ...] = (1, 8, 64, 512)
    repeats: int = 5
    seconds: float = 1.0
    backend: str = "all"
    fsync_ms: float = 0.0
    race: str = ""
    until: float | None = None
    """When the run should have ended, by the monotonic clock; None where it may take its time."""
    journal: Journal = field(default_factory=Journal, repr=False, compare=False)

    def facts(self) -> dict[str, Any]:
        """What was asked for, as JSON prints it."""
        names = ("callers", "repeats", "seconds", "backend", "fsync_ms", "race")
        return {name: getattr(self, name) for name in names}

    def with_journal(self, journal: Journal) -> "Options":
        """Return the same options, whose results go into that journal."""
        return replace(self, journal=journal)

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


class TooFewUnitsError(ValueError):
    """A sample was too short to tell a rate."""


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
        raise TooFewUnitsError("too few units ended within the window: measure longer (--seconds)")
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
        rates = {"per_second": vars(Spread.of(self.rates)), "cpu_us": self.cpu_us, "ratios": ratios}
        return {**head, **rates, "repeats": len(self.rates)}


def rounds(options: Options) -> Iterator[int]:
    """Yield the numbers of a race's rounds, from 0: as many as were asked for, fewer where time is short."""
    begin = time.monotonic()
    for turn in range(options.repeats):
        if turn and options.until is not None:
            took = time.monotonic() - begin
            if took / turn * (turn + 1) > (options.until - begin) * _SHARE:
                return
        yield turn


def run_race(race: Race, options: Options) -> list[Result]:
    """Measure every contestant, interleaved; nothing if another race is asked for."""
    if options.race not in race.title:
        return []
    samples: dict[str, list[Sample]] = {contestant.label: [] for contestant in race.contestants}
    racing = [*race.contestants]
    for turn in rounds(options):
        for contestant in [*racing]:
            progress(f"{race.title}, round {turn + 1} of {options.repeats}: {contestant.label}")
            # Taken out by failing: a ratio needs as many rounds of both.
            racing.remove(contestant)
            with options.journal.attempt(f"{contestant.label} in {race.title}"):
                samples[contestant.label].append(long_enough(partial(_sample, contestant), options.seconds))
                racing.append(contestant)
    progress("")
    return options.journal.add(compare(replace(race, contestants=racing), samples))


def long_enough(measure: Callable[[float], T], seconds: float) -> T:
    """Return what `measure` gives for so many seconds, or for more of them where they are too short for it."""
    *shorter, longest = _STRETCHES
    for stretch in shorter:
        try:
            return measure(seconds * stretch)
        except TooFewUnitsError:
            progress("too few units: measured longer")
    return measure(seconds * longest)


def _sample(contestant: Contestant, seconds: float) -> Sample:
    """Measure a contestant once."""
    meter = Meter(seconds)
    contestant.sample(meter)
    return meter.finish()


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
