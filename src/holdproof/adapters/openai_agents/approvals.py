"""Paused runs of the OpenAI Agents SDK as escalations: decided in the inbox, resumed from there."""

import json
from typing import Any, Literal

from agents import Agent, Runner, RunState

from holdproof.adapters.approvals import (
    LEASE_S,
    ApprovalAdapter,
    RequestOptions,
    Resumed,
    ToolCall,
    decisions,
    options_of,
    parse_arguments,
    plain,
)
from holdproof.errors import InvalidInputError
from holdproof.model.coordination import Escalation


class HoldproofApprovals(ApprovalAdapter):
    """The runs of one agent that wait for a human decision.

    `pause` takes a result or a `RunState`; its other keywords (`context_serializer`, `strict_context`) go to
    `RunState.to_json`.
    """

    framework = "openai-agents"

    async def _pause(
        self, run: Any, options: RequestOptions, flow_id: str | None, serializing: dict[str, Any]
    ) -> Escalation:
        state = run if isinstance(run, RunState) else run.to_state()
        waiting = state.get_interruptions()
        calls = [ToolCall(_id(item), item.name or "", parse_arguments(item.arguments)) for item in waiting]
        return await self._request(json.dumps(state.to_json(**serializing)), calls, options, flow_id)

    async def state(self, agent: "Agent[Any]", id: int, *, timeout_s: float | None = None, **restoring: Any) -> Any:
        """Wait for the decision and return the run's state, each call approved or rejected as it was decided.

        May be called any number of times; `resume` makes sure that the run continues once. Other keywords
        (`context_override`, `context_deserializer`, `strict_context`) go to `RunState.from_json`.
        """
        escalation, text = await self._wait(id, timeout_s)
        return await self._restore(agent, escalation, text, restoring)

    async def _restore(self, agent: "Agent[Any]", escalation: Escalation, text: str, restoring: dict[str, Any]) -> Any:
        state = await RunState.from_json(agent, json.loads(text), **restoring)
        by_call = decisions(escalation)
        for item in state.get_interruptions():
            decision = by_call[_id(item)]
            # RunState has no way to change a call that the model made.
            if decision.arguments is not None:
                message = "the SDK runs a call as the model made it: reject it instead of changing its arguments"
                raise InvalidInputError(message, id=escalation.id, call=_id(item))
            if decision.approved:
                state.approve(item)
            else:
                state.reject(item, rejection_message=decision.message)
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
        """Wait for the decision and continue the run, once for any number of callers; `options` go to `Runner.run`.

        A run that stops at other calls is paused again. One that raises is not run a second time, since tools may have
        run: pass `on_error="retry"`, or let an operator call `store.idempotency.delete`.
        """
        escalation, text = await self._wait(id, timeout_s)

        async def run() -> Resumed:
            state = await self._restore(agent, escalation, text, restoring or {})
            result = await Runner.run(agent, state, **options)
            if not result.interruptions:
                return Resumed(plain(result.final_output), None, result)
            # A rejected flow has ended: what the run asks next begins a flow of its own.
            flow_id = escalation.flow_id if escalation.approved else None
            follow_up = await self._pause(result, options_of(escalation), flow_id, {})
            return Resumed(None, follow_up.id, result)

        return await self._run_once(escalation, run, lease_s=lease_s, on_error=on_error)


def _id(item: Any) -> str:
    if not item.call_id:
        raise InvalidInputError("a tool call without an id cannot be approved by its id", tool=item.name)
    return str(item.call_id)
