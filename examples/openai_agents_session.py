"""OpenAI Agents on a store: a session that survives the process, and a tool call that waits for an approval.

python examples/openai_agents_session.py [FOLDER]

The model is scripted, so that this needs neither a network nor a key. With a real one only `model=` changes.
"""

import asyncio
import sys
import tempfile

from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

import holdproof
from holdproof.adapters.openai_agents import HoldproofApprovals, HoldproofSession

refunds: list[int] = []


@function_tool(needs_approval=True)
def refund(euros: int) -> str:
    """Pay money back."""
    refunds.append(euros)
    return f"paid {euros} euros"


def support() -> Agent[None]:
    """Return the agent, with the script of its model."""
    script = ScriptedModel(
        [
            [assistant_message("Hello Ada.")],
            [function_call("refund", {"euros": 30}, call_id="call-1")],
            [assistant_message("Your 30 euros are on their way.")],
        ]
    )
    return Agent(name="support", model=script, tools=[refund])


async def main(folder: str) -> None:
    """Run a turn, pause a second one at a tool call, approve it, resume it."""
    set_tracing_disabled(True)
    agent = support()
    async with holdproof.open(folder) as store:
        session = HoldproofSession("ada", store)
        hello = await Runner.run(agent, "Hello, I am Ada.", session=session)
        print("agent: ", hello.final_output)

        stopped = await Runner.run(agent, "I want my 30 euros back.", session=session)
        approvals = HoldproofApprovals(store, agent_id="support")
        asked = await approvals.pause(stopped, reason="a refund")
        print("asked: ", asked.proposal)

    async with holdproof.open(folder) as store:  # another process, another day
        [waiting] = (await store.escalations.list(status="PENDING")).items
        await store.escalations.resolve(waiting.id, "approve", by="grace")
        session = HoldproofSession("ada", store)
        approvals = HoldproofApprovals(store, agent_id="support")
        ended = await approvals.resume(agent, waiting.id, session=session)
        again = await approvals.resume(agent, waiting.id, session=session)
        print("agent: ", ended.output)
        assert (again.output, refunds) == (ended.output, [30]), "a refund is paid once"
        print("items: ", len(await session.get_items()))
        assert (await store.verify.run()).verdict.sound


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else scratch))
