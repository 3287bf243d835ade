"""Runs of Pydantic AI that deferred tool calls as escalations: decided in the inbox, resumed from there."""

from typing import Any, Literal

from pydantic_ai import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.messages import ModelMessagesTypeAdapter

from holdproof.adapters.approvals import (
    LEASE_S,
    ApprovalAdapter,
    CallDecision,
    RequestOptions,
    Resumed,
    ToolCall,
    decisions,
    options_of,
    parse_arguments,
    plain,
)
from holdproof.adapters.pydantic_ai.history import HoldproofHistory
from holdproof.errors import InvalidInputError
from holdproof.model.coordination import Escalation


class HoldproofApprovals(ApprovalAdapter):
    """The runs of one agent that wait for a human decision: `pause` takes a result with a DeferredToolRequests."""

    framework = "pydantic-ai"

    async def _pause(
        self, run: Any, options: RequestOptions, flow_id: str | None, serializing: dict[str, Any]
    ) -> Escalation:
        if serializing:
            raise TypeError(f"pause() got an unexpected keyword argument {min(serializing)!r}")
        requests = run.output
        if not isinstance(requests, DeferredToolRequests):
            raise InvalidInputError("the run waits for no approval: its output is no DeferredToolRequests")
        # External calls need results from another system; a human decision is no result.
        if requests.calls:
            raise InvalidInputError("calls that are carried out elsewhere are not for a person to approve")
        calls = [
            ToolCall(part.tool_call_id, part.tool_name, parse_arguments(part.args or {})) for part in requests.approvals
        ]
        return await self._request(run.all_messages_json().decode(), calls, options, flow_id)

    async def answers(self, id: int, *, timeout_s: float | None = None) -> tuple[list[Any], DeferredToolResults]:
        """Wait for the decision and return the messages of the run and its deferred results, as `agent.run` takes them.

        May be called any number of times; `resume` makes sure that the run continues once.
        """
        escalation, state = await self._wait(id, timeout_s)
        return _restore(escalation, state)

    async def resume(
        self,
        agent: Any,
        id: int,
        *,
        history: HoldproofHistory | None = None,
        timeout_s: float | None = None,
        lease_s: float = LEASE_S,
        on_error: Literal["replay", "retry"] = "replay",
        **options: Any,
    ) -> Resumed:
        """Wait for the decision and continue the run, once for any number of callers; `options` go to `agent.run`.

        New messages are added to `history`. A run that defers other calls is paused again. One that raises is not run a
        second time, since tools may have run: pass `on_error="retry"`, or let an operator call
        `store.idempotency.delete`.
        """
        escalation, state = await self._wait(id, timeout_s)

        async def run() -> Resumed:
            messages, results = _restore(escalation, state)
            result = await agent.run(message_history=messages, deferred_tool_results=results, **options)
            if history is not None:
                await history.append(result.new_messages())
            if not isinstance(result.output, DeferredToolRequests):
                return Resumed(plain(result.output), None, result)
            # A rejected flow has ended: what the run asks next begins a flow of its own.
            flow_id = escalation.flow_id if escalation.approved else None
            follow_up = await self._pause(result, options_of(escalation), flow_id, {})
            return Resumed(None, follow_up.id, result)

        return await self._run_once(escalation, run, lease_s=lease_s, on_error=on_error)


def _restore(escalation: Escalation, state: str) -> tuple[list[Any], DeferredToolResults]:
    approvals = {id: _answer(decision) for id, decision in decisions(escalation).items()}
    return list(ModelMessagesTypeAdapter.validate_json(state)), DeferredToolResults(approvals=approvals)


def _answer(decision: CallDecision) -> Any:
    if not decision.approved:
        return ToolDenied(decision.message) if decision.message else ToolDenied()
    if decision.arguments is not None and not isinstance(decision.arguments, dict):
        raise InvalidInputError("the arguments of a call are an object")
    return ToolApproved(override_args=decision.arguments)
