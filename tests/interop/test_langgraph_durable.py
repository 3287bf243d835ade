"""Durable runs of LangGraph: nodes, tasks, tools and interrupts, async and not; each is made again from its record."""

import asyncio
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="langgraph is not installed")

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import InjectedToolArg, tool
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from holdproof import errors, sync
from holdproof.adapters.langgraph import HoldproofAgent, HoldproofSaver, durable
from holdproof.client import Holdproof


class Model(BaseChatModel):
    """Says the last message in capitals; or asks for the tool that it names, as `name:argument`."""

    calls: list[str] = []  # noqa: RUF012 (pydantic copies it)

    @property
    def _llm_type(self) -> str:
        return "capitals"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=[each.name for each in tools], **kwargs)

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        last = messages[-1]
        self.calls.append(last.text)
        name, _, argument = last.text.partition(":")
        if argument and not isinstance(last, ToolMessage):
            call = {"name": name, "args": {"value": argument}, "id": f"call-{len(messages)}"}
            return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=[call]))])
        return ChatResult(generations=[ChatGeneration(message=AIMessage(last.text.upper()))])


class Streaming(Model):
    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> Any:
        self.calls.append(messages[-1].text)
        for letter in messages[-1].text:
            yield ChatGenerationChunk(message=AIMessageChunk(content=letter.upper()))


class Words(TypedDict, total=False):
    words: Annotated[list[str], operator.add]
    answer: Any


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sync.Holdproof]:
    url, home = (None, tmp_path) if request.param == "sqlite" else request.getfixturevalue("postgres_store")
    with sync.open(home, url=url) as store:
        yield store
        assert store.verify.run(lock=False).verdict.sound


@pytest.fixture
def model() -> Model:
    return Model(calls=[])


def agent_of(store: sync.Holdproof, graph: Any, **options: Any) -> HoldproofAgent:
    return HoldproofAgent(graph, Holdproof(store.core), agent_id="writer", **options)


def ran(store: sync.Holdproof, graph: Any, prompt: Any, **options: Any) -> Any:
    """The output of a run; made again from its record, the run is the same, and nothing is called."""
    agent = agent_of(store, graph, **options)
    done = agent.run_sync(prompt, flow_id="case-1")
    same(agent)
    return done.output


def same(agent: HoldproofAgent) -> None:
    async def again() -> Any:
        return await (await agent._shared.store()).flows.replay("case-1")

    replay = asyncio.run(again())
    assert (replay.differences, replay.ends_at, replay.result_equal) == ((), None, True), replay


def names(store: sync.Holdproof) -> list[str]:
    return [step.name for step in store.flows.steps("case-1")]


def in_the_inbox(store: sync.Holdproof, agent: HoldproofAgent, prompt: Any, **answer: Any) -> Any:
    """The output of a run whose questions get this answer, and how they were shown."""
    shown: list[Any] = []

    async def act() -> Any:
        client = Holdproof(store.core)
        running = asyncio.ensure_future(agent.run(prompt, flow_id="case-1"))
        while not running.done():
            for escalation in (await client.escalations.list(status="PENDING")).items:
                shown.extend(escalation.proposal["calls"])
                await client.escalations.resolve(escalation.id, "approve", by="ada", **answer)
            await asyncio.wait({running}, timeout=0.01)
        return (await running).output

    return asyncio.run(act()), shown


