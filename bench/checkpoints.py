"""Checkpoints of LangGraph: what a chat costs on disk and in time as it grows, and how many can be put at once.

The chat is a graph as anybody writes it: one scripted model, plain `add_messages`, two messages of 500 characters a
turn, each without an id of its own. `bytes` are what the chat adds to an empty store, once it is closed.
HOLDFAST_BENCH_TURNS is how long the chat is, 200 unless told. Its results are rates, so that more is better: chats a
gigabyte, puts a second.
"""

import asyncio
import importlib.util
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import cache, partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from bench.goals import Goal
from bench.harness import Contestant, Meter, Options, Race, Result, compare_with, progress, run_race

TURNS = int(os.environ.get("HOLDFAST_BENCH_TURNS", "200"))
EARLY, LENGTH, CALLERS, LONGEST = 10, 500, 64, 20
DISK, PUT, STATE = f"bytes of {TURNS} turns", "one put", f"get_state after {TURNS} turns"
CROWD = f"aput, {CALLERS} threads"
_LETTERS = "etaoinshrdlu cmfwypvbgk etaoin  "


def run(options: Options) -> list[Result]:
    """The chat, then the crowd; PostgreSQL has no part in them."""
    if not options.wants("sqlite") or importlib.util.find_spec("langgraph") is None:
        return []
    results = [] if options.race in CROWD and options.race else _chats(options)
    crowd = [Contestant(name, CALLERS, _crowd(opened)) for name, opened in _ASYNC.items()]
    return results + run_race(Race(CROWD, crowd, (f"AsyncSqliteSaver @{CALLERS}",)), options)


def goals(options: Options) -> list[Goal]:
    """What must be reached."""
    late = f"holdfast, turn {TURNS} @1"
    return [
        Goal(f"a chat of {TURNS} turns, 1 MB for 200", DISK, "holdfast @1", "a megabyte for 200 turns @1", 1.0),
        Goal(f"put: turn {TURNS} at 1/1.5 x the rate of turn {EARLY}{options.disk}", PUT, late,
             f"holdfast, turn {EARLY} @1", 1 / 1.5),
        Goal(f"put at turn {TURNS} within 1 ms{options.disk}", PUT, late, "a millisecond @1", 1.0),
        Goal(f"aput, {CALLERS} threads: 5 x AsyncSqliteSaver{options.disk}", CROWD, f"holdfast @{CALLERS}",
             f"AsyncSqliteSaver @{CALLERS}", 5.0),
    ]  # fmt: skip


# --- savers ------------------------------------------------------------------------------------------------------


def _holdfast(folder: str) -> Any:
    from holdfast.adapters.langgraph import HoldfastSaver  # noqa: PLC0415

    return HoldfastSaver.from_conn_string(folder)


def _official(folder: str) -> AbstractContextManager[Any]:
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415

    return SqliteSaver.from_conn_string(f"{folder}/checkpoints.db")


def _official_async(folder: str) -> AbstractAsyncContextManager[Any]:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # noqa: PLC0415

    return AsyncSqliteSaver.from_conn_string(f"{folder}/checkpoints.db")


_SYNC: dict[str, Callable[[str], Any]] = {"SqliteSaver": _official, "holdfast": _holdfast}
_ASYNC: dict[str, Callable[[str], Any]] = {"AsyncSqliteSaver": _official_async, "holdfast": _holdfast}

# --- a chat ------------------------------------------------------------------------------------------------------


def _chats(options: Options) -> list[Result]:
    """Each saver keeps a chat in turn, in every round; rates by race and contestant."""
    rates: dict[tuple[str, str], list[float]] = {}
    for turn in range(options.repeats):
        for name, opened in _SYNC.items():
            progress(f"a chat of {TURNS} turns, round {turn + 1} of {options.repeats}: {name}")
            for key, rate in _chat(name, opened, turn).items():
                rates.setdefault(key, []).append(rate)
        for key, rate in ((DISK, "a megabyte for 200 turns"), 200e3 / TURNS), ((PUT, "a millisecond"), 1_000.0):
            rates.setdefault(key, []).append(rate)
    made = [Result(race, name, 1, tuple(found)) for (race, name), found in rates.items()]
    references = {DISK: "SqliteSaver @1", PUT: f"SqliteSaver, turn {TURNS} @1", STATE: "SqliteSaver @1"}
    return [each for race, reference in references.items() for each in compare_with(made, race, (reference,))]


def _chat(name: str, opened: Callable[[str], Any], seed: int) -> dict[tuple[str, str], float]:
    """One chat: chats a gigabyte, puts a second early and late, states a second."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        with opened(folder):
            pass
        empty = _size(folder)
        with opened(folder) as saver:
            times: list[float] = []
            app = _graph(_timed(saver, times), chance)
            config = {"configurable": {"thread_id": "chat"}}
            for _ in range(TURNS):
                app.invoke({"messages": [("user", _words(chance))]}, config, durability="sync")
            began = time.perf_counter()
            states = [len(app.get_state(config).values["messages"]) for _ in range(5)]
            took = (time.perf_counter() - began) / len(states)
        added = _size(folder) - empty
    early, late = times[3 * EARLY - 15 : 3 * EARLY + 15], times[-30:]
    return {
        (DISK, name): 1e9 / added,
        (PUT, f"{name}, turn {EARLY}"): 1 / median(early),
        (PUT, f"{name}, turn {TURNS}"): 1 / median(late),
        (STATE, name): 1 / took,
    }


def _graph(saver: Any, chance: random.Random) -> Any:
    from langchain_core.messages import AIMessage  # noqa: PLC0415
    from langgraph.graph import START, MessagesState, StateGraph  # noqa: PLC0415

    def model(state: MessagesState) -> dict[str, Any]:  # noqa: ARG001 - by this name LangGraph knows it
        return {"messages": [AIMessage(_words(chance))]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_edge(START, "model")
    return graph.compile(checkpointer=saver)


def _timed(saver: Any, times: list[float]) -> Any:
    """The same saver, whose puts are timed."""
    put = saver.put

    def timed(*given: Any) -> Any:
        began = time.perf_counter()
        try:
            return put(*given)
        finally:
            times.append(time.perf_counter() - began)

    saver.put = timed
    return saver


def _words(chance: random.Random) -> str:
    return "".join(chance.choices(_LETTERS, k=LENGTH))


def _size(folder: str) -> int:
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())


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
    messages = [HumanMessage(_words(chance), id=f"{number}-{turn}") for turn in range(LONGEST)]
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
