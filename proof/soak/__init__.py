"""Soak: a store under mixed load for half an hour, with retention at work; memory, files and times stay flat.

Workers do what agents and services do (load.py), at an even pace, so that a busy machine changes times and not how much
is written; upkeep lets go what has had its time. Every few seconds everything is measured (meter.py). At the end each
line is judged (flat.py) and drawn into docs/internals/figures/soak.svg, and the store must verify in full.

What a log keeps for good cannot be flat: there the bytes of one leaf are.
"""

import argparse
import math
import random
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, Final

from proof import plot
from proof.report import FIGURES, Proof, Say
from proof.soak import flat
from proof.soak.load import Load, opened
from proof.soak.meter import MACHINE, Meter, Sample, Series

CLAIM: Final = "Memory, open files, write-ahead logs, files and times of a store in use do not grow."
_ROWS: Final = 60


def arguments(parser: argparse._ArgumentGroup) -> None:
    """The options of this proof."""
    parser.add_argument("--minutes", type=float, default=30.0, metavar="N", help="how long (default 30)")
    parser.add_argument("--every", type=float, default=5.0, metavar="S", help="seconds between samples (default 5)")
    parser.add_argument("--rate", type=float, default=20.0, metavar="N", help="acts a second (default 20)")
    parser.add_argument("--workers", type=int, default=3, metavar="N", help="threads that act (default 3)")


def run(given: argparse.Namespace, say: Say) -> Proof:
    """Load a new store for that long, and judge it."""
    with tempfile.TemporaryDirectory(prefix="holdproof-soak-") as folder, opened(Path(folder, "home")) as load:
        meter = Meter(load.store)
        samples, failures = _live(given, load, meter, say)
        meter.close()
        report = load.store.verify.run(full=True)
    FIGURES.mkdir(parents=True, exist_ok=True)
    (FIGURES / "soak.svg").write_text(draw(samples))
    lines, machine = samples.lines[1:], samples.values(MACHINE)
    judged = (flat.judge(line, samples.values(line), machine) for line in lines)
    broken = [found for found in judged if found is not None]
    broken += failures if report.ok else [*failures, f"verify says {report.verdict.word} at the end"]
    counts = {
        "minutes": round(max(samples.values("at_s"), default=0) / 60),
        "samples": len(samples),
        "acts": sum(meter.counts[name] for name in load.acts),
        "rounds of upkeep": meter.counts["sweep"],
        "leaves in the log": int(max(samples.values("leaves"), default=0)),
        "lines judged": sum(flat.rule(line) is not None for line in lines),
        "lines not flat": sum("not flat" in line for line in broken),
        "acts that failed": len(failures),
    }
    return Proof("soak", CLAIM, given.seed, counts, tuple(broken), tuple(summary(_thinned(samples))))


def _live(given: argparse.Namespace, load: Load, meter: Meter, say: Say) -> tuple[Series, list[str]]:
    """Work, tend and measure until the time is over."""
    over, failures, samples = threading.Event(), list[str](), Series()
    began = time.monotonic()

    def guarded(name: str, work: Callable[[], None]) -> threading.Thread:
        def go() -> None:
            try:
                work()
            except Exception as error:
                failures.append(f"{name}: {type(error).__name__}: {error} (seed {given.seed})")
                over.set()

        return threading.Thread(target=go, name=name)

    gap = given.workers / given.rate
    threads = [
        guarded(f"worker {n}", lambda n=n: _work(load, meter, random.Random(f"{given.seed} {n}"), gap, over))  # type: ignore[misc]
        for n in range(given.workers)
    ]
    threads.append(guarded("upkeep", lambda: _tend(load, meter, over)))
    for thread in threads:
        thread.start()
    while not over.wait(given.every) and time.monotonic() - began < 60 * given.minutes:
        samples.add(sample := meter.sample(time.monotonic() - began))
        if len(samples) % 12 == 0:
            say(_told(sample))
    over.set()
    for thread in threads:
        thread.join()
    return samples, failures


def _work(load: Load, meter: Meter, rng: random.Random, gap: float, over: threading.Event) -> None:
    """Act after act, one every `gap` seconds; who is late does not hurry."""
    names, weights = list(load.acts), [weight for _, weight in load.acts.values()]
    due = time.monotonic()
    while not over.wait(max(0.0, due - time.monotonic())):
        [name] = rng.choices(names, weights)
        began = time.perf_counter()
        load.acts[name][0](rng)
        meter.note(name, time.perf_counter() - began)
        due = max(due + gap, time.monotonic() - 1)


def _tend(load: Load, meter: Meter, over: threading.Event) -> None:
    while not over.wait(5):
        load.upkeep(meter.note)


def draw(samples: Series) -> str:
    """Every line over time; the median and the tail of a time in one panel."""
    drawn: dict[str, list[list[tuple[float, float]]]] = {}
    for line in samples.lines[1:]:
        panel = line.replace(" p50 ms", ", ms (p50, p99)").replace(" p99 ms", ", ms (p50, p99)")
        drawn.setdefault(panel, []).append(samples.points(line))
    return plot.panels("A store in use: one panel a line, time from left to right, each from zero", drawn)


def _thinned(samples: Series) -> list[dict[str, Any]]:
    """At most so many rows, each the median of its neighbours, all with the same keys."""
    return [{line: _middle(group, line) for line in samples.lines} for group in samples.groups(_ROWS)]


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each line that is judged: where its middle third lies, and its last."""
    found = []
    for line in rows[0] if rows else ():
        values, allowed = [row[line] for row in rows if row[line] is not None], flat.rule(line)
        if allowed is not None and len(values) >= flat.LEAST:
            middle, last = flat.levels(values, allowed)
            found.append({"line": line, "middle third": _figure(middle), "last third": _figure(last)})
    return found


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _middle(group: Sequence[Sample], line: str) -> float | None:
    found = [sample[line] for sample in group if not math.isnan(sample.get(line, math.nan))]
    return round(median(found), 3) if found else None


def _told(sample: Sample) -> str:
    shown = ("memory MB", "open files", "threads", "kernel.db MB", "kernel, what may go MB", "write-ahead logs MB")
    with suppress(KeyError):
        return f"{sample['at_s'] / 60:5.1f} min  " + "  ".join(f"{name} {sample[name]:g}" for name in shown)
    return ""
