"""The scripted agent of the Microsoft Agent Framework."""

import warnings
from pathlib import Path
from typing import Any, Final

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FileHistoryProvider,
    FunctionInvocationLayer,
    Message,
    tool,
)

from harness.agent_loops.world import INSTRUCTIONS, PROMPT, TURNS, World, final_answer, tools_of
from holdproof.adapters.agent_framework import HoldproofAgent, HoldproofHistoryProvider

OWN: Final = "FileHistoryProvider"
OURS: Final = "HoldproofHistoryProvider"


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


def _scripted(world: World, **options: Any) -> Agent:
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
    return Agent(client, instructions=INSTRUCTIONS, name="books", tools=[look, charge], **options)


def agent(world: World, where: Any, *, lease_s: float) -> HoldproofAgent:
    """The agent whose runs are durable."""
    return HoldproofAgent(_scripted(world), where, agent_id="books", lease_s=lease_s, safe=["look"])


async def _run(world: World, history: Any) -> None:
    scripted = _scripted(world, context_providers=[history])
    await scripted.run(PROMPT, session=scripted.create_session(session_id="books"))


async def run_own(world: World, folder: Path) -> None:
    """Run it with the framework's own storage."""
    with warnings.catch_warnings():
        # It says of itself that it is experimental; there is no other one that keeps anything on a disk.
        warnings.simplefilter("ignore")
        history = FileHistoryProvider(folder)
    await _run(world, history)


async def run_ours(world: World, store: Any) -> None:
    """Run it with ours in its place."""
    await _run(world, HoldproofHistoryProvider(store))