def test_models_in_plain_nodes_are_steps_also_where_nothing_is_async(store: sync.Holdproof, model: Model) -> None:
    written = durable(model)

    def write(state: MessagesState) -> Any:
        return {"messages": [written.invoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_sequence([write]).add_edge(START, "write").compile()
    assert ran(store, graph, "hello") == "HELLO"
    assert (names(store), model.calls) == (["model Model"], ["hello"])
    [step] = store.flows.steps("case-1")
    assert step.arguments["kwargs"]["messages"] == [{"role": "user", "content": "hello"}]


def test_branches_that_run_at_once_are_made_again_as_they_came(store: sync.Holdproof, model: Model) -> None:
    written = durable(model)
    slow = asyncio.Event()

    async def fan(state: Words) -> Any:
        return Command(goto=[Send("branch", {"words": [f"branch {n}"]}) for n in range(3)])

    async def branch(state: Words) -> Any:
        [word] = state["words"]
        # The first comes last: it waits for the others, which have two calls each by then.
        if word == "branch 0" and not slow.is_set():
            await slow.wait()
        first = await written.ainvoke(word)
        second = await written.ainvoke(f"{first.text} again")
        if word == "branch 2":
            slow.set()
        return {"words": [second.text]}

    graph = StateGraph(Words).add_node("fan", fan, destinations=("branch",)).add_node("branch", branch)
    words = ran(store, graph.add_edge(START, "fan").compile(), {"words": []})["words"]
    assert words == [f"BRANCH {n} AGAIN" for n in range(3)]
    assert len(model.calls) == 6


def test_branches_of_plain_functions_run_in_threads_and_are_made_again(store: sync.Holdproof, model: Model) -> None:
    written = durable(model)

    def branch(name: str) -> Any:
        return lambda state: {"words": [written.invoke(written.invoke(name).text.lower() + " end").text]}

    graph = StateGraph(Words)
    for n in range(12):
        graph.add_node(f"b{n}", branch(f"b{n}")).add_edge(START, f"b{n}")
    words = ran(store, graph.compile(), {"words": []})["words"]
    assert sorted(words) == sorted(f"B{n} END" for n in range(12))
    assert len(model.calls) == 24


def test_tasks_of_the_functional_api_and_their_functions_are_steps(store: sync.Holdproof, model: Model) -> None:
    charged: list[int] = []
    written = durable(model)

    @durable
    def charge(cents: int) -> dict[str, int]:
        charged.append(cents)
        return {"charged": cents}

    @task
    async def order(n: int) -> Any:
        return {**charge_in_thread(n), "said": (await written.ainvoke(f"order {n}")).text}

    def charge_in_thread(n: int) -> Any:
        return {"n": n}

    @task
    def pay(n: int) -> Any:
        return charge(n)

    @entrypoint()
    async def buy(numbers: list[int]) -> Any:
        return [*[await order(n) for n in numbers], *[await pay(n) for n in numbers]]

    output = ran(store, buy, [1, 2])
    assert output == [{"n": 1, "said": "ORDER 1"}, {"n": 2, "said": "ORDER 2"}, {"charged": 1}, {"charged": 2}]
    assert (names(store), charged) == (["model Model", "model Model", "charge", "charge"], [1, 2])


def test_an_interrupt_of_a_node_is_an_escalation_and_its_answer_resumes(store: sync.Holdproof) -> None:
    def buy(state: Words) -> Any:
        return {"answer": interrupt({"cents": 500})}

    # No checkpointer, and nothing about the inbox: the agent is all that it takes.
    agent = agent_of(store, StateGraph(Words).add_sequence([buy]).add_edge(START, "buy").compile())
    changed = {"calls": [{"id": "buy 1", "approved": True, "arguments": {"cents": 100}}]}
    output, [shown] = in_the_inbox(store, agent, {"words": []}, proposal=changed)
    assert output["answer"] == {"cents": 100}
    assert shown == {"id": "buy 1", "tool": "buy", "arguments": {"cents": 500}}
    same(agent)


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_tool_that_interrupts_is_called_again_with_the_answers(
    store: sync.Holdproof, model: Model, kind: str
) -> None:
    paid: list[Any] = []

    def pay(value: str) -> str:
        """Pay."""
        answers = [interrupt({"pay": value, "number": number}) for number in range(2)]
        paid.append(answers)
        return f"paid {answers}"

    @tool("pay")
    async def async_pay(value: str) -> str:
        """Pay."""
        return pay(value)

    graph = tool_graph(model, [async_pay if kind == "async" else tool(pay)])
    agent = agent_of(store, graph.compile())
    output, shown = in_the_inbox(store, agent, "pay:7")
    assert (output, paid) == ("PAID [TRUE, TRUE]", [[True, True]])
    assert [each["arguments"]["number"] for each in shown] == [0, 1]
    same(agent)
    assert paid == [[True, True]]


def tool_graph(model: Model, tools: list[Any], **options: Any) -> Any:
    made = durable(tools)
    asking = durable(model).bind_tools(made)

    async def ask(state: MessagesState) -> Any:
        return {"messages": [await asking.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("ask", ask).add_node("tools", ToolNode(made, **options))
    return graph.add_edge(START, "ask").add_conditional_edges("ask", tools_condition).add_edge("tools", "ask")


def test_a_tool_that_raised_is_told_to_the_model_in_the_same_words_again(store: sync.Holdproof, model: Model) -> None:
    @tool
    def fail(value: str) -> str:
        """Fail."""
        raise ValueError(f"no {value}")

    output = ran(store, tool_graph(model, [fail], handle_tool_errors=True).compile(), "fail:luck")
    assert "NO LUCK" in output
    assert [step.state for step in store.flows.steps("case-1")] == ["DONE", "FAILED", "DONE"]


def test_arguments_that_no_tool_takes_are_an_answer_to_the_model_and_no_step(
    store: sync.Holdproof, model: Model
) -> None:
    @tool
    def count(value: int) -> str:
        """Count."""
        raise AssertionError

    assert "ERROR" in ran(store, tool_graph(model, [count]).compile(), "count:many")
    assert names(store) == ["model Model", "model Model"]


def test_what_a_tool_is_given_besides_is_not_recorded_and_what_it_gives_comes_back(
    store: sync.Holdproof, model: Model
) -> None:
    class State(MessagesState, total=False):
        noted: str

    @tool
    def note(value: str, secret: Annotated[str, InjectedToolArg] = "s3cret") -> Command[Any]:
        """Note."""
        answer = ToolMessage(f"noted {value}", tool_call_id="call-1")
        return Command(update={"messages": [answer], "noted": f"{value} {secret}"})

    [made] = durable([note], safe=True)
    asking = durable(model).bind_tools([made])
    graph = StateGraph(State).add_node("ask", lambda state: {"messages": [asking.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([made]))
    graph.add_edge(START, "ask").add_conditional_edges("ask", tools_condition).add_edge("tools", "ask")
    output = ran(store, graph.compile(), "note:this", output=lambda values: values["noted"])
    assert output == "this s3cret"
    [step] = [step for step in store.flows.steps("case-1") if step.name == "tool note"]
    assert step.arguments["kwargs"] == {"tool": "note", "arguments": {"value": "this"}}


@pytest.mark.filterwarnings("ignore::langgraph.warnings.LangGraphDeprecatedSinceV10")
def test_the_prebuilt_agent_goes_on_with_its_thread(store: sync.Holdproof, model: Model) -> None:
    saver = HoldproofSaver(store)
    agent = agent_of(store, create_react_agent(durable(model), [], checkpointer=saver))
    agent.run_sync("one", flow_id="case-0", thread_id="chat")
    ended = agent.run_sync("two", flow_id="case-1", thread_id="chat")
    assert ended.output == "TWO"
    [request] = [step for step in store.flows.steps("case-1") if step.name == "model Model"]
    said = [message["content"] for message in request.arguments["kwargs"]["messages"]]
    assert said == ["one", "ONE", "two"]


def test_a_model_or_tool_that_is_not_durable_is_refused_when_it_is_called(store: sync.Holdproof, model: Model) -> None:
    @tool
    def look(value: str) -> str:
        """Look."""
        return value

    bare = StateGraph(MessagesState).add_node("ask", lambda state: {"messages": [model.invoke(state["messages"])]})
    with pytest.raises(errors.InvalidInputError, match=r"the model Model is not durable: .* durable\(model\)"):
        HoldproofAgent(bare.add_edge(START, "ask").compile(), store, agent_id="a").run_sync("hello")
    looking = StateGraph(MessagesState).add_node("ask", lambda state: {"messages": [look.invoke({"value": "x"})]})
    with pytest.raises(errors.InvalidInputError, match=r"the tool look is not durable: .* durable\(tool\)"):
        HoldproofAgent(looking.add_edge(START, "ask").compile(), store, agent_id="b").run_sync("hello")
    assert model.calls == []


def test_a_call_without_await_in_an_async_node_is_refused_and_does_not_hang(
    store: sync.Holdproof, model: Model
) -> None:
    written = durable(model)

    async def ask(state: MessagesState) -> Any:
        return {"messages": [written.invoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_sequence([ask]).add_edge(START, "ask").compile()
    with pytest.raises(errors.InvalidInputError, match="without await in async code"):
        HoldproofAgent(graph, store, agent_id="a").run_sync("hello")


def test_a_streamed_call_is_one_chunk_in_a_flow_and_as_it_was_outside(store: sync.Holdproof) -> None:
    inner = Streaming(calls=[])
    written = durable(inner)
    assert [chunk.text for chunk in written.stream("abc")][:3] == ["A", "B", "C"]

    async def ask(state: MessagesState) -> Any:
        chunks = [chunk async for chunk in written.astream(state["messages"])]
        return {"messages": [AIMessage(" ".join(chunk.text for chunk in chunks if chunk.text))]}

    graph = StateGraph(MessagesState).add_sequence([ask]).add_edge(START, "ask").compile()
    assert ran(store, graph, "abc") == "ABC"
    assert names(store) == ["model Streaming"]


def test_what_cannot_be_durable_is_refused_where_it_is_passed() -> None:
    with pytest.raises(errors.InvalidInputError, match="a dict cannot be made durable"):
        durable({"name": "look"})
    with pytest.raises(errors.InvalidInputError, match="approve= is for tools"):
        durable(lambda: None, approve=True)
