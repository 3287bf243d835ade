"""Workflows: steps, starts, queues, recovery after a kill, sleeping flows and a long agent, beside DBOS.

Every race is run by each engine of engines.py on SQLite and on PostgreSQL. A step counts once its result is durable.
`start` is the time from the call of a workflow to the first line of its body; its ending is not measured. A queued
workflow counts from enqueued to done: its caller waits for its result. Sleeping flows, recovery and the long agent have
files of their own (sleepers.py, flow_recovery.py, long_agent.py), and say there what is measured.
"""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from bench import flow_recovery, long_agent, peers_postgres, sleepers
from bench.engines import Engine, Step, Workflow, on_postgres, on_sqlite
from bench.goals import Goal
from bench.measurement import Contestant, Meter, Options, Race, Result, run_race

SQLITE: Final = "SQLite"
POSTGRES: Final = "PostgreSQL"
STEPS: Final = 10
MOST_CALLERS: Final = 64


def run(options: Options) -> list[Result]:
    """Every race that the options ask for."""
    results: list[Result] = []
    if options.wants("sqlite"):
        results += _all_races(SQLITE, on_sqlite(), options)
        with options.journal.attempt("sleeping flows"):
            results += sleepers.run(options)
    if options.wants("postgres"):
        with peers_postgres.server() as running:
            results += _all_races(POSTGRES, on_postgres(running), options)
    return results


def _all_races(database: str, engines: Sequence[Engine], options: Options) -> list[Result]:
    counts = [callers for callers in options.callers if callers <= MOST_CALLERS]
    step_contestants = [steps(engine, callers) for callers in counts for engine in engines]
    queue_contestants = [queued(engine, callers) for callers in counts for engine in engines]
    results = [
        *run_race(_race(steps_race(database), step_contestants), options),
        *run_race(_race(start_race(database), [starts(engine) for engine in engines]), options),
        *run_race(_race(queue_race(database), queue_contestants), options),
    ]
    for further in (flow_recovery, long_agent):
        with options.journal.attempt(f"{further.__name__} on {database}"):
            results += further.run(database, engines, options)
    return results


def _race(title: str, contestants: Sequence[Contestant]) -> Race:
    return Race(title, contestants, [each.label for each in contestants if each.name.startswith("dbos")])


def steps_race(database: str) -> str:
    """The race for durable steps."""
    return f"workflow steps on {database}"


def start_race(database: str) -> str:
    """The race for starts."""
    return f"start of a workflow on {database}"


def queue_race(database: str) -> str:
    """The race from enqueued to done."""
    return f"queued workflows on {database}"


# --- contestants -------------------------------------------------------------------------------------------------


async def trivial(number: int) -> int:
    """What a step does here: as good as nothing."""
    return number


def steps(engine: Engine, callers: int) -> Contestant:
    """That many workflows of ten steps at once."""

    def workflow_of(meter: Meter) -> Workflow:
        async def ten_steps(step: Step) -> bool:
            for number in range(STEPS):
                await step(trivial, number)
                if not meter.done():
                    return False
            return True

        return ten_steps

    async def all_callers(meter: Meter) -> None:
        with engine.place() as where:
            async with engine.open(where, workflow_of(meter)) as session:

                async def caller() -> None:
                    while await session.call():
                        pass

                meter.start()
                await asyncio.gather(*(caller() for _ in range(callers)))

    return Contestant(engine.name, callers, lambda meter: asyncio.run(all_callers(meter)))


def starts(engine: Engine) -> Contestant:
    """One workflow after the other."""

    async def one_caller(meter: Meter) -> None:
        ending = ExitStack()

        async def started(step: Step) -> bool:  # noqa: ARG001 (a workflow without steps)
            in_time = meter.done()
            # From here to the return of the call nothing is measured.
            ending.enter_context(meter.aside())
            return in_time

        with engine.place() as where:
            async with engine.open(where, started) as session:
                meter.start()
                in_time = True
                while in_time:
                    in_time = await session.call()
                    ending.close()

    return Contestant(engine.name, 1, lambda meter: asyncio.run(one_caller(meter)))


def queued(engine: Engine, callers: int) -> Contestant:
    """That many callers, each of which enqueues a workflow of one step and waits for its result."""

    async def one_step(step: Step, number: int) -> int:
        return int(await step(trivial, number))

    async def all_callers(meter: Meter) -> None:
        with engine.place() as where:
            async with engine.open(where, one_step) as session, session.queue() as call:

                async def caller() -> None:
                    in_time = True
                    while in_time:
                        await call(1)
                        in_time = meter.done()

                meter.start()
                await asyncio.gather(*(caller() for _ in range(callers)))

    return Contestant(engine.name, callers, lambda meter: asyncio.run(all_callers(meter)))


# --- goals -------------------------------------------------------------------------------------------------------


def goals(options: Options) -> list[Goal]:
    """What must be reached, and what is aimed at."""
    disk = options.disk
    ours = "holdproof @1"
    peer = "dbos @1"
    on_record = f"holdproof{long_agent.RETURNED} @1"
    allowed = f"{long_agent.ALLOWED} @1"
    judged = [
        Goal(f"steps on SQLite, 64 callers: 30 x dbos{disk}", steps_race(SQLITE), "holdproof @64", "dbos @64", 30),
        Goal(f"steps on PostgreSQL, 64 callers: 8 x dbos{disk}", steps_race(POSTGRES), "holdproof @64", "dbos @64", 8),
    ]
    judged += [
        Goal("wake-ups of sleeping flows: 1,000 a second", sleepers.wakes_race(), ours, "", 1000),
        Goal(
            "a worker of sleeping flows: at most 300 MB",
            sleepers.memory_race(),
            ours,
            f"{sleepers.ALLOWED} @1",
            1,
        ),
    ]
    for database in (SQLITE, POSTGRES):
        queues = queue_race(database)
        judged.append(Goal(f"{queues}, 64 callers: 10 x dbos{disk}", queues, "holdproof @64", "dbos @64", 10))
        agents, recovery = long_agent.bytes_race(database), flow_recovery.race(database)
        judged += [
            Goal(f"steps on {database}, 1 caller: 3 x dbos{disk}", steps_race(database), ours, peer, 3),
            Goal(f"a long agent on {database}, requests on record: at most 5 MB", agents, on_record, allowed, 1),
            Goal(f"start on {database}: the rate of dbos{disk}", start_race(database), ours, peer, 1, aim=True),
            Goal(f"{recovery}: the rate of dbos{disk}", recovery, ours, peer, 1, aim=True),
        ]
    return judged
