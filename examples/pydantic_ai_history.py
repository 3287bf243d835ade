"""Pydantic AI on a store: a history that survives the process, and a tool call that waits for an approval.

python examples/pydantic_ai_history.py [FOLDER]

The model is a function, so that this needs neither a network nor a key. With a real one only the model changes.
"""

import asyncio
import sys
import tempfile

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdproof
from holdproof.adapters.pydantic_ai import HoldproofApprovals, HoldproofHistory

refunds: list[int] = []


def script(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Play the model: a greeting, then a refund, then its result."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"Done: {last.content}.")])
    if "back" in str(getattr(last, "content", "")):
        return ModelResponse(parts=[ToolCallPart("refund", {"euros": 30}, tool_call_id="call-1")])
    return ModelResponse(parts=[TextPart("Hello Ada.")])


support = Agent(FunctionModel(script), output_type=[str, DeferredToolRequests])


@support.tool_plain(requires_approval=True)
def refund(euros: int) -> str:
    """Pay money back."""
    refunds.append(euros)
    return f"paid {euros} euros"


async def main(folder: str) -> None:
    """Run a turn, pause a second one at a tool call, approve it with a smaller amount, resume it."""
    async with holdproof.open(folder) as store:
        history = HoldproofHistory("ada", store)
        hello = await history.run(support, "Hello, I am Ada.")
        print("agent: ", hello.output)
        stopped = await history.run(support, "I want my 30 euros back.")
        asked = await HoldproofApprovals(store, agent_id="support").pause(stopped, reason="a refund")
        print("asked: ", asked.proposal)

    async with holdproof.open(folder) as store:  # another process, another day
        [waiting] = (await store.escalations.list(status="PENDING")).items
        less = {"calls": [{"id": "call-1", "arguments": {"euros": 25}}]}
        await store.escalations.resolve(waiting.id, "approve", by="grace", proposal=less)
        history, approvals = HoldproofHistory("ada", store), HoldproofApprovals(store, agent_id="support")
        ended = await approvals.resume(support, waiting.id, history=history)
        again = await approvals.resume(support, waiting.id, history=history)
        print("agent: ", ended.output)
        assert (again.output, refunds) == (ended.output, [25]), "a refund is paid once, as it was approved"
        print("messages: ", len(await history.messages()))
        assert (await store.verify.run()).verdict.sound


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else scratch))
