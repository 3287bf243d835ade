"""The shop assistant of the Microsoft Agent Framework."""

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

from holdproof.adapters.agent_framework import HoldproofAgent, middleware
from tests.conformance.agents import TOOLS, Shop


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    model = "scripted"
    seen: Shop

    async def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> ChatResponse:
        assert not stream
        self.seen.calls.append("model")
        last = messages[-1].contents[-1]
        if last.type == "function_result":
            content = Content.from_text(f"heard: {last.result}")
        else:
            content = Content.from_function_call("call-1", last.text, arguments=TOOLS[last.text])
        usage: Any = {"input_token_count": 11, "output_token_count": 7}
        return ChatResponse(messages=[Message(role="assistant", contents=[content])], usage_details=usage)


def agent(seen: Shop, store: Any, **options: Any) -> HoldproofAgent:
    client = Scripted()
    client.seen = seen
    tools = [tool(seen.look), tool(approval_mode="always_require")(seen.refund)]
    made = Agent(client, instructions="Be kind.", name="shop", tools=tools)

    async def plainly(durable: HoldproofAgent, prompt: str) -> Any:
        return (await durable.agent.run(prompt, middleware=middleware())).text

    seen.plainly = plainly
    return HoldproofAgent(made, store, agent_id="shop", **options)
