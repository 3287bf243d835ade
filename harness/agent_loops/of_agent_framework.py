"""The scripted agent of the Microsoft Agent Framework."""

from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)

from holdproof.adapters.agent_framework import HoldproofAgent
from tests.faults.agent_loops.world import INSTRUCTIONS, TURNS, World, final_answer, tools_of


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Answers by what it is sent, as a model does."""

    model = "scripted"
    world: World

    async def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> ChatResponse:
        assert not stream
        contents = [content for message in messages for content in message.contents]
        results = [content.result for content in contents if content.type == "function_result"]
        turn = next(turn for turn in range(TURNS) if sum(map(len, map(tools_of, range(turn)))) == len(results))
        self.world.happen(f"model {turn}")
        calls: list[Any] = [
            Content.from_function_call(f"{tool}-{turn}", tool, arguments={"turn": turn}) for tool in tools_of(turn)
        ]
        contents = calls or [Content.from_text(final_answer(results))]
        return ChatResponse(messages=[Message(role="assistant", contents=contents)], model="scripted")


def agent(world: World, where: Any, *, lease_s: float) -> HoldproofAgent:
    @tool
    def look(turn: int) -> str:
        """Look at an order."""
        return world.tool("look", turn)

    @tool
    def charge(turn: int) -> str:
        """Charge an order."""
        return world.tool("charge", turn)

    client = Scripted(function_invocation_configuration={"max_iterations": TURNS + 1})
    client.world = world
    scripted = Agent(client, instructions=INSTRUCTIONS, name="books", tools=[look, charge])
    return HoldproofAgent(scripted, where, agent_id="books", lease_s=lease_s, safe=["look"])
