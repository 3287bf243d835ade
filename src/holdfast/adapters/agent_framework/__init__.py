"""The Microsoft Agent Framework on a store: checkpoints of workflows.

storage = HoldfastCheckpointStorage("./store")               # instead of FileCheckpointStorage("./checkpoints")
workflow = WorkflowBuilder(…, checkpoint_storage=storage).build()
"""

from holdfast.errors import MissingExtraError

try:
    from holdfast.adapters.agent_framework.storage import HoldfastCheckpointStorage
except ModuleNotFoundError as error:
    if error.name is not None and error.name.partition(".")[0] == "agent_framework":
        message = "the adapter needs agent-framework-core: pip install 'holdfast[agent-framework]'"
        raise MissingExtraError(message) from error
    raise

__all__ = ["HoldfastCheckpointStorage"]
