"""Checkpoints of LangGraph: what a chat costs on disk and in time as it grows (chats.py), and how many are put at once.

Beside are LangGraph's own savers, on SQLite and on PostgreSQL where `langgraph-checkpoint-postgres` is installed.
"""

import asyncio
import importlib.util
import random
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import cache, partial
from itertools import count
from typing import Any

from bench import chats, checkpoint_growth, savers
from bench.goals import Goal
from bench.measurement import Contestant, Meter, Options, Race, Result, run_race

CALLERS, LONGEST = 64, 20
CROWD = f"aput, {CALLERS} threads"
_ASYNC: dict[str, Callable[[str], Any]] = {"AsyncSqliteSaver": savers.official_async, "holdproof": savers.holdproof}


def run(options: Options) -> list[Result]:
    """The chats, then the crowd, then a store that keeps many."""
    results: list[Result] = []
    if importlib.util.find_spec("langgraph") is not None:
        results += chats.run(options) if not options.race or options.race in chats.PUT else []
        crowd = [Contestant(name, CALLERS, _crowd(opened)) for name, opened in _ASYNC.items()]
        races = [Race(CROWD, crowd, (f"AsyncSqliteSaver @{CALLERS}",))] if options.wants("sqlite") else []
        results += [each for race in races for each in run_race(race, options)]
    if options.wants("sqlite") and options.race in checkpoint_growth.TITLE:
        with checkpoint_growth.race() as race:
            results += run_race(race, options)
    return results


def goals(options: Options) -> list[Goal]:
    """What must be reached."""
    times = 5.0 if options.fsync_ms < 1 else 15.0 if options.fsync_ms < 5 else 30.0
    return [
        *(goal for turns in chats.LENGTHS for goal in _goals(turns, options.disk)),
        Goal(
            f"aput, {CALLERS} threads: {times:g} x AsyncSqliteSaver{options.disk}",
            CROWD,
            f"holdproof @{CALLERS}",
            f"AsyncSqliteSaver @{CALLERS}",
            times,
        ),
        Goal(
            f"a put among {checkpoint_growth.SIZES[-1]:,} checkpoints: 0.80 x the rate among 1,000{options.disk}",
            checkpoint_growth.TITLE,
            f"{checkpoint_growth.name(checkpoint_growth.SIZES[-1])} @1",
            f"{checkpoint_growth.name(1_000)} @1",
            0.80,
        ),
    ]


def _goals(turns: int, disk: str) -> list[Goal]:
    found = [
        Goal(f"a chat of {turns:,} turns, 1 MB for 200", chats.disk(turns), "holdproof @1",
             "a megabyte for 200 turns @1", 1.0),
        Goal(f"get_state after {turns:,} turns: the rate of SqliteSaver", chats.state(turns), "holdproof @1",
             "SqliteSaver @1", 1.0, aim=True),
    ]  # fmt: skip
    if turns != chats.LENGTHS[-1]:
        return found
    late, early = f"holdproof, turn {turns:,} @1", f"holdproof, turn {chats.MARKS[0]} @1"
    return [
        *found,
        Goal(
            f"put: turn {turns:,} at 1/1.5 x the rate of turn {chats.MARKS[0]}{disk}", chats.PUT, late, early, 1 / 1.5
        ),
        Goal(f"put at turn {turns:,} within 1 ms{disk}", chats.PUT, late, "a millisecond @1", 1.0),
    ]


# --- many at once ------------------------------------------------------------------------------------------------


def _crowd(opened: Callable[[str], Any]) -> Callable[[Meter], None]:
    def sample(meter: Meter) -> None:
        async def everybody() -> None:
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                async with opened(folder) as saver:
                    await saver.aget_tuple({"configurable": {"thread_id": "none", "checkpoint_ns": ""}})
                    for number in range(CALLERS):
                        _conversation(number)
                    meter.start()
                    await asyncio.gather(*(_caller(saver, number, meter) for number in range(CALLERS)))

        asyncio.run(everybody())

    return sample


async def _caller(saver: Any, number: int, meter: Meter) -> None:
    """One conversation after another, each put with one message more."""
    for put in _puts(saver, number):
        await put()
        if not meter.done():
            return


def _puts(saver: Any, number: int) -> Iterator[Callable[[], Awaitable[Any]]]:
    """Puts of one conversation after another; what is put is made before anything is measured."""
    for round in count():
        thread = {"thread_id": f"{number}-{round}", "checkpoint_ns": ""}
        for turn, made in enumerate(_conversation(number), 1):
            metadata = {"source": "loop", "step": turn, "parents": {}}
            yield partial(saver.aput, {"configurable": thread}, made, metadata, {"messages": turn})
            thread = {**thread, "checkpoint_id": made["id"]}


@cache
def _conversation(number: int) -> list[dict[str, Any]]:
    from langchain_core.messages import HumanMessage  # noqa: PLC0415
    from langgraph.checkpoint.base.id import uuid6  # noqa: PLC0415

    chance = random.Random(number)
    messages = [HumanMessage(chats.words(chance), id=f"{number}-{turn}") for turn in range(LONGEST)]
    return [
        {
            "v": 4,
            "ts": "2026-01-01T00:00:00+00:00",
            "id": str(uuid6(clock_seq=turn)),
            "channel_values": {"messages": messages[:turn]},
            "channel_versions": {"messages": turn},
            "versions_seen": {"model": {"messages": turn - 1}},
            "updated_channels": ["messages"],
        }
        for turn in range(1, LONGEST + 1)
    ]
