"""The Microsoft Agent Framework on a store: checkpoints of workflows.

storage = HoldproofCheckpointStorage("./store")               # instead of FileCheckpointStorage("./checkpoints")
workflow = WorkflowBuilder(…, checkpoint_storage=storage).build()
"""

from holdproof.errors import MissingExtraError

try:
    from holdproof.adapters.agent_framework.storage import HoldproofCheckpointStorage
except ModuleNotFoundError as error:
    if error.name is not None and error.name.partition(".")[0] == "agent_framework":
        message = "the adapter needs agent-framework-core: pip install 'holdproof[agent-framework]'"
        raise MissingExtraError(message) from error
    raise

__all__ = ["HoldproofCheckpointStorage"]
