"""A chat of LangGraph as it grows: bytes, the time of a put early and late, of get_state.

The chat is a graph as anybody writes it: one scripted model, plain `add_messages`, two messages of 500 characters a
turn, each without an id of its own; and the same with LangGraph's DeltaChannel. `bytes` are what the chat adds to an
empty store, once it is closed. Results are rates, so that more is better: chats a gigabyte, puts a second.
HOLDPROOF_BENCH_TURNS are the lengths, `200` unless told; `200,1000` takes some minutes and two gigabytes.
"""

import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Annotated, Any

from bench import savers
from bench.measurement import Options, Result, compare_with, progress, rounds
from bench.peers_postgres import server
from bench.savers import Place

LENGTHS = tuple(sorted(int(each) for each in os.environ.get("HOLDPROOF_BENCH_TURNS", "200").split(",")))
MARKS, LENGTH = (10, 200, 1_000), 500
PUT, DELTA = "one put", ", DeltaChannel"
_LETTERS = "etaoinshrdlu cmfwypvbgk etaoin  "

Rates = dict[tuple[str, str], list[float]]


def disk(turns: int) -> str:
    """The race for bytes."""
    return f"bytes of {turns:,} turns"


def state(turns: int) -> str:
    """The race for reading it all."""
    return f"get_state after {turns:,} turns"


def run(options: Options) -> list[Result]:
    """Each saver keeps a chat of each length in turn, in every round."""
    results: list[Result] = []
    with _contestants(options) as contestants:
        for turns in LENGTHS:
            rates: Rates = {}
            for round in rounds(options):
                for name, place in contestants.items():
                    progress(f"a chat of {turns:,} turns, round {round + 1} of {options.repeats}: {name}")
                    with place() as here:
                        for key, rate in _chat(name, here, turns, round).items():
                            rates.setdefault(key, []).append(rate)
                rates.setdefault((disk(turns), "a megabyte for 200 turns"), []).append(200e3 / turns)
                rates.setdefault((PUT, "a millisecond"), []).append(1_000.0)
            results += options.journal.add(_compared(rates, turns))
    return results


def _compared(rates: Rates, turns: int) -> list[Result]:
    made = [Result(race, name, 1, tuple(found)) for (race, name), found in rates.items()]
    references = {disk(turns): "SqliteSaver @1", state(turns): "SqliteSaver @1"}
    if turns == LENGTHS[-1]:  # puts early and late in the longest chat say it all
        references[PUT] = f"SqliteSaver, turn {turns:,} @1"
    return [each for race, reference in references.items() for each in compare_with(made, race, (reference,))]


# --- contestants -------------------------------------------------------------------------------------------------


@contextmanager
def _contestants(options: Options) -> Iterator[dict[str, Any]]:
    """Who takes part, for as long as their servers run; each opens a place of its own for a chat."""
    with ExitStack() as stack:
        found: dict[str, Any] = {}
        if options.wants("sqlite"):
            found["SqliteSaver"] = lambda: savers.in_a_folder(savers.official)
            found["holdproof"] = lambda: savers.in_a_folder(savers.holdproof)
        if options.wants("postgres") and savers.has_postgres_saver():
            running = stack.enter_context(server())
            found["PostgresSaver"] = lambda: savers.on_a_server(running, savers.postgres_saver)
            found["holdproof on PostgreSQL"] = lambda: savers.on_a_server(running, savers.holdproof_served)
        if _delta() is not None:
            found |= {f"{name}{DELTA}": place for name, place in found.items()}
        yield found


def _delta() -> Any:
    """LangGraph's DeltaChannel, None where there is none."""
    try:
        from langgraph.channels.delta import DeltaChannel  # noqa: PLC0415 (an optional extra)
    except ImportError:
        return None
    return DeltaChannel


# --- one chat ----------------------------------------------------------------------------------------------------


def _chat(name: str, place: Place, turns: int, seed: int) -> dict[tuple[str, str], float]:
    """One chat: chats a gigabyte, puts a second at each mark, states a second."""
    chance = random.Random(seed)
    with place.opened():
        pass
    empty = place.size()
    with place.opened() as saver:
        times: list[float] = []
        app = _graph(_timed(saver, times), chance, delta=name.endswith(DELTA))
        config = {"configurable": {"thread_id": "chat"}}
        for _ in range(turns):
            app.invoke({"messages": [("user", words(chance))]}, config, durability="sync")
        began = time.perf_counter()
        states = [len(app.get_state(config).values["messages"]) for _ in range(5)]
        took = (time.perf_counter() - began) / len(states)
    assert states[0] == 2 * turns, f"{name} has lost a message"
    rates = {(disk(turns), name): 1e9 / max(1, place.size() - empty), (state(turns), name): 1 / took}
    each = len(times) // turns
    for mark in sorted({*(mark for mark in MARKS if mark < turns), turns}):
        near = times[max(0, each * (mark - 5)) : each * (mark + 5)]
        rates[PUT, f"{name}, turn {mark:,}"] = 1 / median(near)
    return rates


def _graph(saver: Any, chance: random.Random, *, delta: bool = False) -> Any:
    from langchain_core.messages import AIMessage  # noqa: PLC0415 (an optional extra)
    from langgraph.graph import START, MessagesState, StateGraph, add_messages  # noqa: PLC0415 (an optional extra)

    def model(state: Any) -> dict[str, Any]:  # noqa: ARG001 (by this name LangGraph knows it)
        return {"messages": [AIMessage(words(chance))]}

    shape: Any = MessagesState
    if delta:

        def reduce(known: Any, writes: Any) -> Any:
            for write in writes:
                known = add_messages(known, write)
            return known

        # a class whose annotation is made here: LangGraph reads the channel from it
        shape = type("DeltaState", (dict,), {"__annotations__": {"messages": Annotated[list[Any], _delta()(reduce)]}})
    graph = StateGraph(shape)
    graph.add_node("model", model)
    graph.add_edge(START, "model")
    return graph.compile(checkpointer=saver)


def _timed(saver: Any, times: list[float]) -> Any:
    """The same saver, whose puts are timed."""
    real = saver.put

    def timed(*given: Any) -> Any:
        began = time.perf_counter()
        try:
            return real(*given)
        finally:
            times.append(time.perf_counter() - began)

    saver.put = timed
    return saver


def words(chance: random.Random) -> str:
    """A message of 500 characters."""
    return "".join(chance.choices(_LETTERS, k=LENGTH))
