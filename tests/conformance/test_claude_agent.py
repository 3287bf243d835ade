"""The Claude Agent SDK on a store: its own conformance suite, and an entry that is sent twice is there once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.client import Holdproof
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

testing: Any = pytest.importorskip(
    "claude_agent_sdk.testing", reason="not installed: pip install claude-agent-sdk, or make adapters"
)
adapter: Any = pytest.importorskip("holdproof.adapters.claude_agent")

KEY = {"project_key": "proj", "session_id": "sess"}
ODD = "ä/%2F \ud800"


def entry(n: int, **more: Any) -> dict[str, Any]:
    return {"type": "user", "uuid": f"u-{n}", "n": n, **more}


Act = Callable[[Holdproof, Any], Coroutine[Any, Any, Any]]


class ClaudeAgent(OnStore):
    def acted(self, store: sync.Holdproof, act: Act, **options: Any) -> Any:
        client = Holdproof(store.core)
        result = asyncio.run(act(client, adapter.HoldproofSessionStore(client, **options)))
        assert store.verify.run().verdict.sound
        return result

    def test_their_conformance_suite_passes_with_all_that_is_optional(self, store: sync.Holdproof) -> None:
        spaces: list[str] = []

        def fresh() -> Any:
            spaces.append(f"contract-{len(spaces)}")
            return adapter.HoldproofSessionStore(store, ns=spaces[-1])

        for method in ("list_sessions", "list_session_summaries", "delete", "list_subkeys"):
            assert hasattr(adapter.HoldproofSessionStore, method)
        asyncio.run(testing.run_session_store_conformance(fresh))
        assert len(spaces) == 15  # fourteen contracts, and one that only looks for optional methods
        assert store.verify.run().verdict.sound

    def test_an_entry_that_is_sent_again_is_there_once_and_one_without_uuid_as_often_as_sent(
        self, store: sync.Holdproof
    ) -> None:
        async def work(_: Holdproof, sessions: Any) -> None:
            title = {"type": "custom-title", "customTitle": "old"}
            await sessions.append(KEY, [entry(1), entry(2), title])
            await sessions.append(KEY, [entry(1), entry(2), entry(3), entry(3), title])
            assert await sessions.load(KEY) == [entry(1), entry(2), title, entry(3), title]

        self.acted(store, work)

    def test_a_repeated_batch_does_not_turn_the_summary_back(self, store: sync.Holdproof) -> None:
        async def work(_: Holdproof, sessions: Any) -> None:
            await sessions.append(KEY, [entry(1, customTitle="first")])
            await sessions.append(KEY, [entry(2, customTitle="second")])
            await sessions.append(KEY, [entry(1, customTitle="first")])
            [summary] = await sessions.list_session_summaries("proj")
            assert summary["data"]["custom_title"] == "second"

        self.acted(store, work)

    def test_racing_writers_lose_and_repeat_nothing(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof, _: Any) -> Any:
            writers = [adapter.HoldproofSessionStore(client) for _ in range(4)]
            # Every writer sends every entry, in batches of its own.
            batches = [[entry(n) for n in range(at, at + 5)] for at in range(0, 30, 5)]
            await asyncio.gather(*(writer.append(KEY, batch) for writer in writers for batch in batches))
            return await writers[0].load(KEY)

        loaded = self.acted(store, work)
        assert sorted(each["n"] for each in loaded) == list(range(30))

    def test_odd_keys_and_a_huge_entry_come_back_as_they_were(self, store: sync.Holdproof) -> None:
        async def work(_: Holdproof, sessions: Any) -> None:
            key = {"project_key": f"/{ODD}", "session_id": ODD}
            huge = entry(1, text="x" * 3_000_000, odd=ODD, list=[1, 2.5, None, True])
            await sessions.append(key, [huge])
            await sessions.append({**key, "subpath": f"subagents/{ODD}"}, [entry(2)])
            assert await sessions.load(key) == [huge]
            assert [each["session_id"] for each in await sessions.list_sessions(key["project_key"])] == [ODD]
            assert await sessions.list_subkeys(key) == [f"subagents/{ODD}"]

        self.acted(store, work)

    def test_what_json_would_change_is_refused_and_nothing_of_the_batch_is_written(self, store: sync.Holdproof) -> None:
        async def work(_: Holdproof, sessions: Any) -> None:
            for wrong in ("text", None, entry(2, at=(1, 2)), entry(2, nan=float("nan")), entry(2, of={1: 2})):
                with pytest.raises(errors.InvalidInputError):
                    await sessions.append(KEY, [entry(1), wrong])
            assert await sessions.load(KEY) is None

        self.acted(store, work)

    def test_erasing_a_person_removes_that_persons_sessions(self, store: sync.Holdproof) -> None:
        async def work(_: Holdproof, sessions: Any) -> None:
            for user in ("ada", "grace"):
                key = {"project_key": user, "session_id": "s"}
                await sessions.append(key, [entry(1, by=user)])
                await sessions.append({**key, "subpath": "subagents/a"}, [entry(2)])

        self.acted(store, work, subject=lambda key: key["project_key"])
        store.erase.subject("ada")

        async def look(_: Holdproof, sessions: Any) -> None:
            assert await sessions.load({"project_key": "ada", "session_id": "s"}) is None
            assert await sessions.list_subkeys({"project_key": "ada", "session_id": "s"}) == []
            assert await sessions.load({"project_key": "grace", "session_id": "s"}) == [entry(1, by="grace")]

        self.acted(store, look)


class TestSqlite(OnSqlite, ClaudeAgent):
    pass


class TestMemory(InMemory, ClaudeAgent):
    pass


class TestPostgres(OnPostgres, ClaudeAgent):
    pass
