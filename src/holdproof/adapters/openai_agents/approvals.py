"""A paused run of the OpenAI Agents SDK, kept as an escalation: answered in the inbox, resumed from there."""

import json
from typing import Any, Final, Literal

from agents import Agent, Runner, RunState

from holdproof.adapters.approvals import (
    BUDGET,
    LEASE_S,
    Pauses,
    Resumed,
    Terms,
    ToolCall,
    arguments,
    plain,
    terms_of,
    verdicts,
)
from holdproof.adapters.shared_store import SharedStore, Where
from holdproof.errors import InvalidInputError
from holdproof.model.coordination import Escalation

FRAMEWORK: Final = "openai-agents"


class HoldproofApprovals:
    """The runs of one agent that wait for a person."""

    def __init__(self, where: Where = None, *, agent_id: str, ns: str | None = None) -> None:
        self._place = SharedStore(where, ns=ns)
        self._pauses = Pauses(self._place, FRAMEWORK, agent_id)

    async def pause(
        self,
        run: Any,
        *,
        reason: str = "tools need approval",
        impact: str = "HIGH_IMPACT",
        deadline_s: float | None = None,
        on_deadline: str = "reject",
        budget: int = BUDGET,
        flow_id: str | None = None,
        **serializing: Any,
    ) -> Escalation:
        """Keep a run that stopped at tool calls, a result or its state, and ask a person about them.

        What is left (`context_serializer`, `strict_context`) goes to `RunState.to_json`.
        """
        state = run if isinstance(run, RunState) else run.to_state()
        terms = Terms(reason, impact, deadline_s, on_deadline, budget)
        return await self._ask(state, terms, flow_id, serializing)

    async def _ask(self, state: Any, terms: Terms, flow_id: str | None, serializing: dict[str, Any]) -> Escalation:
        waiting = state.get_interruptions()
        calls = [ToolCall(_id(item), item.name or "", arguments(item.arguments)) for item in waiting]
        return await self._pauses.ask(json.dumps(state.to_json(**serializing)), calls, terms, flow_id)

    async def state(self, agent: "Agent[Any]", id: int, *, timeout_s: float | None = None, **restoring: Any) -> Any:
        """Wait for the answer, and give the run's state with it: each call approved or rejected as it was said.

        It may be asked for again and again; `resume` sees to it that it runs once. What is left (`context_override`,
        `context_deserializer`, `strict_context`) goes to `RunState.from_json`.
        """
        asked, text = await self._pauses.answered(id, timeout_s=timeout_s)
        return await self._restored(agent, asked, text, restoring)

    async def _restored(self, agent: "Agent[Any]", asked: Escalation, text: str, restoring: dict[str, Any]) -> Any:
        state = await RunState.from_json(agent, json.loads(text), **restoring)
        said = verdicts(asked)
        for item in state.get_interruptions():
            verdict = said[_id(item)]
            if verdict.arguments is not None:
                message = "the SDK runs a call as the model made it: reject it instead of changing its arguments"
                raise InvalidInputError(message, id=asked.id, call=_id(item))
            if verdict.approved:
                state.approve(item)
            else:
                state.reject(item, rejection_message=verdict.message)
        return state

    async def resume(
        self,
        agent: "Agent[Any]",
        id: int,
        *,
        timeout_s: float | None = None,
        lease_s: float = LEASE_S,
        on_error: Literal["replay", "retry"] = "replay",
        restoring: dict[str, Any] | None = None,
        **options: Any,
    ) -> Resumed:
        """Wait for the answer and go on with the run, once however many ask; `options` are those of `Runner.run`.

        A run that stops at other calls is paused again. One that raises is not run a second time, since tools may have
        run: that is `on_error="retry"`, or the operator's to say (`store.idempotency.delete`).
        """
        asked, text = await self._pauses.answered(id, timeout_s=timeout_s)

        async def run() -> Resumed:
            state = await self._restored(agent, asked, text, restoring or {})
            result = await Runner.run(agent, state, **options)
            if not result.interruptions:
                return Resumed(plain(result.final_output), None, result)
            again = await self._ask(result.to_state(), terms_of(asked), asked.flow_id if asked.approved else None, {})
            return Resumed(None, again.id, result)

        return await self._pauses.once(asked, run, lease_s=lease_s, on_error=on_error)

    def close(self) -> None:
        """Let go of the store; may be called twice. One that was given stays open."""
        self._place.close()


def _id(item: Any) -> str:
    if not item.call_id:
        raise InvalidInputError("a tool call without an id cannot be approved by its id", tool=item.name)
    return str(item.call_id)
