"""OpenAI Agents on a store: nothing of a session is lost, a paused run goes on once and as it was answered."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.client import Holdproof
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

agents: Any = pytest.importorskip("agents", reason="not installed: pip install openai-agents")
scripted: Any = pytest.importorskip("agents.testing", reason="openai-agents without scripted models")
adapter: Any = pytest.importorskip("holdproof.adapters.openai_agents")
places: Any = pytest.importorskip("holdproof.adapters.shared_store")

CALLS = [("refund", {"euros": 30}, "call-1"), ("refund", {"euros": 5}, "call-2")]


class Shop:
    """An agent that asks for two refunds, and what became of them."""

    def __init__(self, *more: Any) -> None:
        agents.set_tracing_disabled(True)
        self.paid: list[int] = []

        def refund(euros: int) -> str:
            self.paid.append(euros)
            return f"paid {euros}"

        calls = [scripted.function_call(name, given, call_id=id) for name, given, id in CALLS]
        self.model = scripted.ScriptedModel([calls, *more, [scripted.assistant_message("done")]])
        tool = agents.function_tool(refund, needs_approval=True)
        self.agent = agents.Agent(name="shop", model=self.model, tools=[tool])

    async def stopped(self, **options: Any) -> Any:
        return await agents.Runner.run(self.agent, "pay me back", **options)

    def told(self) -> list[str]:
        """What the model was told of its calls at the end."""
        said = self.model.last_call.input
        return [item["output"] for item in said if item.get("type") == "function_call_output"]


Act = Callable[[Holdproof, Shop, Any], Coroutine[Any, Any, Any]]


class OpenaiAgents(OnStore):
    def acted(self, store: sync.Holdproof, act: Act, shop: Shop | None = None) -> Any:
        """Run something on the async face of the store, with approvals of its own."""
        face = Holdproof(store.core)
        return asyncio.run(act(face, shop or Shop(), adapter.HoldproofApprovals(face, agent_id="shop")))

    # --- sessions ----------------------------------------------------------------------------------------------------

    def test_it_is_a_session(self, store: sync.Holdproof) -> None:
        assert isinstance(adapter.HoldproofSession("s", store), agents.memory.Session)

    def test_racing_writers_lose_no_item(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, _: Any) -> list[Any]:
            sessions = [adapter.HoldproofSession("s", face) for _ in range(8)]

            async def add(number: int) -> None:
                for turn in range(5):
                    pair = [{"role": "user", "content": f"{number} {turn}"}, {"role": "assistant", "content": turn}]
                    await sessions[number].add_items(pair)

            await asyncio.gather(*(add(number) for number in range(8)))
            return list(await sessions[0].get_items())

        found = self.acted(live, work)
        assert len(found) == 80
        assert all(found[at]["content"].endswith(f" {found[at + 1]['content']}") for at in range(0, 80, 2))

    def test_sessions_and_namespaces_do_not_see_each_other(self, store: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, _: Any) -> None:
            one, other = adapter.HoldproofSession("a", face), adapter.HoldproofSession("b", face)
            tenant = adapter.HoldproofSession("a", face, ns="tenant")
            await one.add_items([{"content": "mine"}])
            assert await other.get_items() == await tenant.get_items() == []
            await tenant.clear_session()
            assert len(await one.get_items()) == 1
            listed = await adapter.session_ids(face)
            assert listed == ["a"]

        self.acted(store, work)

    def test_a_cancelled_caller_learns_it_once_its_items_are_there(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, _: Any) -> None:
            session = adapter.HoldproofSession("s", face)
            adding = asyncio.create_task(session.add_items([{"content": "kept"}]))
            await asyncio.sleep(0)
            adding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await adding
            assert await session.get_items() == [{"content": "kept"}]

        self.acted(live, work)

    # --- runs that wait for a person ---------------------------------------------------------------------------------

    def test_an_approved_run_goes_on_from_the_stored_state(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, approvals: Any) -> None:
            asked = await approvals.pause(await shop.stopped(), reason="refunds")
            assert asked.proposal == {"calls": [{"id": i, "tool": t, "arguments": a} for t, a, i in CALLS]}
            assert (await face.flows.get(asked.flow_id)).status == "WAITING_ESCALATION"
            assert shop.paid == []
            await face.escalations.resolve(asked.id, "approve", by="grace")
            ended = await approvals.resume(shop.agent, asked.id)
            assert (ended.output, ended.escalation, sorted(shop.paid)) == ("done", None, [5, 30])
            assert (await face.flows.get(asked.flow_id)).status == "COMPLETED"

        self.acted(live, work)

    def test_a_rejected_run_is_told_why_and_no_tool_runs(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, approvals: Any) -> None:
            asked = await approvals.pause(await shop.stopped())
            await face.escalations.resolve(asked.id, "reject", by="grace", comment="too much")
            ended = await approvals.resume(shop.agent, asked.id)
            assert (ended.output, shop.paid, shop.told()) == ("done", [], ["too much", "too much"])

        self.acted(live, work)

    def test_a_deadline_that_passes_rejects(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, approvals: Any) -> None:
            asked = await approvals.pause(await shop.stopped(), deadline_s=0.01)
            ended = await approvals.resume(shop.agent, asked.id)
            assert (ended.output, shop.paid) == ("done", [])

        self.acted(live, work)

    def test_calls_are_answered_one_by_one_and_one_that_is_not_named_is_rejected(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, approvals: Any) -> None:
            asked = await approvals.pause(await shop.stopped())
            answer = {"calls": [{"id": "call-2"}]}
            await face.escalations.resolve(asked.id, "approve", by="grace", proposal=answer)
            await approvals.resume(shop.agent, asked.id)
            assert shop.paid == [5]

        self.acted(live, work)

    def test_changed_arguments_are_refused_rather_than_run_as_they_were(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, approvals: Any) -> None:
            asked = await approvals.pause(await shop.stopped())
            answer = {"calls": [{"id": "call-1", "arguments": {"euros": 1}}, {"id": "call-2"}]}
            await face.escalations.resolve(asked.id, "approve", by="grace", proposal=answer)
            with pytest.raises(errors.InvalidInputError):
                await approvals.state(shop.agent, asked.id)
            assert shop.paid == []

        self.acted(live, work)

    def test_of_racing_callers_one_runs_and_all_get_its_output(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, approvals: Any) -> None:
            asked = await approvals.pause(await shop.stopped())
            await face.escalations.resolve(asked.id, "approve", by="grace")
            ended = await asyncio.gather(*(approvals.resume(shop.agent, asked.id) for _ in range(5)))
            assert {each.output for each in ended} == {"done"}
            assert sum(each.result is not None for each in ended) == 1
            assert sorted(shop.paid) == [5, 30]

        self.acted(live, work)

    def test_a_run_that_failed_is_not_run_again_unless_that_is_said(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, approvals: Any) -> None:
            asked = await approvals.pause(await shop.stopped())
            await face.escalations.resolve(asked.id, "approve", by="grace")
            with pytest.raises(TimeoutError):
                await approvals.resume(shop.agent, asked.id)
            with pytest.raises(errors.ReplayedError):
                await approvals.resume(shop.agent, asked.id)
            assert sorted(shop.paid) == [5, 30]

        self.acted(live, work, Shop(TimeoutError("the model does not answer")))

    def test_a_run_that_stops_again_asks_again_in_its_flow_and_on_its_terms(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, approvals: Any) -> None:
            asked = await approvals.pause(await shop.stopped(), reason="refunds", impact="LOW_IMPACT", deadline_s=3600)
            await face.escalations.resolve(asked.id, "approve", by="grace")
            stopped = await approvals.resume(shop.agent, asked.id)
            again = await face.escalations.get(stopped.escalation)
            assert (again.flow_id, again.proposal["calls"][0]["id"]) == (asked.flow_id, "call-3")
            assert (again.reason, again.impact, again.on_deadline) == ("refunds", "LOW_IMPACT", "reject")
            assert again.deadline is not None
            assert again.context["terms"] == asked.context["terms"] == {"deadline_s": 3600}
            await face.escalations.resolve(again.id, "approve", by="grace")
            ended = await approvals.resume(shop.agent, again.id)
            assert (ended.output, sorted(shop.paid)) == ("done", [1, 5, 30])

        self.acted(live, work, Shop([scripted.function_call("refund", {"euros": 1}, call_id="call-3")]))

    def test_what_is_no_paused_run_is_refused(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, approvals: Any) -> None:
            asked = await approvals.pause(await shop.stopped())
            with pytest.raises(errors.ConflictError):
                await approvals.resume(shop.agent, asked.id, timeout_s=0)
            flow = await face.flows.start("shop")
            await face.flows.transition(flow.flow_id, "RUNNING")
            other = await face.escalations.request(flow.flow_id, reason="something else")
            await face.escalations.resolve(other.id, "approve", by="grace")
            with pytest.raises(errors.InvalidInputError):
                await approvals.resume(shop.agent, other.id)

        self.acted(live, work)

    def test_what_was_approved_is_what_is_in_the_log(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, approvals: Any) -> dict[str, Any]:
            asked = await approvals.pause(await shop.stopped())
            return dict((await face.escalations.get(asked.id)).context)

        about = self.acted(live, work)
        assert about["framework"] == "openai-agents"
        assert len(json.loads(about["state"])["model_responses"]) == 1


class TestSqlite(OnSqlite, OpenaiAgents):
    def test_sessions_of_one_folder_share_a_store_until_the_last_is_closed(self, tmp_path: Path) -> None:
        async def work() -> None:
            one, other = (adapter.HoldproofSession(name, tmp_path / "chats") for name in "ab")
            await one.add_items([{"content": 1}])
            assert await other.get_items() == []
            assert len(places._CORES) == 1
            one.close()
            one.close()
            with pytest.raises(errors.ClosedError):
                await one.add_items([])
            await other.add_items([{"content": 2}])
            other.close()
            assert places._CORES == {}
            async with adapter.HoldproofSession("a", tmp_path / "chats") as again:
                assert await again.get_items() == [{"content": 1}]

        asyncio.run(work())


class TestMemory(InMemory, OpenaiAgents):
    pass


class TestPostgres(OnPostgres, OpenaiAgents):
    pass
