"""Compaction of OpenAI Agents sessions on a store: as one, also with a limit, and never over what came meanwhile."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from holdproof import sync
from holdproof.client import Holdproof
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

agents: Any = pytest.importorskip("agents", reason="not installed: pip install openai-agents")
memory: Any = pytest.importorskip("agents.memory")
scripted: Any = pytest.importorskip("agents.testing", reason="openai-agents without scripted models")
adapter: Any = pytest.importorskip("holdproof.adapters.openai_agents")

SUMMARY = {"type": "compaction", "id": "cmp", "encrypted_content": "what was said"}


class Client:
    """The endpoint that compacts; it tells what it was sent, and may do something before it answers."""

    def __init__(self, meanwhile: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        self.requests: list[Any] = []
        self.meanwhile = meanwhile
        self.responses = self

    async def compact(self, **request: Any) -> Any:
        self.requests.append(request)
        if self.meanwhile is not None:
            await self.meanwhile()
        return SimpleNamespace(output=[SUMMARY], usage=None)


def said(*texts: str) -> list[Any]:
    return [{"role": "user", "content": text} for text in texts]


async def run(session: Any, client: Client) -> None:
    """A turn of a conversation, after which its session is compacted."""
    agents.set_tracing_disabled(True)
    model = scripted.ScriptedModel([[scripted.assistant_message("done")]])
    agent = agents.Agent(name="shop", model=model)
    compacting = memory.OpenAIResponsesCompactionSession(
        "s", session, client=client, compaction_mode="input", should_trigger_compaction=lambda _: True
    )
    await agents.Runner.run(agent, "and now?", session=compacting)


Act = Callable[[Holdproof], Coroutine[Any, Any, Any]]


class Compaction(OnStore):
    def acted(self, store: sync.Holdproof, act: Act) -> Any:
        return asyncio.run(act(Holdproof(store.core)))

    def test_with_a_limit_the_last_items_are_replaced_and_the_older_stay(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            session = adapter.HoldproofSession("s", client, session_settings={"limit": 2})
            await session.add_items(said("one", "two", "three", "four"))
            endpoint = Client()
            await run(session, endpoint)
            items = await session.get_items(limit=100)
            theirs = memory.SQLiteSession("s", session_settings={"limit": 2})
            await theirs.add_items(said("one", "two", "three", "four"))
            await run(theirs, Client())
            assert items == await theirs.get_items(limit=100)
            assert items == [*said("one", "two"), SUMMARY]
            assert len(endpoint.requests) == 1

        self.acted(live, work)

    def test_items_that_come_meanwhile_keep_it_from_happening(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            session = adapter.HoldproofSession("s", client, session_settings={"limit": 2})
            await session.add_items(said("one", "two", "three"))
            other = adapter.HoldproofSession("s", client)
            endpoint = Client(lambda: other.add_items(said("late")))
            await run(session, endpoint)
            items = await session.get_items(limit=100)
            assert [item["content"] for item in items[:4]] == ["one", "two", "three", "and now?"]
            assert items[-1:] == said("late")
            assert len(items) == 6
            assert len(endpoint.requests) == 1

        self.acted(live, work)

    def test_readers_see_all_of_a_session_or_its_summary(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            session = adapter.HoldproofSession("s", client)
            whole = said(*(str(n) for n in range(20)))
            await session.add_items(whole)
            reads = [asyncio.create_task(session.get_items()) for _ in range(20)]
            compacting = memory.OpenAIResponsesCompactionSession("s", session, client=Client())
            await compacting.run_compaction({"force": True, "compaction_mode": "input"})
            reads += [asyncio.create_task(session.get_items()) for _ in range(5)]
            seen = await asyncio.gather(*reads)
            assert all(items in (whole, [SUMMARY]) for items in seen)
            assert seen[-1] == [SUMMARY]

        self.acted(live, work)

    def test_a_subclass_with_items_of_its_own_is_not_passed_by(self, live: sync.Holdproof) -> None:
        class Shouting(adapter.HoldproofSession):  # type: ignore[misc]
            async def add_items(self, items: list[Any]) -> None:
                await super().add_items([{**item, "content": str(item.get("content")).upper()} for item in items])

        async def work(client: Holdproof) -> None:
            session = Shouting("s", client)
            await session.add_items(said("one", "two"))
            compacting = memory.OpenAIResponsesCompactionSession("s", session, client=Client())
            await compacting.run_compaction({"force": True, "compaction_mode": "input"})
            [item] = await session.get_items()
            assert item["content"] == "NONE"

        self.acted(live, work)


class TestSqlite(OnSqlite, Compaction):
    pass


class TestMemory(InMemory, Compaction):
    pass


class TestPostgres(OnPostgres, Compaction):
    pass
