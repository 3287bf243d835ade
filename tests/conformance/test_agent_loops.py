"""Runs of agents as flows: their calls on record, their approvals answered in the inbox or by the program."""

import asyncio
from collections.abc import Callable, Coroutine
from decimal import Decimal
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.client import Holdproof
from tests.conformance.agents import FRAMEWORKS, Shop, shop
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

Act = Callable[[Holdproof], Coroutine[Any, Any, Any]]


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def acting(store: sync.Holdproof, act: Act) -> Any:
    """What is done with the async client of the store."""
    return asyncio.run(act(Holdproof(store.core)))


async def asked(store: Holdproof, running: "asyncio.Future[Any]") -> Any:
    """The escalation that a run waits for."""
    while not running.done():
        pending = (await store.escalations.list(status="PENDING")).items
        if pending:
            return pending[0]
        await asyncio.sleep(0.01)
    return await running


class Loops(OnStore):
    def test_every_call_of_a_run_is_a_step_and_the_same_id_is_the_same_run(
        self, live: sync.Holdproof, framework: str
    ) -> None:
        seen = Shop()

        async def act(store: Holdproof) -> None:
            agent = shop(framework, seen, store, price=lambda model, usage: Decimal("0.25"))
            first = await agent.run("look", flow_id="case-1")
            again = await agent.run("look", flow_id="case-1")
            assert first.output == again.output == "heard: seen 3"
            assert (first.result is None, again.result is None) == (False, True)

        acting(live, act)
        assert seen.calls == ["model", "look 3", "model"]
        steps = live.flows.steps("case-1")
        assert [step.name for step in steps] == ["model scripted", "tool look", "model scripted"]
        assert steps[1].arguments["kwargs"] == {"tool": "look", "arguments": {"order": 3}}
        assert steps[1].result == "seen 3"
        request = steps[2].arguments["kwargs"]
        assert {tool["name"] for tool in request["tools"]} == {"look", "refund"}
        # The instructions, the question, the call and its result, in whichever form the framework has them.
        assert all(word in str(request["messages"]) for word in ("Be kind.", "look", "seen 3"))
        assert steps[2].result["usage"] == {"input_tokens": 11, "output_tokens": 7}
        assert steps[2].result["cost_usd"] == "0.25"
        assert live.flows.get("case-1").status == "COMPLETED"

    def test_an_approval_is_one_escalation_that_anybody_answers(self, live: sync.Holdproof, framework: str) -> None:
        seen = Shop()

        async def act(store: Holdproof) -> None:
            agent = shop(framework, seen, store)
            running = asyncio.ensure_future(agent.run("refund", flow_id="case-1"))
            escalation = await asked(store, running)
            [call] = escalation.proposal["calls"]
            assert (call["tool"], call["arguments"]) == ("refund", {"euros": 30})
            assert escalation.context == {"framework": agent.framework}
            assert "refund 30" not in seen.calls
            await store.escalations.resolve(escalation.id, "approve", by="grace")
            assert (await running).output == "heard: paid 30"

        acting(live, act)
        assert seen.calls.count("refund 30") == 1

    def test_a_call_that_is_refused_does_not_happen_and_the_agent_goes_on(
        self, live: sync.Holdproof, framework: str
    ) -> None:
        seen = Shop()

        async def act(store: Holdproof) -> str:
            agent = shop(framework, seen, store)
            running = asyncio.ensure_future(agent.run("refund", flow_id="case-1"))
            escalation = await asked(store, running)
            id = escalation.proposal["calls"][0]["id"]
            with pytest.raises(errors.InvalidInputError, match="asks about no call nothing"):
                await agent.answer(escalation.id, {"nothing": True}, by="grace")
            await agent.answer(escalation.id, {id: "too much"}, by="grace")
            return str((await running).output)

        assert acting(live, act).startswith("heard: ")
        assert not [call for call in seen.calls if call.startswith("refund")]
        assert live.flows.get("case-1").status == "COMPLETED"

    def test_a_rejection_ends_the_run(self, live: sync.Holdproof, framework: str) -> None:
        seen = Shop()

        async def act(store: Holdproof) -> None:
            agent = shop(framework, seen, store)
            running = asyncio.ensure_future(agent.run("refund", flow_id="case-1"))
            escalation = await asked(store, running)
            await store.escalations.resolve(escalation.id, "reject", by="grace")
            with pytest.raises(errors.FlowEndedError):
                await running

        acting(live, act)
        assert not [call for call in seen.calls if call.startswith("refund")]

    def test_an_agent_outside_a_flow_is_as_it_was(self, live: sync.Holdproof, framework: str) -> None:
        seen = Shop()

        async def act(store: Holdproof) -> None:
            agent = shop(framework, seen, store)
            assert await seen.plainly(agent, "look") == "heard: seen 3"

        acting(live, act)
        assert live.flows.list().items == []


class TestSqlite(Loops, OnSqlite):
    pass


class TestMemory(Loops, InMemory):
    pass


class TestPostgres(Loops, OnPostgres):
    pass
