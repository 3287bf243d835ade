"""The scripted agent of LangGraph, with its checkpoints on the store."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

from holdproof.adapters.langgraph import HoldproofAgent, HoldproofSaver, durable
from tests.faults.agent_loops.world import INSTRUCTIONS, TURNS, World, final_answer, tools_of

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


def agent(world: World, where: Any, *, lease_s: float) -> HoldproofAgent:
    def look(turn: int) -> str:
        """Look at an order."""
        return world.tool("look", turn)

    def charge(turn: int) -> str:
        """Charge an order."""
        return world.tool("charge", turn)

    tools = durable([look, charge], safe=["look"])
    model = durable(Scripted(world=world))
    scripted = create_agent(model, tools, system_prompt=INSTRUCTIONS, checkpointer=HoldproofSaver(where))
    return HoldproofAgent(scripted, where, agent_id="books", lease_s=lease_s)
