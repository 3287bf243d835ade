"""Agents of Pydantic AI as durable functions: each run a flow, approvals of its tools as escalations."""

from collections.abc import Mapping
from typing import Any

from pydantic_ai import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied

from holdproof.adapters.approvals import CallDecision, ToolCall, parse_arguments, plain
from holdproof.adapters.durable_agents import DurableAgent
from holdproof.adapters.model_steps import LoopSteps
from holdproof.adapters.pydantic_ai.durability import HoldproofDurability
from holdproof.errors import InvalidInputError
from holdproof.model.coordination import Escalation


class HoldproofAgent(DurableAgent):
    """An agent whose runs survive their process; `options` are those of `agent.run`, such as `deps`.

    The agent has `HoldproofDurability` among its capabilities; where its tools need approval,
    `DeferredToolRequests` is one of its output types.
    """

    framework = "pydantic-ai"

    def __init__(self, agent: Any, *args: Any, **options: Any) -> None:
        if not _is_durable(agent):
            raise InvalidInputError(
                "the agent's calls are not steps: make it with Agent(…, capabilities=[HoldproofDurability()])"
            )
        super().__init__(agent, *args, **options)

    async def _drive(self, loop: LoopSteps, prompt: Any, options: dict[str, Any]) -> tuple[Any, Any]:
        result = await self.agent.run(prompt, **options)
        while isinstance(result.output, DeferredToolRequests):
            waiting = result.output
            if waiting.calls:
                name = waiting.calls[0].tool_name
                raise InvalidInputError(f"tool {name} runs outside the agent, which a durable run cannot wait for")
            calls = [ToolCall(call.tool_call_id, call.tool_name, call.args_as_dict()) for call in waiting.approvals]
            by_call = await loop.approve(self.framework, calls, self._approvals)
            answers = DeferredToolResults(approvals={id: to_answer(each) for id, each in by_call.items()})
            again = {**options, "message_history": result.all_messages(), "deferred_tool_results": answers}
            result = await self.agent.run(**again)
        return plain(result.output), result

    def _answers(self, escalation: Escalation, answer: Any) -> Mapping[str, CallDecision]:
        if not isinstance(answer, DeferredToolResults):
            return super()._answers(escalation, answer)
        arguments = {str(call["id"]): call["arguments"] for call in escalation.proposal["calls"]}
        return {id: _decision(each, arguments.get(id)) for id, each in answer.approvals.items()}


def _is_durable(agent: Any) -> bool:
    durable: list[Any] = []
    agent.root_capability.apply(lambda each: durable.append(each) if isinstance(each, HoldproofDurability) else None)
    return bool(durable)


def _decision(approval: Any, arguments: Any) -> CallDecision:
    if isinstance(approval, ToolDenied):
        return CallDecision(False, approval.message)
    if isinstance(approval, ToolApproved):
        changed = approval.override_args
        return CallDecision(
            True, arguments=None if changed is None or changed == arguments else parse_arguments(changed)
        )
    return CallDecision(bool(approval))


def to_answer(decision: CallDecision) -> Any:
    """Return the decision on a call as Pydantic AI takes it."""
    if not decision.approved:
        return ToolDenied(decision.message) if decision.message else ToolDenied()
    if decision.arguments is not None and not isinstance(decision.arguments, dict):
        raise InvalidInputError("the arguments of a call are an object")
    return ToolApproved(override_args=decision.arguments)
