"""Agents of the Microsoft Agent Framework as durable functions: each run a flow, approvals of tools as escalations."""

from collections.abc import Collection
from typing import Any

from agent_framework import Message

from holdproof.adapters.agent_framework.durability import middleware
from holdproof.adapters.approvals import ToolCall, parse_arguments
from holdproof.adapters.durable_agents import DurableAgent
from holdproof.adapters.model_steps import LoopSteps
from holdproof.errors import InvalidInputError


class HoldproofAgent(DurableAgent):
    """An agent whose runs survive their process; `options` are those of `agent.run`.

    `safe` names the tools that only read, or may be repeated.
    """

    framework = "agent-framework"

    def __init__(self, agent: Any, *args: Any, safe: Collection[str] = (), **options: Any) -> None:
        self._middleware = middleware(safe=safe)
        super().__init__(agent, *args, **options)

    async def _drive(self, loop: LoopSteps, prompt: Any, options: dict[str, Any]) -> tuple[Any, Any]:
        kwargs = {"session": self.agent.create_session(), **options}
        kwargs["middleware"] = [*(options.get("middleware") or ()), *self._middleware]
        response = await self.agent.run(prompt, **kwargs)
        while response.user_input_requests:
            response = await self.agent.run(await self._approved(loop, response.user_input_requests), **kwargs)
        return response.text, response

    async def _approved(self, loop: LoopSteps, requests: Any) -> Message:
        """Ask for the approval of tool calls, and return the message by which the agent is told of it."""
        for request in requests:
            if request.type != "function_approval_request":
                raise InvalidInputError(f"a durable run cannot answer a request of type {request.type}")
        calls = [
            ToolCall(
                str(each.function_call.call_id), each.function_call.name, parse_arguments(each.function_call.arguments)
            )
            for each in requests
        ]
        by_call = await loop.approve(self.framework, calls, self._approvals)
        if changed := [id for id, decision in by_call.items() if decision.arguments is not None]:
            raise InvalidInputError(
                f"the framework runs a call as the model made it: reject {changed[0]}", call=changed[0]
            )
        answers = [
            request.to_function_approval_response(approved=by_call[call.id].approved)
            for request, call in zip(requests, calls, strict=True)
        ]
        return Message(role="user", contents=answers)
