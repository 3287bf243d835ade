"""A2A servers on a store: tasks, tasks with versions, and where changes of tasks are pushed to.

handler = DefaultRequestHandler(
    agent_executor=…,
    task_store=HoldproofTaskStore("./store"),                        # instead of InMemoryTaskStore()
    push_config_store=HoldproofPushNotificationConfigStore("./store"),
    agent_card=…,
)
"""

from holdproof.errors import MissingExtraError

try:
    from holdproof.adapters.a2a.push_configs import HoldproofPushNotificationConfigStore
    from holdproof.adapters.a2a.task_store import HoldproofTaskStore, HoldproofVersionedTaskStore
except ModuleNotFoundError as error:
    if error.name is not None and error.name.partition(".")[0] == "a2a":
        raise MissingExtraError("the adapter needs a2a-sdk: pip install 'holdproof[a2a]'") from error
    raise

__all__ = ["HoldproofPushNotificationConfigStore", "HoldproofTaskStore", "HoldproofVersionedTaskStore"]
