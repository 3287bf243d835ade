"""Recovery: flows that a killed process left between two steps, and how soon another process has finished them all.

`python -m bench.flow_recovery KIND FLOWS HOME [URL]` is the process that is killed: it says `ready` when each of its
flows has its first step on record. The clock runs from before the other process opens the database until the last flow
has its second step on record. Leases of ours that the killed process had are waited for first: how long they are is a
setting, not a speed. HOLDPROOF_BENCH_ORPHANS is the number of flows.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from bench.engines import Engine, Step, Workflow, by_kind
from bench.fresh_stores import Where
from bench.measurement import Options, Result, compare_with, progress, rounds

FLOWS: Final = int(os.environ.get("HOLDPROOF_BENCH_ORPHANS", "10000"))
_LEASE_S: Final = 1.0
_READY: Final = "ready"
_ROOT: Final = Path(__file__).resolve().parents[1]

Hook = Callable[[], Awaitable[None]]


async def first(number: int) -> int:
    """What is on record when the process is killed."""
    return number


async def second(number: int) -> int:
    """What is left to do."""
    return number


async def _go_on() -> None:
    """Between two steps there is nothing to do."""


def two_steps(*, between: Hook = _go_on, after: Hook = _go_on) -> Workflow:
    """A workflow of two steps, and what is done when each of them is on record."""

    async def interrupted(step: Step, number: int) -> None:
        await step(first, number)
        await between()
        await step(second, number)
        await after()

    return interrupted


# --- the process that is killed ------------------------------------------------------------------------------------


async def be_killed(kind: str, flows: int, where: Where) -> None:
    """Bring so many flows between their two steps, say so, and wait to be killed."""
    waiting = 0

    async def between() -> None:
        nonlocal waiting
        waiting += 1
        if waiting == flows:
            print(_READY, flush=True)
        await asyncio.Event().wait()

    async with by_kind(kind, _LEASE_S).open(where, two_steps(between=between)) as session:
        await asyncio.gather(*(session.call(number) for number in range(flows)))


def leave_behind(kind: str, flows: int, where: Where) -> None:
    """Have a process killed that has so many flows between their two steps."""
    home, url = where
    command = [sys.executable, "-m", "bench.flow_recovery", kind, str(flows), home, *([url] if url else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as process:
        assert process.stdout is not None, "it was asked for"
        try:
            # Everything else that a peer prints to the terminal comes before.
            if not any(line.strip() == _READY for line in process.stdout):
                raise RuntimeError(f"the process of {kind} ended before its flows were ready")
        finally:
            process.send_signal(signal.SIGKILL)


# --- the process that finishes its flows ----------------------------------------------------------------------------


async def finish(engine: Engine, flows: int, where: Where) -> float:
    """Seconds until all flows have their second step on record."""
    ends: list[float] = []
    loop = asyncio.get_running_loop()
    all_ended = asyncio.Event()

    async def after() -> None:
        # An engine may run its workflows on a loop of its own: one append is safe from any thread.
        ends.append(time.perf_counter())
        if len(ends) >= flows:
            loop.call_soon_threadsafe(all_ended.set)

    begin = time.perf_counter()
    async with engine.open(where, two_steps(after=after)) as session:
        await session.recover()
        await all_ended.wait()
    return max(ends) - begin


def race(database: str) -> str:
    """The race for flows recovered a second."""
    return f"recovery of {FLOWS:,} flows on {database}"


def run(database: str, engines: Sequence[Engine], options: Options) -> list[Result]:
    """Each engine recovers once a round, in a database of its own."""
    title = race(database)
    if options.race not in title:
        return []
    rates: dict[str, list[float]] = {engine.name: [] for engine in engines}
    for turn in rounds(options):
        for engine in engines:
            progress(f"{title}, round {turn + 1} of {options.repeats}: {engine.name}")
            with engine.place() as where:
                leave_behind(engine.kind, FLOWS, where)
                time.sleep(2 * _LEASE_S if engine.lease_s else 0)
                rates[engine.name].append(FLOWS / asyncio.run(finish(engine, FLOWS, where)))
    progress("")
    results = [Result(title, name, 1, tuple(values)) for name, values in rates.items()]
    peers = [f"{engine.name} @1" for engine in engines if engine.kind == "dbos"]
    return options.journal.add(compare_with(results, title, peers))


if __name__ == "__main__":
    _, engine_kind, count, folder, *address = sys.argv
    asyncio.run(be_killed(engine_kind, int(count), (folder, address[0] if address else None)))
