"""Pydantic AI on a store: durable runs, histories of messages, and runs that wait for a person.

agent = Agent("openai:gpt-5", name="support", capabilities=[HoldproofDurability()])
durable = HoldproofAgent(agent, "./store", agent_id="support")
ended = await durable.run("Refund order 42", flow_id="case-7")   # after a crash the same call goes on

history = HoldproofHistory("customer-42", "./store")
result = await history.run(agent, "Hello")                   # instead of agent.run("Hello", message_history=…)

conversations = HoldproofConversationStore("./store")        # Pydantic AI 2.66 or newer; branches and forks

steps = StepPersistence(store=HoldproofStepStore("./store")) # a capability of pydantic-ai-harness

approvals = HoldproofApprovals("./store", agent_id="support")
asked = await approvals.pause(result)                        # result.output is a DeferredToolRequests
ended = await approvals.resume(agent, asked.id, history=history)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from holdproof.errors import MissingExtraError

if TYPE_CHECKING:
    from holdproof.adapters.pydantic_ai.conversations import HoldproofConversationStore
    from holdproof.adapters.pydantic_ai.steps import HoldproofStepStore

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
    "HoldproofStepStore",
]


# What not every version of Pydantic AI has a protocol for: its class, its module, and what has to be installed.
_PROTOCOLS: Final = {
    "HoldproofConversationStore": ("conversations", "pydantic_ai.conversation_store", "pydantic-ai-slim>=2.66"),
    "HoldproofStepStore": ("steps", "pydantic_ai_harness", "holdproof[pydantic-ai-steps]"),
}


def __getattr__(name: str) -> Any:
    """Return what needs another version or package than the rest, when it is asked for."""
    if name not in _PROTOCOLS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, protocol, package = _PROTOCOLS[name]
    try:
        return getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{error.name}.".startswith(f"{protocol}."):
            raise MissingExtraError(f"this needs another package: pip install '{package}'") from error
        raise
