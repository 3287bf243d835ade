"""Several processes on one store: whole decisions in all of them together, and how long the slowest hundredth takes.

`python -m bench.processes HOME URL CALLERS SECONDS NUMBER` is one of the processes: it says `ready`, waits for a line,
and then says how many decisions became durable and how long the slowest hundredth of them took. All begin at the same
moment.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import holdproof
from bench import decision_unit, peers_postgres
from bench.fresh_stores import Place, in_a_folder, on_a_server
from bench.goals import Goal
from bench.measurement import (
    WARMUP_SHARE,
    Options,
    Result,
    TooFewUnitsError,
    compare_with,
    long_enough,
    progress,
    rounds,
)

COUNTS = (1, 2, 4, 8)
_CALLERS = 16
_ROOT = Path(__file__).resolve().parents[1]
_NAME = "holdproof, whole decisions"
RATE, TAIL = "decisions of all processes on {}", "slowest hundredth of decisions on {}"


def run(options: Options) -> list[Result]:
    """Every race that the options ask for."""
    results: list[Result] = []
    if options.wants("sqlite"):
        results += _race("SQLite", in_a_folder, options)
    if options.wants("postgres"):
        with peers_postgres.server() as running:
            results += _race("PostgreSQL", partial(on_a_server, running), options)
    return results


def goals(options: Options) -> list[Goal]:
    """Four processes get as much done as one; eight make nobody wait three times as long, though each has its own."""
    found = []
    for database in ("SQLite", "PostgreSQL"):
        rate, tail = RATE.format(database), TAIL.format(database)
        one, four, eight = (f"{_NAME} @{count}" for count in (1, 4, 8))
        text = f"four processes on {database} get as much done as one{options.disk}"
        found.append(Goal(text, rate, four, one, 1.0, aim=True))
        text = f"with eight processes on {database} the slowest wait at most three times as long{options.disk}"
        found.append(Goal(text, tail, eight, one, 1 / 3, aim=True))
    return found


def _race(database: str, place: Place, options: Options) -> list[Result]:
    """Measure each number of processes, interleaved; the tail is told as its inverse, so that more is better."""
    rate, tail = RATE.format(database), TAIL.format(database)
    if options.race not in rate and options.race not in tail:
        return []
    rates: dict[int, list[float]] = {count: [] for count in COUNTS}
    tails: dict[int, list[float]] = {count: [] for count in COUNTS}
    for turn in rounds(options):
        for count in COUNTS:
            progress(f"{rate}, round {turn + 1} of {options.repeats}: {count} processes")
            done, slowest = long_enough(partial(_sample, place, count), options.seconds)
            rates[count].append(done)
            tails[count].append(1 / slowest)
    progress("")
    results = []
    for title, measured in ((rate, rates), (tail, tails)):
        own = [Result(title, _NAME, count, tuple(values)) for count, values in measured.items()]
        results += options.journal.add(compare_with(own, title, [f"{_NAME} @1"]))
    return results


def _sample(place: Place, count: int, seconds: float) -> tuple[float, float]:
    """Return how many decisions a second all processes made, and how long the slowest hundredth took in the worst."""
    with place() as (home, url), ExitStack() as stack:
        with decision_unit.opened(home, url):
            pass
        processes = [stack.enter_context(worker(home, url, seconds, number)) for number in range(count)]
        for process in processes:
            tell(process)
        answers = [answer(process) for process in processes]
        total = sum(done for done, _ in answers)
        if not total:
            raise TooFewUnitsError("no decision became durable within the window: measure longer (--seconds)")
        return total / seconds, max(slowest for _, slowest in answers)


@contextmanager
def worker(home: str, url: str | None, seconds: float, number: int) -> "Iterator[subprocess.Popen[str]]":
    """Start one of the processes, ready to work once it is told."""
    words = [home, url or "", str(_CALLERS), str(seconds), str(number)]
    command = [sys.executable, "-m", "bench.processes", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as process:
        assert process.stdout is not None, "it was asked for"
        assert process.stdout.readline() == "ready\n", "the process could not open the store"
        yield process


def tell(process: "subprocess.Popen[str]") -> None:
    """Let a process begin."""
    assert process.stdin is not None, "it was asked for"
    process.stdin.write("go\n")
    process.stdin.flush()


def answer(process: "subprocess.Popen[str]") -> tuple[float, float]:
    """Return how many decisions a process made, and how long the slowest hundredth took."""
    assert process.stdout is not None, "it was asked for"
    done, slowest = process.stdout.readline().split()
    return float(done), float(slowest)


# --- one of the processes ------------------------------------------------------------------------------------------


async def _work(store: holdproof.Holdproof, callers: int, seconds: float, number: int) -> list[float]:
    """Decide with so many callers until the time is up; how long each decision took, without those of the warm-up."""
    begin = time.monotonic()
    warm, deadline = begin + seconds * WARMUP_SHARE, begin + seconds * (1 + WARMUP_SHARE)
    times: list[float] = []

    async def caller(place: int) -> None:
        start = time.monotonic()
        while start < deadline:
            await store.write(partial(decision_unit.decide, number=number * callers + place))
            end = time.monotonic()
            if warm <= end < deadline:
                times.append(end - start)
            start = end

    await asyncio.gather(*map(caller, range(callers)))
    return times


async def _main(home: str, url: str, callers: str, seconds: str, number: str) -> None:
    async with holdproof.open(home, url or None) as store:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        times = sorted(await _work(store, int(callers), float(seconds), int(number)))
        print(len(times), times[int(len(times) * 0.99)] if times else float(seconds), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
