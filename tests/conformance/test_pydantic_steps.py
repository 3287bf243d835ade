"""The `StepStore` of `pydantic-ai-harness` on a store: it answers as theirs does, and stores each message once."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdproof import errors, sync
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

steps: Any = pytest.importorskip(
    "pydantic_ai_harness.step_persistence", reason="not installed: pip install pydantic-ai-harness"
)
messages: Any = pytest.importorskip("pydantic_ai.messages")
agents: Any = pytest.importorskip("pydantic_ai")
models: Any = pytest.importorskip("pydantic_ai.models.test")
adapter: Any = pytest.importorskip("holdproof.adapters.pydantic_ai")

AT = datetime(2026, 11, 19, 10, tzinfo=UTC)


def said(*texts: str) -> list[Any]:
    return [messages.ModelRequest(parts=[messages.UserPromptPart(text, timestamp=AT)], timestamp=AT) for text in texts]


def snapshot(n: int, history: list[Any], **fields: Any) -> Any:
    return steps.ContinuableSnapshot(run_id="r", step_index=n, messages=history, timestamp=AT, **fields)


def effect(id: str, status: str) -> Any:
    return steps.ToolEffectRecord(tool_call_id=id, tool_name="t", run_id="r", status=status, started_at=AT)


class Steps(OnStore):
    def test_it_answers_as_their_own_in_memory_does(self, store: sync.Holdproof) -> None:
        async def told(each: Any) -> list[Any]:
            for n, (run, parent) in enumerate((("late", None), ("early", "late"), ("r", "late"))):
                record = steps.RunRecord(
                    run_id=run, parent_run_id=parent, conversation_id="c", started_at=AT - timedelta(hours=n)
                )
                await each.register_run(record)
            for key in ("a", "b", "a", None, None):
                kind = "run_started"
                await each.append_event(
                    steps.StepEvent(run_id="r", kind=kind, step_index=1, timestamp=AT, idempotency_key=key)
                )
            for n, (texts, state) in enumerate(
                [
                    ("a", "complete"),
                    ("ab", "complete"),
                    ("xy", "interrupted"),
                    ("xyz", "interrupted"),
                    ("a", "complete"),
                ]
            ):
                await each.save_snapshot(snapshot(n, said(*texts), state=state, idempotency_key=f"{n}:k"))
            await each.save_snapshot(snapshot(9, said("again"), idempotency_key="4:k"))
            await each.save_snapshot(snapshot(10, said("ä", "ä"), state="interrupted"))
            for id, status in (("1", "started"), ("2", "started"), ("1", "completed"), ("ä/%", "started")):
                await each.record_tool_effect(effect(id, status))
            return [
                await each.get_run(run_id="early"),
                await each.get_run(run_id="none"),
                await each.list_runs(),
                await each.list_runs(parent_run_id="late"),
                await each.list_runs(parent_run_id="late", conversation_id="other"),
                await each.list_events(run_id="r"),
                await each.list_events(run_id="none"),
                await each.latest_snapshot(run_id="r"),
                await each.latest_snapshot(run_id="r", include_interrupted=True),
                await each.latest_snapshot(run_id="none"),
                await each.list_snapshots(run_id="r"),
                await each.list_snapshots(run_id="r", include_interrupted=True),
                await each.get_tool_effect(run_id="r", tool_call_id="1"),
                await each.get_tool_effect(run_id="r", tool_call_id="none"),
                await each.list_unresolved_tool_effects(run_id="r"),
            ]

        ours = asyncio.run(told(adapter.HoldproofStepStore(store)))
        assert ours == asyncio.run(told(steps.InMemoryStepStore()))
        assert isinstance(adapter.HoldproofStepStore(store), steps.StepStore)

    def test_their_capability_records_a_run_that_goes_on_from_its_snapshot(self, store: sync.Holdproof) -> None:
        async def work() -> None:
            saved = adapter.HoldproofStepStore(store)
            capability = steps.StepPersistence(store=saved, run_id="first")
            agent = agents.Agent(models.TestModel(custom_output_text="done"), capabilities=[capability])

            @agent.tool_plain  # type: ignore[untyped-decorator]
            def find(number: int) -> str:
                return f"order {number}"

            result = await agent.run("Where is my order?")
            history = await steps.continue_run(saved, run_id="first")
            assert history == result.all_messages()
            kinds = [event.kind for event in await saved.list_events(run_id="first")]
            assert (kinds[0], kinds[-1]) == ("run_started", "run_completed")
            assert "tool_call_completed" in kinds
            assert await saved.list_unresolved_tool_effects(run_id="first") == []
            with pytest.raises(ValueError, match="single-shot"):
                await agent.run("again")

        asyncio.run(work())
        assert store.verify.run().verdict.sound

    def test_a_run_is_registered_once(self, store: sync.Holdproof) -> None:
        async def work() -> None:
            saved = adapter.HoldproofStepStore(store)
            record = steps.RunRecord(run_id="r", started_at=AT, registration_id="one")
            await saved.register_run(record)
            await saved.register_run(record)
            with pytest.raises(errors.AlreadyExistsError):
                await saved.register_run(steps.RunRecord(run_id="r", started_at=AT, registration_id="two"))
            assert (await saved.get_run(run_id="r")).registration_id == "one"

        asyncio.run(work())

    def test_a_message_is_stored_once_and_a_snapshot_costs_what_it_adds(self, store: sync.Holdproof) -> None:
        async def work() -> None:
            saved = adapter.HoldproofStepStore(store)
            texts = [f"{n}: " + "x" * 1000 for n in range(60)]
            for n in range(1, 61):
                await saved.save_snapshot(snapshot(n, said(*texts[:n])))
            latest = await saved.latest_snapshot(run_id="r")
            assert latest.messages == said(*texts)

        asyncio.run(work())
        stored = {
            one.name: sum(len(json.dumps(item.value)) for item in store.transcripts.list_items(one.name).items)
            for one in store.transcripts.list(prefix="pydantic-ai-").items
        }
        assert 60_000 < sum(stored.values()) < 110_000, stored

    def test_erasing_a_person_removes_their_runs(self, store: sync.Holdproof) -> None:
        async def work() -> None:
            saved = adapter.HoldproofStepStore(store, subject="Ada")
            await saved.register_run(steps.RunRecord(run_id="r", started_at=AT))
            await saved.append_event(steps.StepEvent(run_id="r", kind="run_started", step_index=0))
            await saved.save_snapshot(snapshot(1, said("hello")))
            await saved.record_tool_effect(effect("1", "started"))

        asyncio.run(work())
        store.erase.subject("Ada")
        assert store.transcripts.list(prefix="pydantic-ai-").items == []
        assert store.verify.run().verdict.sound

    def test_a_snapshot_whose_message_is_gone_is_an_error(self, store: sync.Holdproof) -> None:
        async def work() -> None:
            saved = adapter.HoldproofStepStore(store)
            await saved.save_snapshot(snapshot(1, said("hello")))
            store.transcripts.delete("pydantic-ai-messages/r")
            with pytest.raises(errors.FormatError, match="gone"):
                await saved.latest_snapshot(run_id="r")

        asyncio.run(work())


class TestSqlite(OnSqlite, Steps):
    pass


class TestMemory(InMemory, Steps):
    pass


class TestPostgres(OnPostgres, Steps):
    pass
