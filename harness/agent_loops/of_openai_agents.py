"""The scripted agent of the OpenAI Agents SDK."""

import json
from pathlib import Path
from typing import Any, Final

from agents import Agent, Model, ModelResponse, RunConfig, Runner, SQLiteSession, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from harness.agent_loops.world import INSTRUCTIONS, PROMPT, TURNS, World, final_answer, tools_of
from holdproof.adapters.openai_agents import HoldproofAgent, HoldproofSession

OWN: Final = "SQLiteSession"
OURS: Final = "HoldproofSession"
_OPTIONS: Final[dict[str, Any]] = {"max_turns": TURNS + 1, "run_config": RunConfig(tracing_disabled=True)}


def _message(text: str) -> Any:
    part = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(id="message-1", type="message", role="assistant", status="completed", content=[part])


def _call(name: str, arguments: Any, call_id: str) -> Any:
    return ResponseFunctionToolCall(
        name=name, arguments=json.dumps(arguments), call_id=call_id, id=call_id, type="function_call"
    )


class Scripted(Model):
    """Answers by what it is sent, as a model does: a script of its own would be lost with the process."""

    def __init__(self, world: World) -> None:
        self.model = "scripted"
        self._world = world

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        items = [] if isinstance(input, str) else input
        results = [item["output"] for item in items if item.get("type") == "function_call_output"]
        turn = next(turn for turn in range(TURNS) if sum(map(len, map(tools_of, range(turn)))) == len(results))
        self._world.happen(f"model {turn}")
        output: list[Any] = [_call(tool, {"turn": turn}, f"{tool}-{turn}") for tool in tools_of(turn)]
        if not output:
            output = [_message(final_answer(results))]
        usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
        return ModelResponse(output=output, usage=usage, response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("these runs are not streamed")


def _scripted(world: World) -> Agent:
    @function_tool
    def look(turn: int) -> str:
        return world.tool("look", turn)

    @function_tool
    def charge(turn: int) -> str:
        return world.tool("charge", turn)

    return Agent(name="books", instructions=INSTRUCTIONS, model=Scripted(world), tools=[look, charge])


def agent(world: World, where: Any, *, lease_s: float) -> HoldproofAgent:
    """The agent whose runs are durable."""
    return HoldproofAgent(_scripted(world), where, agent_id="books", lease_s=lease_s, safe=["look"], **_OPTIONS)


async def run_own(world: World, folder: Path) -> None:
    """Run it with the framework's own storage."""
    session = SQLiteSession("books", folder / "chats.db")
    await Runner.run(_scripted(world), PROMPT, session=session, **_OPTIONS)
    session.close()


async def run_ours(world: World, store: Any) -> None:
    """Run it with ours in its place."""
    await Runner.run(_scripted(world), PROMPT, session=HoldproofSession("books", store), **_OPTIONS)
