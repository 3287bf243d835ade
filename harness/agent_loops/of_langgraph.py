"""The scripted agent of LangGraph, with its checkpoints on the store."""

import asyncio
from pathlib import Path
from typing import Any, Final

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.sqlite import SqliteSaver

from harness.agent_loops.world import INSTRUCTIONS, PROMPT, TURNS, World, final_answer, tools_of
from holdproof.adapters.langgraph import HoldproofAgent, HoldproofSaver, durable

OWN: Final = "SqliteSaver"
OURS: Final = "HoldproofSaver"

AT_ONCE = True
"""The tools of a turn are tasks of their own, which LangGraph runs at once."""


class Scripted(BaseChatModel):
    """Answers by what it is sent, as a model does."""

    model_name: str = "scripted"
    world: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=[convert_to_openai_tool(each) for each in tools], **kwargs)

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        results = [message.content for message in messages if isinstance(message, ToolMessage)]
        turn = next(turn for turn in range(TURNS) if sum(map(len, map(tools_of, range(turn)))) == len(results))
        self.world.happen(f"model {turn}")
        calls = [{"name": tool, "args": {"turn": turn}, "id": f"{tool}-{turn}"} for tool in tools_of(turn)]
        answer = AIMessage("" if calls else final_answer(results), tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def _scripted(world: World, saver: Any) -> Any:
    def look(turn: int) -> str:
        """Look at an order."""
        return world.tool("look", turn)

    def charge(turn: int) -> str:
        """Charge an order."""
        return world.tool("charge", turn)

    tools = durable([look, charge], safe=["look"])
    model = durable(Scripted(world=world))
    return create_agent(model, tools, system_prompt=INSTRUCTIONS, checkpointer=saver)


def agent(world: World, where: Any, *, lease_s: float) -> HoldproofAgent:
    """The agent whose runs are durable."""
    return HoldproofAgent(_scripted(world, HoldproofSaver(where)), where, agent_id="books", lease_s=lease_s)


async def _run(world: World, saver: Any) -> None:
    config = {"configurable": {"thread_id": "books"}, "recursion_limit": 10 * TURNS}
    await asyncio.to_thread(_scripted(world, saver).invoke, {"messages": [("user", PROMPT)]}, config)


async def run_own(world: World, folder: Path) -> None:
    """Run it with the framework's own storage."""
    with SqliteSaver.from_conn_string(str(folder / "checkpoints.db")) as saver:
        await _run(world, saver)


async def run_ours(world: World, store: Any) -> None:
    """Run it with ours in its place."""
    await _run(world, HoldproofSaver(store))
