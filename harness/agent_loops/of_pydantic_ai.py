"""The scripted agent of Pydantic AI."""

from pathlib import Path
from typing import Any, Final

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from harness.agent_loops.world import INSTRUCTIONS, PROMPT, World, final_answer, tools_of
from holdproof.adapters.pydantic_ai import HoldproofAgent, HoldproofDurability, HoldproofHistory

OWN: Final = "messages as JSON in a file"
OURS: Final = "HoldproofHistory"


def _scripted(world: World) -> Any:
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

    return scripted


def agent(world: World, where: Any, *, lease_s: float) -> HoldproofAgent:
    """The agent whose runs are durable."""
    return HoldproofAgent(_scripted(world), where, agent_id="books", lease_s=lease_s)


async def run_own(world: World, folder: Path) -> None:
    """Run it and keep its messages, as the framework's guide does: it has no storage of its own."""
    result = await _scripted(world).run(PROMPT)
    (folder / "messages.json").write_bytes(result.all_messages_json())


async def run_ours(world: World, store: Any) -> None:
    """Run it with ours in its place."""
    await HoldproofHistory("books", store).run(_scripted(world), PROMPT)
