"""The Microsoft Agent Framework on a store: durable runs of agents, checkpoints, histories, memory.

agent = HoldproofAgent(Agent(client, …), "./store", agent_id="support")
ended = await agent.run("Refund order 42", flow_id="case-7")   # after a crash the same call goes on

storage = HoldproofCheckpointStorage("./store")               # instead of FileCheckpointStorage("./checkpoints")
workflow = WorkflowBuilder(…, checkpoint_storage=storage).build()

history = HoldproofHistoryProvider("./store")                 # instead of FileHistoryProvider("./histories")
memory = HoldproofContextProvider("./store", scope="customer-42")   # instead of FileMemoryProvider(…)
agent = Agent(client, context_providers=[history, memory])
"""

from holdproof.errors import MissingExtraError

try:
    from holdproof.adapters.agent_framework.agent import HoldproofAgent
    from holdproof.adapters.agent_framework.durability import middleware
    from holdproof.adapters.agent_framework.history import HoldproofHistoryProvider
    from holdproof.adapters.agent_framework.memory import HoldproofContextProvider
    from holdproof.adapters.agent_framework.storage import HoldproofCheckpointStorage
except ModuleNotFoundError as error:
    if error.name is not None and error.name.partition(".")[0] == "agent_framework":
        message = "the adapter needs agent-framework-core: pip install 'holdproof[agent-framework]'"
        raise MissingExtraError(message) from error
    raise

__all__ = [
    "HoldproofAgent",
    "HoldproofCheckpointStorage",
    "HoldproofContextProvider",
    "HoldproofHistoryProvider",
    "middleware",
]
