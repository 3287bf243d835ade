"""The scripted agent of Google ADK."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from harness.agent_loops.world import INSTRUCTIONS, PROMPT, TURNS, World, final_answer, tools_of
from holdproof.adapters.google_adk import HoldproofAgent, HoldproofSessionService

OWN: Final = "SqliteSessionService"
OURS: Final = "HoldproofSessionService"


class Scripted(BaseLlm):
    """Answers by what it is sent, as a model does."""

    world: Any

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        answers = [part.function_response for content in llm_request.contents for part in content.parts]
        results = [answer.response["result"] for answer in answers if answer is not None]
        turn = next(turn for turn in range(TURNS) if sum(map(len, map(tools_of, range(turn)))) == len(results))
        self.world.happen(f"model {turn}")
        calls = [
            types.Part(function_call=types.FunctionCall(name=tool, args={"turn": turn})) for tool in tools_of(turn)
        ]
        parts = calls or [types.Part(text=final_answer(results))]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def _scripted(world: World) -> LlmAgent:
    def look(turn: int) -> str:
        """Look at an order."""
        return world.tool("look", turn)

    def charge(turn: int) -> str:
        """Charge an order."""
        return world.tool("charge", turn)

    return LlmAgent(
        name="books", instruction=INSTRUCTIONS, model=Scripted(model="scripted", world=world), tools=[look, charge]
    )


def agent(world: World, where: Any, *, lease_s: float) -> HoldproofAgent:
    """The agent whose runs are durable."""
    return HoldproofAgent(_scripted(world), where, agent_id="books", lease_s=lease_s, safe=["look"])


async def _run(world: World, service: Any) -> None:
    await service.create_session(app_name="shop", user_id="ada", session_id="books")
    runner = Runner(app_name="shop", agent=_scripted(world), session_service=service)
    message = types.Content(role="user", parts=[types.Part(text=PROMPT)])
    async for _ in runner.run_async(user_id="ada", session_id="books", new_message=message):
        pass


async def run_own(world: World, folder: Path) -> None:
    """Run it with the framework's own storage."""
    await _run(world, SqliteSessionService(str(folder / "sessions.db")))


async def run_ours(world: World, store: Any) -> None:
    """Run it with ours in its place."""
    await _run(world, HoldproofSessionService(store))
