"""Pydantic AI on a store: messages come back as they were, a deferred run goes on once and as it was answered."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.client import Holdproof
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

ai: Any = pytest.importorskip("pydantic_ai", reason="not installed: pip install pydantic-ai-slim")
said: Any = pytest.importorskip("pydantic_ai.messages")
models: Any = pytest.importorskip("pydantic_ai.models.function")
adapter: Any = pytest.importorskip("holdproof.adapters.pydantic_ai")


class Shop:
    """An agent whose model asks for two refunds once it is told to pay."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.fails = False

        def script(messages: list[Any], _: Any) -> Any:
            last = messages[-1].parts[-1]
            if isinstance(last, said.ToolReturnPart):
                if self.fails:
                    raise TimeoutError("the model does not answer")
                return said.ModelResponse(parts=[said.TextPart(f"done: {last.content}")])
            if last.content == "pay":
                calls = [said.ToolCallPart("refund", {"euros": n}, tool_call_id=f"call-{n}") for n in (30, 5)]
                return said.ModelResponse(parts=calls)
            return said.ModelResponse(parts=[said.TextPart(f"heard {len(messages)}")])

        def refund(euros: int) -> str:
            self.paid.append(euros)
            return f"paid {euros}"

        tool = ai.Tool(refund, requires_approval=True, sequential=True)
        self.agent = ai.Agent(models.FunctionModel(script), output_type=[str, ai.DeferredToolRequests], tools=[tool])


Act = Callable[[Holdproof, Shop, Any, Any], Coroutine[Any, Any, Any]]


class PydanticAi(OnStore):
    def acted(self, store: sync.Holdproof, act: Act) -> Any:
        face = Holdproof(store.core)
        approvals = adapter.HoldproofApprovals(face, agent_id="shop")
        return asyncio.run(act(face, Shop(), adapter.HoldproofHistory("ada", face), approvals))

    def test_messages_come_back_as_they_were(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, history: Any, _: Any) -> None:
            first = await history.run(shop.agent, ["Hello", ai.BinaryContent(b"\0\xff", media_type="image/png")])
            second = await history.run(shop.agent, "ä \0")
            assert (first.output, second.output) == ("heard 1", "heard 3")
            assert await history.messages() == second.all_messages()
            assert await history.messages(last=1) == second.all_messages()[-1:]
            await history.clear()
            assert await history.messages() == []

        self.acted(live, work)

    def test_a_run_that_fails_leaves_the_history_as_it_was(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, history: Any, _: Any) -> None:
            await history.run(shop.agent, "Hello")
            before = await history.messages()
            with pytest.raises(AttributeError):
                await history.run(shop.agent, "Hello", instructions=lambda: None.nothing)  # type: ignore[attr-defined]
            assert await history.messages() == before

        self.acted(live, work)

    def test_runs_at_the_same_time_both_stay_whole_or_the_later_is_refused(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, history: Any, _: Any) -> None:
            await asyncio.gather(*(history.run(shop.agent, f"turn {n}") for n in range(4)))
            found = await history.messages()
            assert [message.kind for message in found] == ["request", "response"] * 4
            ended = await asyncio.gather(
                *(history.run(shop.agent, "alone", alone=True) for _ in range(3)), return_exceptions=True
            )
            assert sum(isinstance(each, errors.ConflictError) for each in ended) == 2
            assert len(await history.messages()) == 10

        self.acted(live, work)

    def test_what_is_no_message_is_an_error(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, history: Any, _: Any) -> None:
            await face.transcripts.append("pydantic-ai/ada", [{"kind": "nothing"}])
            with pytest.raises(errors.FormatError):
                await history.messages()

        self.acted(live, work)

    @pytest.mark.parametrize(
        ("decision", "answer", "paid"),
        [
            ("approve", None, [30, 5]),
            ("reject", None, []),
            ("approve", {"calls": [{"id": "call-5"}]}, [5]),
            ("approve", {"calls": [{"id": "call-30", "arguments": {"euros": 1}}]}, [1]),
            ("approve", {"calls": [{"id": "call-30", "approved": False, "message": "no"}, {"id": "call-5"}]}, [5]),
        ],
    )
    def test_a_deferred_run_goes_on_as_it_was_answered(
        self, live: sync.Holdproof, decision: str, answer: Any, paid: list[int]
    ) -> None:
        async def work(face: Holdproof, shop: Shop, history: Any, approvals: Any) -> None:
            stopped = await history.run(shop.agent, "pay")
            asked = await approvals.pause(stopped)
            assert [call["id"] for call in asked.proposal["calls"]] == ["call-30", "call-5"]
            await face.escalations.resolve(asked.id, decision, by="grace", proposal=answer)
            both = await asyncio.gather(*(approvals.resume(shop.agent, asked.id, history=history) for _ in range(3)))
            assert shop.paid == paid
            assert {each.output.partition(":")[0] for each in both} == {"done"}
            assert len(await history.messages()) == 4

        self.acted(live, work)

    def test_a_run_that_failed_is_not_run_again_unless_that_is_said(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, history: Any, approvals: Any) -> None:
            asked = await approvals.pause(await history.run(shop.agent, "pay"))
            await face.escalations.resolve(asked.id, "approve", by="grace")
            shop.fails = True
            with pytest.raises(TimeoutError):
                await approvals.resume(shop.agent, asked.id)
            shop.fails = False
            with pytest.raises(errors.ReplayedError):
                await approvals.resume(shop.agent, asked.id)
            assert shop.paid == [30, 5]

        self.acted(live, work)

    def test_what_waits_for_nobody_is_refused(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, shop: Shop, history: Any, approvals: Any) -> None:
            with pytest.raises(errors.InvalidInputError):
                await approvals.pause(await history.run(shop.agent, "Hello"))

        self.acted(live, work)


class TestSqlite(OnSqlite, PydanticAi):
    pass


class TestMemory(InMemory, PydanticAi):
    pass


class TestPostgres(OnPostgres, PydanticAi):
    pass
