"""Agents of the OpenAI Agents SDK as durable functions: each run a flow, approvals of its tools as escalations."""

from collections.abc import Collection
from typing import Any

from agents import Runner

from holdproof.adapters.approvals import ToolCall, parse_arguments, plain
from holdproof.adapters.durable_agents import DurableAgent
from holdproof.adapters.model_steps import LoopSteps
from holdproof.adapters.openai_agents.durability import durable, durable_config


class HoldproofAgent(DurableAgent):
    """An agent whose runs survive their process; `options` are those of `Runner.run`, such as `context`.

    `safe` names the tools that only read, or may be repeated.
    """

    framework = "openai-agents"

    def __init__(self, agent: Any, *args: Any, safe: Collection[str] = (), **options: Any) -> None:
        super().__init__(durable(agent, safe=safe), *args, **options)

    async def _drive(self, loop: LoopSteps, prompt: Any, options: dict[str, Any]) -> tuple[Any, Any]:
        kwargs = {**options, "run_config": durable_config(options.get("run_config"))}
        result = await Runner.run(self.agent, prompt, **kwargs)
        # The state has the context of the run.
        kwargs.pop("context", None)
        while result.interruptions:
            state = result.to_state()
            waiting = state.get_interruptions()
            calls = [ToolCall(str(each.call_id), each.name or "", parse_arguments(each.arguments)) for each in waiting]
            by_call = await loop.approve(self.framework, calls, self._approvals)
            for item in waiting:
                decision = by_call[str(item.call_id)]
                if decision.approved:
                    state.approve(item)
                else:
                    state.reject(item, rejection_message=decision.message)
                if decision.arguments is not None:
                    loop.changed_arguments[str(item.call_id)] = decision.arguments
            result = await Runner.run(self.agent, state, **kwargs)
        return plain(result.final_output), result
