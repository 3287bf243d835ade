"""The shop assistant of Pydantic AI."""

from typing import Any

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from holdproof.adapters.pydantic_ai import HoldproofAgent, HoldproofDurability
from tests.conformance.agents import TOOLS, Shop


def agent(seen: Shop, store: Any, **options: Any) -> HoldproofAgent:
    def script(messages: list[Any], _: Any) -> ModelResponse:
        seen.calls.append("model")
        last = messages[-1].parts[-1]
        usage = RequestUsage(input_tokens=11, output_tokens=7)
        if last.part_kind == "tool-return":
            return ModelResponse(parts=[TextPart(f"heard: {last.content}")], usage=usage)
        calls = [ToolCallPart(last.content, TOOLS[last.content], tool_call_id="call-1")]
        return ModelResponse(parts=calls, usage=usage)

    made = Agent(
        FunctionModel(script, model_name="scripted"),
        name="shop",
        instructions="Be kind.",
        output_type=[str, DeferredToolRequests],
        capabilities=[HoldproofDurability()],
    )
    made.tool_plain(seen.look)
    made.tool_plain(requires_approval=True)(seen.refund)

    async def plainly(durable: HoldproofAgent, prompt: str) -> Any:
        return (await durable.agent.run(prompt)).output

    seen.plainly = plainly
    return HoldproofAgent(made, store, agent_id="shop", **options)
