"""The OpenAI Agents SDK on a store: sessions, and runs that wait for a person.

session = HoldfastSession("customer-42", "./store")          # instead of SQLiteSession("customer-42", "chats.db")
result = await Runner.run(agent, "Hello", session=session)

pauses = HoldfastApprovals("./store", agent_id="support")
asked = await pauses.pause(result)                           # result.interruptions are in the inbox
ended = await pauses.resume(agent, asked.id)                 # once somebody has answered
"""

from holdfast.errors import MissingExtraError

try:
    from holdfast.adapters.openai_agents.approvals import HoldfastApprovals
    from holdfast.adapters.openai_agents.session import HoldfastSession, session_ids
except ModuleNotFoundError as error:
    if error.name is not None and error.name.partition(".")[0] == "agents":
        raise MissingExtraError("the adapter needs openai-agents: pip install 'holdfast[openai]'") from error
    raise

__all__ = ["HoldfastApprovals", "HoldfastSession", "session_ids"]
