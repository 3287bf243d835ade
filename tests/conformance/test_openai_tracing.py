"""Traces of OpenAI Agents in a store: every span of a run, counted by agent and tool, and never in a run's way."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdproof import errors, sync
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

agents: Any = pytest.importorskip("agents", reason="not installed: pip install openai-agents")
tracing: Any = pytest.importorskip("agents.tracing")
scripted: Any = pytest.importorskip("agents.testing", reason="openai-agents without scripted models")
adapter: Any = pytest.importorskip("holdproof.adapters.openai_agents")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    provider = tracing.get_trace_provider()
    yield
    tracing.set_trace_provider(provider)
    tracing.set_tracing_disabled(True)


def run(processor: Any, *, fails: bool = False) -> None:
    """A run with a handed-over agent, a tool and two model calls, traced by this processor alone."""
    provider = tracing.setup.DefaultTraceProvider() if hasattr(tracing.setup, "DefaultTraceProvider") else None
    if provider is None:
        provider = pytest.importorskip("agents.tracing.provider").DefaultTraceProvider()
    tracing.set_trace_provider(provider)
    provider.set_disabled(False)
    provider.set_processors([processor])

    def look_up(order: int) -> str:
        if fails:
            raise ValueError("no such order")
        return f"order {order} is on its way"

    tool = agents.function_tool(look_up, failure_error_function=None)
    calls = [scripted.function_call("look_up", {"order": 7}, call_id="c1")]
    model = scripted.ScriptedModel([calls, [scripted.assistant_message("secret words")]])
    agent = agents.Agent(name="shop", model=model, tools=[tool])
    with agents.trace("orders", group_id="customer-42"):
        asyncio.run(agents.Runner.run(agent, "Where is it?"))
        with tracing.generation_span(
            input=[{"role": "user", "content": "secret words"}],
            model="gpt-x",
            usage={"input_tokens": 7, "output_tokens": 2},
        ):
            pass


class Traces(OnStore):
    def test_the_spans_of_a_run_are_there_with_their_agent_tool_and_tokens(self, live: sync.Holdproof) -> None:
        processor = adapter.HoldproofTracingProcessor(live)
        run(processor)
        processor.force_flush()
        page = live.telemetry.query()
        events = {event.data["name"]: event for event in page}
        assert {"invoke_agent shop", "execute_tool look_up", "chat gpt-x"} <= events.keys()
        assert processor.lost == 0
        tool = events["execute_tool look_up"].data
        assert tool["gen_ai"] == {
            "operation": "execute_tool",
            "agent": "shop",
            "tool": "look_up",
            "conversation": "customer-42",
        }
        assert tool["attributes"]["openai.workflow.name"] == "orders"
        assert len({event.trace_id for event in page}) == 1
        spans = {event.span_id for event in page}
        assert tool["parent_span_id"] in spans
        assert "secret words" not in repr([event.data for event in page])
        [by_model] = [each for each in live.telemetry.usage(by="model").groups if each.name == "gpt-x"]
        assert (by_model.input_tokens, by_model.output_tokens) == (7, 2)
        assert "shop" in {each.name for each in live.telemetry.usage(by="agent").groups}
        processor.shutdown()

    def test_content_is_there_where_it_is_asked_for(self, live: sync.Holdproof) -> None:
        processor = adapter.HoldproofTracingProcessor(live, content=True)
        run(processor)
        processor.shutdown()
        attributes = {event.data["name"]: event.data["attributes"] for event in live.telemetry.query()}
        assert attributes["execute_tool look_up"]["gen_ai.tool.call.arguments"] == '{"order":7}'
        assert attributes["execute_tool look_up"]["gen_ai.tool.call.result"] == "order 7 is on its way"
        assert "secret words" in attributes["chat gpt-x"]["gen_ai.input.messages"]

    def test_what_fails_is_an_error_in_its_span(self, live: sync.Holdproof) -> None:
        processor = adapter.HoldproofTracingProcessor(live)
        with pytest.raises(agents.exceptions.UserError):
            run(processor, fails=True)
        processor.shutdown()
        statuses = {event.data["name"]: event.data.get("status", {}) for event in live.telemetry.query()}
        assert statuses["execute_tool look_up"]["code"] == "ERROR"


class TestSqlite(OnSqlite, Traces):
    pass


class TestMemory(InMemory, Traces):
    pass


class TestPostgres(OnPostgres, Traces):
    pass


def test_a_store_that_fails_loses_spans_and_says_so_but_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = sync.open(tmp_path)
    processor = adapter.HoldproofTracingProcessor(store)
    store.close()
    run(processor)
    processor.force_flush()
    assert processor.lost > 3
    assert "spans were not kept" in caplog.text
    processor.shutdown()


def test_spans_after_the_end_are_counted(tmp_path: Path) -> None:
    processor = adapter.HoldproofTracingProcessor(tmp_path / "store")
    run(processor)
    processor.shutdown()
    run(processor)
    assert processor.lost > 3
    processor.shutdown()


def test_a_store_of_one_namespace_is_refused(tmp_path: Path) -> None:
    with sync.open(tmp_path, ns="tenant") as store, pytest.raises(errors.NamespaceError):
        adapter.HoldproofTracingProcessor(store)
