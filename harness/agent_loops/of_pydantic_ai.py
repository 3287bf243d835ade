"""The scripted agent of Pydantic AI."""

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from holdproof.adapters.pydantic_ai import HoldproofAgent, HoldproofDurability
from tests.faults.agent_loops.world import INSTRUCTIONS, World, final_answer, tools_of


def agent(world: World, where: Any, *, lease_s: float) -> HoldproofAgent:
    def script(messages: list[Any], _: Any) -> ModelResponse:
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        world.happen(f"model {turn}")
        calls = [ToolCallPart(tool, {"turn": turn}, tool_call_id=f"{tool}-{turn}") for tool in tools_of(turn)]
        if calls:
            return ModelResponse(parts=calls)
        parts = [part for message in messages for part in message.parts]
        return ModelResponse(
            parts=[TextPart(final_answer([part.content for part in parts if isinstance(part, ToolReturnPart)]))]
        )

    scripted = Agent(
        FunctionModel(script, model_name="scripted"),
        name="books",
        instructions=INSTRUCTIONS,
        capabilities=[HoldproofDurability()],
    )

    @scripted.tool_plain(metadata={"holdproof": {"safe": True}})
    def look(turn: int) -> str:
        return world.tool("look", turn)

    @scripted.tool_plain
    def charge(turn: int) -> str:
        return world.tool("charge", turn)

    return HoldproofAgent(scripted, where, agent_id="books", lease_s=lease_s)
