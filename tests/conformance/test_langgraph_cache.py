"""LangGraph's cache on a store: as its own cache keeps values, and none that nobody could read again."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import pytest

from holdproof import errors, sync
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

theirs: Any = pytest.importorskip("langgraph.cache.memory", reason="not installed: pip install langgraph")
graphs: Any = pytest.importorskip("langgraph.graph")
kinds: Any = pytest.importorskip("langgraph.types")
messages: Any = pytest.importorskip("langchain_core.messages")
adapter: Any = pytest.importorskip("holdproof.adapters.langgraph")

A, AB, DOT = ("a",), ("a", "b"), ("a.b", "c/d %")
KEYS = [(A, "k"), (AB, "k"), (DOT, "k"), (A, "other"), ((), "k")]


class State(TypedDict, total=False):
    number: int
    doubled: int


@dataclass
class Secret:
    """A type that nobody allowed."""

    words: str = "hush"


class Cache(OnStore):
    def test_it_answers_as_their_own_cache_does(self, store: sync.Holdproof) -> None:
        async def script(cache: Any) -> list[Any]:
            answers: list[Any] = [cache.get(KEYS), await cache.aget([])]
            values = {
                key: ({"n": n, "said": [messages.AIMessage(str(n))], "b": b"\0"}, None) for n, key in enumerate(KEYS)
            }
            cache.set(values)
            await cache.aset({(A, "k"): ("again", 60)})
            answers.append(cache.get(KEYS))
            cache.clear([A])
            answers.append(await cache.aget(KEYS))
            await cache.aclear([DOT])
            answers.append(cache.get(KEYS))
            cache.clear()
            answers.append(cache.get(KEYS))
            return answers

        ours = adapter.HoldproofCache(store)
        # Theirs has no namespace without parts.
        assert asyncio.run(script(ours)) == asyncio.run(script(theirs.InMemoryCache()))

    def test_a_value_whose_time_is_over_is_not_there(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        cache = adapter.HoldproofCache(store)
        cache.set({(A, "short"): (1, 10), (A, "long"): (2, 100), (A, "never"): (3, 0)})
        keys = [(A, "short"), (A, "long"), (A, "never")]
        assert cache.get(keys) == {(A, "short"): 1, (A, "long"): 2}
        clock.advance(11)
        assert cache.get(keys) == {(A, "long"): 2}

    def test_namespaces_of_stores_do_not_see_each_other(self, store: sync.Holdproof) -> None:
        mine, tenant = adapter.HoldproofCache(store), adapter.HoldproofCache(store, ns="tenant")
        mine.set({(A, "k"): (1, None)})
        tenant.clear()
        assert tenant.get([(A, "k")]) == {}
        assert mine.get([(A, "k")]) == {(A, "k"): 1}

    def test_what_could_not_be_read_again_is_refused_with_all_beside_it(self, store: sync.Holdproof) -> None:
        cache = adapter.HoldproofCache(store)
        with pytest.raises(errors.UnsafeTypeError):
            cache.set({(A, "k"): (1, None), (A, "secret"): (Secret(), None)})
        assert cache.get([(A, "k")]) == {}

    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_node_with_a_cache_policy_runs_once_for_an_input(self, live: sync.Holdproof, is_async: bool) -> None:
        calls: list[int] = []

        def double(state: State) -> State:
            calls.append(state["number"])
            return {"doubled": 2 * state["number"]}

        builder = graphs.StateGraph(State)
        builder.add_node("double", double, cache_policy=kinds.CachePolicy(ttl=60))
        builder.add_edge("__start__", "double")
        cache = adapter.HoldproofCache(live)
        for number in (3, 3, 4):
            graph = builder.compile(cache=cache)
            run = asyncio.run(graph.ainvoke({"number": number})) if is_async else graph.invoke({"number": number})
            assert run["doubled"] == 2 * number
        assert calls == [3, 4]


class TestSqlite(OnSqlite, Cache):
    pass


class TestMemory(InMemory, Cache):
    pass


class TestPostgres(OnPostgres, Cache):
    pass


def test_a_second_process_finds_what_the_first_one_computed(tmp_path: Path) -> None:
    for value in ({}, {(A, "k"): 1}):
        cache = adapter.HoldproofCache(tmp_path / "store")
        assert cache.get([(A, "k")]) == value
        cache.set({(A, "k"): (1, None)})
        cache.close()
