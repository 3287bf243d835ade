"""The scripted agent of Google ADK."""

from collections.abc import AsyncIterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types

from holdproof.adapters.google_adk import HoldproofAgent
from tests.faults.agent_loops.world import INSTRUCTIONS, TURNS, World, final_answer, tools_of


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


def agent(world: World, where: Any, *, lease_s: float) -> HoldproofAgent:
    def look(turn: int) -> str:
        """Look at an order."""
        return world.tool("look", turn)

    def charge(turn: int) -> str:
        """Charge an order."""
        return world.tool("charge", turn)

    scripted = LlmAgent(
        name="books", instruction=INSTRUCTIONS, model=Scripted(model="scripted", world=world), tools=[look, charge]
    )
    return HoldproofAgent(scripted, where, agent_id="books", lease_s=lease_s, safe=["look"])
