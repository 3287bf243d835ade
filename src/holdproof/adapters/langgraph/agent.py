"""Graphs of LangGraph as durable functions: each run a flow, its interrupts escalations.

Rules:
- A run that is repeated begins at the checkpoint at which it began first. Its calls return what was recorded, so the
  graph comes to the same place, in a branch of its thread.
- Without a checkpointer the graph has one in memory: what is needed of it is made again from the record.
- All interrupts that a graph waits for at once are one escalation; its answer resumes them.
"""

from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command
from pydantic_core import to_jsonable_python

from holdproof.adapters.approvals import CallDecision, ToolCall, plain
from holdproof.adapters.durable_agents import DurableAgent
from holdproof.adapters.langgraph.interrupts import Answer, answer_of
from holdproof.adapters.langgraph.running_tasks import RunningTasks
from holdproof.adapters.model_steps import LoopSteps
from holdproof.errors import InvalidInputError


def output_of(values: Any) -> Any:
    """Return what a graph's values come to: a structured response, the text of the last message, or all of them."""
    if not isinstance(values, dict):
        return to_jsonable_python(values, fallback=str)
    if values.get("structured_response") is not None:
        return to_jsonable_python(values["structured_response"], fallback=str)
    if values.get("messages"):
        return str(values["messages"][-1].text)
    return to_jsonable_python(values, fallback=str)


class HoldproofAgent(DurableAgent):
    """A compiled graph, or an entrypoint of the functional API, whose runs survive their process.

    Its models and tools are those that `durable` gives. `output` makes of the graph's values what is recorded as the
    run's output, and `answer` of a decision what `interrupt()` returns. `thread_id=` of a run is the thread it goes on
    with; a thread of its own by default. Other options are those of `ainvoke`.
    """

    framework = "langgraph"

    def __init__(
        self,
        agent: Any,
        *args: Any,
        output: Callable[[Any], Any] = output_of,
        answer: Answer | None = None,
        **options: Any,
    ) -> None:
        self._output = output
        self._answer = answer
        super().__init__(agent, *args, **options)

    async def _drive(self, loop: LoopSteps, prompt: Any, options: dict[str, Any]) -> tuple[Any, Any]:
        chosen = {**options}
        graph = self.agent if self.agent.checkpointer else self.agent.copy({"checkpointer": InMemorySaver()})
        config = dict(chosen.pop("config", None) or {})
        tasks = RunningTasks()
        loop.running_tasks = tasks
        callbacks = config.get("callbacks") or []
        if not isinstance(callbacks, list):
            raise InvalidInputError("the callbacks of a durable run are a list of handlers", field="config")
        config["callbacks"] = [*callbacks, tasks]
        named = dict(config.get("configurable") or {})
        thread = {**named, "thread_id": chosen.pop("thread_id", None) or named.get("thread_id") or loop.flow.flow_id}
        first = {**thread, "checkpoint_id": await _beginning(loop, graph.checkpointer, thread["thread_id"])}
        inputs = _inputs(self.agent, prompt)
        while True:
            values = await graph.ainvoke(inputs, {**config, "configurable": first}, **chosen)
            snapshot = await graph.aget_state({"configurable": thread})
            if not snapshot.interrupts:
                return self._output(values), values
            inputs = Command(resume=await self._decided(loop, snapshot))
            first = thread

    async def _decided(self, loop: LoopSteps, snapshot: Any) -> dict[str, Any]:
        """Ask what a graph waits for, and return what its interrupts return."""
        nodes = {one.id: task.name for task in snapshot.tasks for one in task.interrupts}
        requests = [_request(nodes.get(one.id, ""), one.value) for one in snapshot.interrupts]
        # LangGraph gives interrupts other ids in every process; their place among those that wait stays the same.
        calls = [ToolCall(f"{name} {n}", name, arguments) for n, (name, arguments) in enumerate(requests, 1)]
        by_call = await loop.approve(self.framework, calls, self._approvals)
        answer = self._answer or _reasoned
        return {one.id: answer(by_call[call.id]) for one, call in zip(snapshot.interrupts, calls, strict=True)}


async def _beginning(loop: LoopSteps, checkpointer: Any, thread_id: str) -> str:
    """Return the checkpoint at which the run begins, now or when it began first."""
    config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}

    async def newest() -> str:
        newest = await checkpointer.aget_tuple(config)
        if newest is not None:
            return str(newest.checkpoint["id"])
        # A thread that is new begins with what LangGraph takes for its beginning, so that there is one to come back to.
        written = await checkpointer.aput(
            config, empty_checkpoint(), {"source": "input", "step": -2, "parents": {}}, {}
        )
        return str(written["configurable"]["checkpoint_id"])

    if isinstance(checkpointer, InMemorySaver):
        return await newest()
    return str(await loop.step("thread", {"thread_id": thread_id}, newest, safe=True))


def _inputs(graph: Any, prompt: Any) -> Any:
    if isinstance(prompt, str) and isinstance(graph, CompiledStateGraph):
        return {"messages": [{"role": "user", "content": prompt}]}
    return prompt


def _request(node: str, value: Any) -> tuple[str, Any]:
    """Return what an interrupt asks: of a tool that `durable` asks for, the tool and its arguments."""
    if isinstance(value, dict) and value.keys() == {"tool", "arguments"}:
        return str(value["tool"]), value["arguments"]
    return node, plain(value)


def _reasoned(decision: CallDecision) -> Any:
    """Return what `interrupt()` returns: the reason too, where somebody refused for one."""
    return decision.message if not decision.approved and decision.message else answer_of(decision)
