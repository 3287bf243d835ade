"""Durable steps: flows of ten steps, many at once, through the async face."""

import asyncio

import holdproof
from bench import workload as w
from bench.fresh_stores import Place
from bench.measurement import Contestant, Meter

STEPS = 10


async def trivial(number: int) -> int:
    """What a step does here: as good as nothing."""
    return number


def steps(callers: int, place: Place) -> Contestant:
    """That many flows at once; a step counts once its result is durable."""

    async def flow(store: holdproof.Holdproof, meter: Meter) -> bool:
        async with store.flows.run(w.AGENT) as running:
            for number in range(STEPS):
                await running.step("trivial", trivial, number)
                if not meter.done():
                    return False
        return True

    async def caller(store: holdproof.Holdproof, meter: Meter) -> None:
        while await flow(store, meter):
            pass

    async def all_callers(home: str, url: str | None, meter: Meter) -> None:
        async with holdproof.open(home, url) as store:
            await store.agents.register(w.AGENT, version="1")
            meter.start()
            await asyncio.gather(*(caller(store, meter) for _ in range(callers)))

    def sample(meter: Meter) -> None:
        with place() as (home, url):
            asyncio.run(all_callers(home, url, meter))

    return Contestant("holdproof", callers, sample)
