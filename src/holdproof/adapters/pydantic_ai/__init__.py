"""Pydantic AI on a store: histories of messages, and runs that wait for a person.

history = HoldproofHistory("customer-42", "./store")
result = await history.run(agent, "Hello")                   # instead of agent.run("Hello", message_history=…)

approvals = HoldproofApprovals("./store", agent_id="support")
asked = await approvals.pause(result)                        # result.output is a DeferredToolRequests
ended = await approvals.resume(agent, asked.id, history=history)
"""

from holdproof.errors import MissingExtraError

try:
    from holdproof.adapters.pydantic_ai.approvals import HoldproofApprovals
    from holdproof.adapters.pydantic_ai.history import HoldproofHistory
except ModuleNotFoundError as error:
    if error.name is not None and error.name.partition(".")[0] == "pydantic_ai":
        raise MissingExtraError("the adapter needs pydantic-ai-slim: pip install 'holdproof[pydantic-ai]'") from error
    raise

__all__ = ["HoldproofApprovals", "HoldproofHistory"]
