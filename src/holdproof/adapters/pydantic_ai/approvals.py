"""A run of Pydantic AI that deferred tool calls, kept as an escalation: answered in the inbox, resumed from there."""

from typing import Any, Final, Literal

from pydantic_ai import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.messages import ModelMessagesTypeAdapter

from holdproof.adapters.approvals import (
    BUDGET,
    LEASE_S,
    Pauses,
    Resumed,
    Terms,
    ToolCall,
    Verdict,
    arguments,
    plain,
    terms_of,
    verdicts,
)
from holdproof.adapters.pydantic_ai.history import HoldproofHistory
from holdproof.adapters.shared_store import SharedStore, Where
from holdproof.errors import InvalidInputError
from holdproof.model.coordination import Escalation

FRAMEWORK: Final = "pydantic-ai"


class HoldproofApprovals:
    """The runs of one agent that wait for a person."""

    def __init__(self, where: Where = None, *, agent_id: str, ns: str | None = None) -> None:
        self._place = SharedStore(where, ns=ns)
        self._pauses = Pauses(self._place, FRAMEWORK, agent_id)

    async def pause(
        self,
        result: Any,
        *,
        reason: str = "tools need approval",
        impact: str = "HIGH_IMPACT",
        deadline_s: float | None = None,
        on_deadline: str = "reject",
        budget: int = BUDGET,
        flow_id: str | None = None,
    ) -> Escalation:
        """Keep a run whose output is a DeferredToolRequests, and ask a person about its calls."""
        return await self._ask(result, Terms(reason, impact, deadline_s, on_deadline, budget), flow_id)

    async def _ask(self, result: Any, terms: Terms, flow_id: str | None) -> Escalation:
        waiting = result.output
        if not isinstance(waiting, DeferredToolRequests):
            raise InvalidInputError("the run waits for nobody: its output is no DeferredToolRequests")
        if waiting.calls:
            raise InvalidInputError("calls that are carried out elsewhere are not for a person to approve")
        calls = [ToolCall(part.tool_call_id, part.tool_name, arguments(part.args or {})) for part in waiting.approvals]
        return await self._pauses.ask(result.all_messages_json().decode(), calls, terms, flow_id)

    async def answers(self, id: int, *, timeout_s: float | None = None) -> tuple[list[Any], DeferredToolResults]:
        """Wait for the answer: the messages of the run and its deferred results, as `agent.run` takes them.

        It may be asked for again and again; `resume` sees to it that the run goes on once.
        """
        asked, state = await self._pauses.answered(id, timeout_s=timeout_s)
        return _restored(asked, state)

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
        """Wait for the answer and go on with the run, once however many ask; `options` are those of `agent.run`.

        New messages are added to `history`. A run that defers other calls is paused again. One that raises is not run a
        second time, since tools may have run: that is `on_error="retry"`, or the operator's to say.
        """
        asked, state = await self._pauses.answered(id, timeout_s=timeout_s)

        async def run() -> Resumed:
            messages, results = _restored(asked, state)
            result = await agent.run(message_history=messages, deferred_tool_results=results, **options)
            if history is not None:
                await history.append(result.new_messages())
            if not isinstance(result.output, DeferredToolRequests):
                return Resumed(plain(result.output), None, result)
            again = await self._ask(result, terms_of(asked), asked.flow_id if asked.approved else None)
            return Resumed(None, again.id, result)

        return await self._pauses.once(asked, run, lease_s=lease_s, on_error=on_error)

    def close(self) -> None:
        """Let go of the store; may be called twice. One that was given stays open."""
        self._place.close()


def _restored(asked: Escalation, state: str) -> tuple[list[Any], DeferredToolResults]:
    said = {id: _answer(verdict) for id, verdict in verdicts(asked).items()}
    return list(ModelMessagesTypeAdapter.validate_json(state)), DeferredToolResults(approvals=said)


def _answer(verdict: Verdict) -> Any:
    if not verdict.approved:
        return ToolDenied(verdict.message) if verdict.message else ToolDenied()
    if verdict.arguments is not None and not isinstance(verdict.arguments, dict):
        raise InvalidInputError("the arguments of a call are an object")
    return ToolApproved(override_args=verdict.arguments)
