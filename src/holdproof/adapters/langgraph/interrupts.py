"""Interrupts of a graph as escalations: decided in the inbox, resumed from there.

Rules:
- The escalation names thread, checkpoint and interrupts. The state of the run stays with the checkpointer.
- A decision resumes those interrupts and no others: a graph that has gone on since is not resumed a second time.
- Where somebody answered by the framework's own call, `settle` takes the request out of the inbox: cancelled, and why.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, Literal

from langgraph.types import Command

from holdproof.adapters.approvals import (
    LEASE_S,
    ApprovalAdapter,
    CallDecision,
    RequestOptions,
    Resumed,
    ToolCall,
    decisions,
    options_of,
    plain,
)
from holdproof.errors import ConflictError, InvalidInputError
from holdproof.model.coordination import Escalation

Answer = Callable[[CallDecision], Any]


def answer_of(decision: CallDecision) -> Any:
    """Return what `interrupt()` returns in the node: what it was changed to, True as proposed, False if rejected."""
    return decision.arguments if decision.arguments is not None else decision.approved


class HoldproofInterrupts(ApprovalAdapter):
    """The runs of one agent's graphs that wait for a human: `pause` takes what `graph.get_state(config)` returns."""

    framework = "langgraph"

    async def _pause(
        self, run: Any, options: RequestOptions, flow_id: str | None, serializing: dict[str, Any]
    ) -> Escalation:
        if serializing:
            raise TypeError(f"pause() got an unexpected keyword argument {min(serializing)!r}")
        interrupts = getattr(run, "interrupts", None)
        if not interrupts:
            raise InvalidInputError("the graph waits for nobody: pass graph.get_state(config) after an interrupt")
        nodes = {one.id: task.name for task in run.tasks for one in task.interrupts}
        calls = [ToolCall(one.id, nodes.get(one.id, ""), plain(one.value)) for one in interrupts]
        named = run.config["configurable"]
        state = {name: named.get(name, "") for name in ("thread_id", "checkpoint_ns", "checkpoint_id")}
        return await self._request(json.dumps(state), calls, options, flow_id)

    async def resume(
        self,
        graph: Any,
        id: int,
        *,
        answer: Answer = answer_of,
        timeout_s: float | None = None,
        lease_s: float = LEASE_S,
        on_error: Literal["replay", "retry"] = "replay",
        **options: Any,
    ) -> Resumed:
        """Wait for the decision and continue the graph, once for any number of callers; `options` go to `ainvoke`.

        `answer` makes of a decision what `interrupt()` returns in the node. A graph that interrupts again is paused
        again. ConflictError where the graph was resumed by other means meanwhile.
        """
        escalation, state = await self._wait(id, timeout_s)
        config: Any = {"configurable": {"thread_id": json.loads(state)["thread_id"]}}

        async def run() -> Resumed:
            by_interrupt = {one: answer(decision) for one, decision in decisions(escalation).items()}
            if not await _waits(graph, config, by_interrupt):
                raise ConflictError(f"the graph of escalation {id} has gone on: it was resumed by other means", id=id)
            result = await graph.ainvoke(Command(resume=by_interrupt), config, **options)
            snapshot = await graph.aget_state(config)
            if not snapshot.interrupts:
                return Resumed(plain(result), None, result)
            # A rejected flow has ended: what the graph asks next begins a flow of its own.
            flow_id = escalation.flow_id if escalation.approved else None
            follow_up = await self._pause(snapshot, options_of(escalation), flow_id, {})
            return Resumed(None, follow_up.id, result)

        return await self._run_once(escalation, run, lease_s=lease_s, on_error=on_error)

    async def settle(self, graph: Any, id: int) -> Escalation:
        """Cancel a pending escalation whose graph was resumed by its own call; return the escalation as it stands then.

        One whose graph still waits, or that is decided, stays as it is.
        """
        store = await self._shared.store()
        within = self._shared.within()
        escalation = await store.escalations.get(id, **within)
        state = (
            json.loads(escalation.context["state"]) if escalation.context.get("framework") == self.framework else None
        )
        if state is None:
            raise InvalidInputError(f"escalation {id} is not of a graph", id=id)
        config = {"configurable": {"thread_id": state["thread_id"]}}
        interrupts = [call["id"] for call in escalation.proposal["calls"]]
        if escalation.status != "PENDING" or await _waits(graph, config, interrupts):
            return escalation
        comment = "the graph was resumed by its own call"
        return await store.escalations.resolve(id, "cancel", by=self.framework, comment=comment, **within)


async def _waits(graph: Any, config: Any, interrupts: Iterable[str]) -> bool:
    snapshot = await graph.aget_state(config)
    return {*interrupts} <= {one.id for one in snapshot.interrupts}
