"""Pydantic AI on a store: histories of messages, and runs that wait for a person.

history = HoldfastHistory("customer-42", "./store")
result = await history.run(agent, "Hello")                   # instead of agent.run("Hello", message_history=…)

approvals = HoldfastApprovals("./store", agent_id="support")
asked = await approvals.pause(result)                        # result.output is a DeferredToolRequests
ended = await approvals.resume(agent, asked.id, history=history)
"""

from holdfast.errors import MissingExtraError

try:
    from holdfast.adapters.pydantic_ai.approvals import HoldfastApprovals
    from holdfast.adapters.pydantic_ai.history import HoldfastHistory
except ModuleNotFoundError as error:
    if error.name is not None and error.name.partition(".")[0] == "pydantic_ai":
        raise MissingExtraError("the adapter needs pydantic-ai-slim: pip install 'holdfast[pydantic-ai]'") from error
    raise

__all__ = ["HoldfastApprovals", "HoldfastHistory"]
