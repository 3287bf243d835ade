"""Pydantic AI on a store: durable runs, histories of messages, and runs that wait for a person.

agent = Agent("openai:gpt-5", name="support", capabilities=[HoldproofDurability()])
durable = HoldproofAgent(agent, "./store", agent_id="support")
ended = await durable.run("Refund order 42", flow_id="case-7")   # after a crash the same call goes on

history = HoldproofHistory("customer-42", "./store")
result = await history.run(agent, "Hello")                   # instead of agent.run("Hello", message_history=…)

conversations = HoldproofConversationStore("./store")        # Pydantic AI 2.66 or newer; branches and forks

approvals = HoldproofApprovals("./store", agent_id="support")
asked = await approvals.pause(result)                        # result.output is a DeferredToolRequests
ended = await approvals.resume(agent, asked.id, history=history)
"""

from typing import TYPE_CHECKING, Any

from holdproof.errors import MissingExtraError

if TYPE_CHECKING:
    from holdproof.adapters.pydantic_ai.conversations import HoldproofConversationStore

try:
    from holdproof.adapters.pydantic_ai.agent import HoldproofAgent
    from holdproof.adapters.pydantic_ai.approvals import HoldproofApprovals
    from holdproof.adapters.pydantic_ai.durability import HoldproofDurability
    from holdproof.adapters.pydantic_ai.history import HoldproofHistory
except ModuleNotFoundError as error:
    if error.name is not None and error.name.partition(".")[0] == "pydantic_ai":
        raise MissingExtraError("the adapter needs pydantic-ai-slim: pip install 'holdproof[pydantic-ai]'") from error
    raise

__all__ = [
    "HoldproofAgent",
    "HoldproofApprovals",
    "HoldproofConversationStore",
    "HoldproofDurability",
    "HoldproofHistory",
]


def __getattr__(name: str) -> Any:
    """Return what older versions of Pydantic AI have no protocol for, when it is asked for."""
    if name != "HoldproofConversationStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from holdproof.adapters.pydantic_ai import conversations  # noqa: PLC0415 (an optional extra of other versions)
    except ModuleNotFoundError as error:
        if error.name == "pydantic_ai.conversation_store":
            raise MissingExtraError("this needs a newer version: pip install 'pydantic-ai-slim>=2.66'") from error
        raise
    return conversations.HoldproofConversationStore
