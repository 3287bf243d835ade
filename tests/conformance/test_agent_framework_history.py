"""The history provider of the Microsoft Agent Framework on a store: it answers as their own does, and loses nothing."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.client import Holdproof
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

framework: Any = pytest.importorskip("agent_framework", reason="not installed: pip install agent-framework-core")
adapter: Any = pytest.importorskip("holdproof.adapters.agent_framework")


def said(*texts: str, role: str = "user") -> list[Any]:
    return [framework.Message(role, [text]) for text in texts]


def texts(messages: list[Any]) -> list[str]:
    return [message.text for message in messages]


Act = Callable[[Holdproof], Coroutine[Any, Any, Any]]


class Echo(framework.BaseChatClient):  # type: ignore[misc]
    """Answers how many messages it was shown."""

    async def _answer(self, messages: Any) -> Any:
        answer = framework.Message("assistant", [f"{len(messages)} messages"])
        return framework.ChatResponse(messages=[answer])

    def _inner_get_response(self, *, messages: Any, **_: Any) -> Any:
        return self._answer(messages)


class Histories(OnStore):
    def acted(self, store: sync.Holdproof, act: Act) -> Any:
        return asyncio.run(act(Holdproof(store.core)))

    def test_a_history_is_what_their_own_provider_makes_of_the_same_saves(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            ours = adapter.HoldproofHistoryProvider(client)
            theirs = framework.InMemoryHistoryProvider()
            state: dict[str, Any] = {}
            call = framework.Content.from_function_call("c1", "find", arguments={"order": 7})
            history = [*said("one", "zwei ä"), framework.Message("assistant", [call])]
            saves = [
                said("hello"),
                said("hello"),
                history,
                history,
                [*history, *said("more", role="assistant")],
                said("more", role="assistant"),
                [*said("more", role="assistant"), *said("and", "and")],
                said("and"),
                [],
            ]
            for messages in saves:
                await ours.save_messages("s", messages)
                await theirs.save_messages("s", messages, state=state)
                expected = await theirs.get_messages("s", state=state)
                stored = await ours.get_messages("s")
                assert [each.to_dict() for each in stored] == [each.to_dict() for each in expected]

        self.acted(live, work)

    def test_sessions_are_apart_whatever_their_ids_hold(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            provider = adapter.HoldproofHistoryProvider(client)
            ids = ["a", "a/b", "a%2Fb", "ä \0", "", None, "default/"]
            for n, session in enumerate(ids):
                await provider.save_messages(session, said(str(n)))
            assert [texts(await provider.get_messages(session)) for session in ids] == [[str(n)] for n in range(7)]
            assert await provider.get_messages("none") == []

        self.acted(store, work)

    def test_an_agent_goes_on_where_another_process_stopped(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            for expected in ("1 messages", "3 messages", "5 messages"):
                provider = adapter.HoldproofHistoryProvider(client)
                agent = framework.Agent(Echo(), context_providers=[provider])
                answer = await agent.run("and now?", session=agent.create_session(session_id="chat"))
                assert answer.text == expected

        self.acted(store, work)

    def test_racing_saves_are_each_whole_and_none_is_lost(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            providers = [adapter.HoldproofHistoryProvider(client) for _ in range(8)]
            await asyncio.gather(
                *(each.save_messages("s", said(f"{n} asks", f"{n} adds")) for n, each in enumerate(providers))
            )
            stored = texts(await providers[0].get_messages("s"))
            assert sorted(stored[::2]) == [f"{n} asks" for n in range(8)]
            assert stored[1::2] == [each.replace("asks", "adds") for each in stored[::2]]

        self.acted(live, work)

    def test_what_json_would_change_is_refused_with_its_whole_save(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            provider = adapter.HoldproofHistoryProvider(client)
            odd = framework.Message("user", ["odd"], additional_properties={"numbers": {1: float("nan")}})
            with pytest.raises(errors.InvalidInputError):
                await provider.save_messages("s", [*said("plain"), odd])
            assert await provider.get_messages("s") == []

        self.acted(store, work)

    def test_what_a_compaction_excluded_is_left_out_where_that_is_asked_for(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            excluded = framework.Message("user", ["old"], additional_properties={"_excluded": True})
            await adapter.HoldproofHistoryProvider(client).save_messages("s", [excluded, *said("new")])
            assert texts(await adapter.HoldproofHistoryProvider(client).get_messages("s")) == ["old", "new"]
            skipping = adapter.HoldproofHistoryProvider(client, skip_excluded=True)
            assert texts(await skipping.get_messages("s")) == ["new"]

        self.acted(store, work)

    def test_a_row_that_cannot_be_read_is_an_error(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            await client.transcripts.append("agent-framework-history/s", ["no message"])
            with pytest.raises(errors.FormatError):
                await adapter.HoldproofHistoryProvider(client).get_messages("s")

        self.acted(store, work)

    def test_erasing_a_person_removes_that_persons_histories(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            await adapter.HoldproofHistoryProvider(client, subject="Ada").save_messages("a", said("secret"))
            await adapter.HoldproofHistoryProvider(client).save_messages("b", said("plain"))
            await client.erase.subject("Ada")
            provider = adapter.HoldproofHistoryProvider(client)
            assert await provider.get_messages("a") == []
            assert texts(await provider.get_messages("b")) == ["plain"]
            assert (await client.verify.run()).verdict.sound

        self.acted(store, work)


class TestSqlite(OnSqlite, Histories):
    pass


class TestMemory(InMemory, Histories):
    pass


class TestPostgres(OnPostgres, Histories):
    pass


def test_a_provider_opens_the_store_that_it_is_given_and_closes_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with adapter.HoldproofHistoryProvider(tmp_path / "store") as provider:
            await provider.save_messages("s", said("hello"))
        with pytest.raises(errors.ClosedError):
            await provider.get_messages("s")
        async with adapter.HoldproofHistoryProvider(tmp_path / "store") as provider:
            assert texts(await provider.get_messages("s")) == ["hello"]

    asyncio.run(work())
