"""The OpenAI Agents SDK on a store: durable runs, sessions, runs that wait for a person, and traces.

agent = HoldproofAgent(Agent(name="support", …), "./store", agent_id="support")
ended = await agent.run("Refund order 42", flow_id="case-7")   # after a crash the same call goes on

session = HoldproofSession("customer-42", "./store")          # instead of SQLiteSession("customer-42", "chats.db")
result = await Runner.run(agent, "Hello", session=session)

pauses = HoldproofApprovals("./store", agent_id="support")
asked = await pauses.pause(result)                           # result.interruptions are in the inbox
ended = await pauses.resume(agent, asked.id)                 # once somebody has answered

add_trace_processor(HoldproofTracingProcessor("./store"))    # spans, tokens and times of every run
"""

from holdproof.errors import MissingExtraError

try:
    from holdproof.adapters.openai_agents.agent import HoldproofAgent
    from holdproof.adapters.openai_agents.approvals import HoldproofApprovals
    from holdproof.adapters.openai_agents.durability import durable, durable_config
    from holdproof.adapters.openai_agents.session import HoldproofSession, session_ids
    from holdproof.adapters.openai_agents.tracing import HoldproofTracingProcessor
except ModuleNotFoundError as error:
    if error.name is not None and error.name.partition(".")[0] == "agents":
        raise MissingExtraError("the adapter needs openai-agents: pip install 'holdproof[openai]'") from error
    raise

__all__ = [
    "HoldproofAgent",
    "HoldproofApprovals",
    "HoldproofSession",
    "HoldproofTracingProcessor",
    "durable",
    "durable_config",
    "session_ids",
]
