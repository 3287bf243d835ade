"""Pages of the console on a store with a past: how many a second, beside the same pages of a store with 1,000 flows.

`python -m bench.console --flows 100000` prints, for each page, the milliseconds of server time (CPU) and the bytes that
are sent, beside their budgets, and ends with 1 where one is beyond it. The store has that many flows, a second apart,
and two hundred escalations that wait; the server stands in this process, so that no network is counted.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import httpx

import holdproof
from bench import growth
from bench import workload as w
from bench.goals import Goal
from bench.measurement import Contestant, Meter, Options, Race, Result, progress, run_race
from holdproof import sync
from holdproof.server import ServerSettings, create_app
from holdproof.server.console import part
from holdproof.testing import FrozenClock

PAGES: Final = (
    "/today?range=24h",
    "/today?range=7d",
    "/today?range=30d",
    "/inbox",
    "/inbox/decided",
    "/escalations",
    "/flows",
    "/flows?range=all",
    "/flows?status=FAILED_OR_COMPENSATED&range=all",
    "/flows?trouble=ORPHANED&range=all",
    "/agents",
    "/queues",
    "/locks",
    "/calls?state=UNKNOWN",
    "/ledger",
    "/memory",
    "/threads",
    "/telemetry",
    "/cost",
    "/evidence",
    "/evidence/proof?entry=40",
    "/evaluations",
    "/policies",
    "/health",
    "/access",
    "/search?q=0194",
)
MOST_MS, MOST_KB = 100.0, 60.0
_FIRST: Final = 1_735_689_600
"""When the first flow of the past began (growth.py)."""
_SMALL, _LARGE = 1_000, 100_000
_WAITING: Final = 200
_TIMES: Final = 7
TITLE: Final = "pages of the console"


class Measured(NamedTuple):
    """What a page costs."""

    path: str
    ms: float
    kilobytes: float

    @property
    def within(self) -> bool:
        """Whether it keeps its budgets."""
        return self.ms <= MOST_MS and self.kilobytes <= MOST_KB


def run(options: Options) -> list[Result]:
    """Every page in turn, on a small store and on a large one."""
    if not options.wants("sqlite"):
        return []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        contestants = [_contestant(Path(folder, str(flows)), flows) for flows in (_SMALL, _LARGE)]
        return run_race(Race(TITLE, contestants, (contestants[0].label,)), options)


def goals(options: Options) -> list[Goal]:
    """What must be reached: a hundred times the flows make no page twice as slow."""
    del options
    large, small = (f"{growth.name(flows)} @1" for flows in (_LARGE, _SMALL))
    return [Goal("100,000 flows: half the pages a second of 1,000 flows", TITLE, large, small, 0.5)]


def _contestant(home: Path, flows: int) -> Contestant:
    clock = filled(home, flows)

    def sample(meter: Meter) -> None:
        asyncio.run(_sampled(home, clock, meter))

    return Contestant(growth.name(flows), 1, sample)


async def _sampled(home: Path, clock: FrozenClock, meter: Meter) -> None:
    async with holdproof.open(home, clock=clock) as store:
        client = await _client(store)
        meter.start()
        while True:
            for path in PAGES:
                (await client.get(path)).raise_for_status()
            if not meter.done(len(PAGES)):
                return


def filled(home: Path, flows: int, url: str | None = None) -> FrozenClock:
    """Make a store with a past, count it by hours, and stand a minute after its end; return the clock."""
    growth.fill(str(home), flows, url)
    clock = FrozenClock()
    clock.micros = (_FIRST + flows + 60) * 1_000_000
    with sync.open(home, url, clock=clock) as store:
        for number in range(_WAITING):
            flow_id = store.flows.start(w.AGENT, flow_type="refund").flow_id
            store.flows.transition(flow_id, "RUNNING")
            proposal = {"amount": 100 + number, "note": f"refund number {number}, for a chair that broke"}
            store.escalations.request(
                flow_id, reason=f"Refund of {100 + number} EUR", proposal=proposal, deadline_s=86_400.0 + number
            )
        clock.advance(120)
        progress("counting by the hour")
        store.sweep.run()
    return clock


async def _client(store: holdproof.Holdproof) -> httpx.AsyncClient:
    app = create_app(store, ServerSettings(hosts=frozenset(), rate_s=0), parts=[part])
    token = (await store.tokens.create(f"bench {time.perf_counter_ns()}", role="operator")).secret
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/html", "Accept-Encoding": "gzip"}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://console", headers=headers)


async def measure(home: Path, clock: FrozenClock) -> list[Measured]:
    """Measure every page: the median of its CPU time, and the bytes of its body as they are sent."""
    async with holdproof.open(home, clock=clock) as store:
        client = await _client(store)
        return [await _measured(client, path) for path in PAGES]


async def _measured(client: httpx.AsyncClient, path: str) -> Measured:
    times = []
    size = 0
    for _ in range(_TIMES):
        begun = time.process_time()
        answer = await client.get(path)
        times.append(time.process_time() - begun)
        answer.raise_for_status()
        size = int(answer.headers["content-length"])
    return Measured(path, median(times) * 1000, size / 1024)


@contextmanager
def _store(flows: int) -> Iterator[tuple[Path, FrozenClock]]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        home = Path(folder, "store")
        yield home, filled(home, flows)


def main() -> int:
    """Measure all pages and judge them by their budgets; return the exit code."""
    parse = argparse.ArgumentParser("python -m bench.console")
    parse.add_argument("--flows", type=int, default=_LARGE)
    with _store(parse.parse_args().flows) as (home, clock):
        pages = asyncio.run(measure(home, clock))
    print(f"{'page':45} {'ms':>7} of {MOST_MS:g}   {'KiB':>6} of {MOST_KB:g}")
    for each in pages:
        print(f"{each.path:45} {each.ms:7.1f} {'':7} {each.kilobytes:6.1f} {'' if each.within else '  beyond'}")
    return 0 if all(each.within for each in pages) else 1


if __name__ == "__main__":
    sys.exit(main())
