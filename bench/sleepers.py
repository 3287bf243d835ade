"""Sleeping flows on one SQLite file: how much memory a worker of theirs takes, how fast it wakes them, what kills lose.

`python -m bench.sleepers --flows 1000000` fills a store with flows that sleep, of which `--wakes` are due, and lets a
worker in a process of its own wake those: wake-ups a second, from opening the store until the last of them has ended,
and the most memory that the process had. `--kills 100` then kills workers at random points while they wake `--killed`
other flows, and counts the flows that did not end: lost ones.

A flow is put to sleep by the same functions of a transaction that a worker calls, many flows in one commit; so its
record is the one that it would have, without the hours.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import holdproof
from bench import workload as w
from bench.fresh_stores import in_a_folder
from bench.measurement import Options, Result, compare_with, progress, rounds
from holdproof.db import Tx, sql
from holdproof.model import typed_json
from holdproof.model.times import later
from holdproof.runtime import calls, flows, functions, leases, recorded, steps
from holdproof.runtime.flow_run import OWN
from holdproof.runtime.steps import StepSpec
from holdproof.runtime.suspension import WorkerLease

FLOWS: Final = int(os.environ.get("HOLDPROOF_BENCH_SLEEPERS", "100000"))
WAKES: Final = 10_000
MOST_BYTES: Final = 300_000_000
LEASE_S: Final = 2.0
_A_COMMIT: Final = 500
_CONCURRENCY: Final = 256
_YEAR_S: Final = 365 * 86_400.0
_ROOT: Final = Path(__file__).resolve().parents[1]


# --- putting flows to sleep ------------------------------------------------------------------------------------------


def sleepers(tx: Tx, count: int, *, seconds: float) -> None:
    """Open that many flows which sleep until so many seconds from now."""
    until = later(tx.now, seconds)
    for _ in range(count):
        arguments = calls.arguments_text((until,), {})
        flow = functions.enqueue(tx, w.AGENT, "nap", "1.0", arguments)
        lease = leases.try_lease(tx, flow.flow_id, "bench", LEASE_S, flow.ns)
        assert lease is not None, "nobody else has it"
        flows.transition(tx, flow.flow_id, "RUNNING", ns=flow.ns)
        result = recorded.store(tx, recorded.dump(typed_json.encode(until)), None)
        columns = {"state": "DONE", "result": result, "finished_at": tx.now}
        steps.add(tx, WorkerLease(flow.flow_id, lease.token, worker="bench"), StepSpec(f"{OWN}sleep", 1, 1), columns)
        leases.suspend(tx, flow.flow_id, lease.token, due=until, ns=flow.ns)


def fill(home: str, count: int, *, seconds: float) -> None:
    """Add flows to a store that sleep for so many seconds."""
    with holdproof.sync.open(home) as store:
        if store.agents.list(limit=1).items == []:
            store.agents.register(w.AGENT, version="1")
        for done in range(0, count, _A_COMMIT):
            progress(f"{done:,} of {count:,} flows sleep")
            some = min(_A_COMMIT, count - done)
            store.write(lambda tx, some=some: sleepers(tx, some, seconds=seconds))  # type: ignore[misc]
    progress("")


# --- the worker, in a process of its own -----------------------------------------------------------------------------


async def wake(home: str, wakes: int) -> None:
    """Wake that many flows, and say how long that took and how much memory; before that, `woken` after the first."""
    begin = time.perf_counter()
    woken = 0
    all_woken = asyncio.Event()
    async with holdproof.open(home) as store:

        @store.flow(agent=w.AGENT, lease_s=LEASE_S)
        async def nap(flow: holdproof.OpenFlow, until: str) -> None:
            nonlocal woken
            await flow.sleep_until(until)
            woken += 1
            if woken == 1:
                print("woken", flush=True)
            if woken >= wakes:
                all_woken.set()

        async with store.worker(concurrency=_CONCURRENCY):
            await all_woken.wait()
    seconds = time.perf_counter() - begin
    usage = resource.getrusage(resource.RUSAGE_SELF)
    report = {"seconds": seconds, "cpu_seconds": usage.ru_utime + usage.ru_stime, "bytes": usage.ru_maxrss * 1024}
    print(json.dumps(report), flush=True)


@contextmanager
def waking(home: str, wakes: int) -> Iterator["subprocess.Popen[str]"]:
    """A process that wakes flows; dead when the block is left."""
    command = [sys.executable, "-m", "bench.sleepers", "--home", home, "--wakes", str(wakes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def measured(home: str, wakes: int) -> dict[str, float]:
    """Let a process wake flows, and return its seconds and its bytes."""
    with waking(home, wakes) as process:
        assert process.stdout is not None, "it was asked for"
        *_, last = process.stdout
    report: dict[str, float] = json.loads(last)
    return report


# --- kills -----------------------------------------------------------------------------------------------------------

_OPEN = sql("SELECT count(*) FROM decision_flows WHERE status <> 'COMPLETED'")


def lost(home: str, kills: int, flows: int) -> tuple[int, int]:
    """Kill workers while they wake flows; return how many flows did not complete, and how many kills there were."""
    chance = random.Random(kills)
    fill(home, flows, seconds=0)
    done = 0
    with holdproof.sync.open(home) as store:
        while done < kills and store.read(_left) > 0:
            progress(f"{done} kills, {store.read(_left):,} flows sleep")
            with waking(home, flows + 1) as process:
                assert process.stdout is not None, "it was asked for"
                # Only one that works can be killed at work; where all others are leased, that is when those leases end.
                process.stdout.readline()
                time.sleep(chance.uniform(0, 0.05))
            done += 1
        left = store.read(_left)
        if left:
            with waking(home, flows + 1):
                _wait_while_they_become_fewer(store)
        progress("")
        return store.read(_left), done


def _left(tx: Tx) -> int:
    (count,) = tx.one(_OPEN) or (0,)
    return int(count)


def _wait_while_they_become_fewer(store: holdproof.sync.Holdproof) -> None:
    left = store.read(_left)
    moved_at = time.monotonic()
    while left > 0 and time.monotonic() < moved_at + 60:
        time.sleep(0.2)
        fewer = store.read(_left)
        if fewer < left:
            left = fewer
            moved_at = time.monotonic()


# --- as a race of the benchmark --------------------------------------------------------------------------------------


ALLOWED: Final = "300 MB"


def wakes_race() -> str:
    """The race for wake-ups a second."""
    return f"wake-ups among {FLOWS:,} sleeping flows on SQLite"


def memory_race() -> str:
    """The race for memory; results are workers in a gigabyte, so that more is better."""
    return f"workers of {FLOWS:,} sleeping flows in a gigabyte of memory"


def run(options: Options) -> list[Result]:
    """One store that is filled once; each round wakes as many flows."""
    speed, memory = wakes_race(), memory_race()
    if options.race not in speed and options.race not in memory:
        return []
    wakes = min(WAKES, FLOWS // 10)
    with in_a_folder() as (home, _):
        fill(home, FLOWS, seconds=_YEAR_S)
        reports = []
        for turn in rounds(options):
            fill(home, wakes, seconds=0)
            progress(f"{speed}, round {turn + 1} of {options.repeats}")
            reports.append(measured(home, wakes))
    progress("")
    speeds = [Result(speed, "holdproof", 1, tuple(wakes / report["seconds"] for report in reports))]
    sizes = [
        Result(memory, "holdproof", 1, tuple(1e9 / report["bytes"] for report in reports)),
        Result(memory, ALLOWED, 1, tuple(1e9 / MOST_BYTES for _ in reports)),
    ]
    return options.journal.add([*speeds, *compare_with(sizes, memory, [f"{ALLOWED} @1"])])


# --- as a program ----------------------------------------------------------------------------------------------------


def main() -> None:
    """Fill, measure, kill, and print what was found."""
    parse = argparse.ArgumentParser("python -m bench.sleepers", description=(__doc__ or "").splitlines()[0])
    parse.add_argument("--flows", type=int, default=FLOWS, metavar="N", help="flows that sleep")
    parse.add_argument("--wakes", type=int, default=WAKES, metavar="N", help="flows that are due")
    parse.add_argument("--kills", type=int, default=0, metavar="N", help="workers that are killed")
    parse.add_argument("--killed", type=int, default=20_000, metavar="N", help="flows that are due meanwhile")
    parse.add_argument("--home", help="only wake flows of this store: the process that is measured, or killed")
    options = parse.parse_args()
    if options.home is not None:
        asyncio.run(wake(options.home, options.wakes))
        return
    found: dict[str, Any] = {"flows": options.flows, "wakes": options.wakes}
    with in_a_folder() as (home, _):
        begin = time.perf_counter()
        fill(home, options.flows, seconds=_YEAR_S)
        found["flows_made_per_second"] = options.flows / max(0.001, time.perf_counter() - begin)
        found["bytes_per_flow"] = sum(file.stat().st_size for file in Path(home).rglob("*")) / max(1, options.flows)
        fill(home, options.wakes, seconds=0)
        report = measured(home, options.wakes)
        found["wakes_per_second"] = options.wakes / report["seconds"]
        # What a machine that nobody else uses would reach at least, where wall-clock time says little.
        found["wakes_per_cpu_second"] = options.wakes / report["cpu_seconds"]
        found["worker_bytes"] = report["bytes"]
    if options.kills:
        with in_a_folder() as (home, _):
            found["lost"], found["kills"] = lost(home, options.kills, options.killed)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
