"""The shop assistant of LangGraph."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

from holdproof.adapters.langgraph import HoldproofAgent, durable
from tests.conformance.agents import TOOLS, Shop

USAGE = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}


class Scripted(BaseChatModel):
    model_name: str = "scripted"
    seen: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=[convert_to_openai_tool(each)["function"] for each in tools], **kwargs)

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        self.seen.calls.append("model")
        last = messages[-1]
        if isinstance(last, ToolMessage):
            answer = AIMessage(f"heard: {last.content}", usage_metadata=USAGE)
        else:
            calls = [{"name": last.content, "args": TOOLS[last.content], "id": "call-1"}]
            answer = AIMessage("", tool_calls=calls, usage_metadata=USAGE)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def agent(seen: Shop, store: Any, **options: Any) -> HoldproofAgent:
    def look(order: int) -> str:
        """Look at an order."""
        return seen.look(order)

    def refund(euros: int) -> str:
        """Pay money back."""
        return seen.refund(euros)

    tools = durable([look, refund], approve=["refund"])
    made: Any = create_agent(durable(Scripted(seen=seen)), tools, system_prompt="Be kind.")

    async def plainly(durable_agent: HoldproofAgent, prompt: str) -> Any:
        return (await made.ainvoke({"messages": [("user", prompt)]}))["messages"][-1].content

    seen.plainly = plainly
    return HoldproofAgent(made, store, agent_id="shop", **options)
