"""Where A2A pushes changes of tasks to: a transcript for each task of each owner, a configuration an item.

Rules:
- A caller sees and removes only what is its own; what is dispatched is everybody's.
- The log has none of it, and configurations hold credentials: who can read the database can read them.
"""

from typing import Any, Final

from a2a.server.context import ServerCallContext
from a2a.server.tasks.push_notification_config_store import (
    PushNotificationConfigStore,
    normalize_push_notification_config,
)
from a2a.types.a2a_pb2 import TaskPushNotificationConfig
from google.protobuf.json_format import MessageToDict, ParseDict

from holdproof.adapters import documents
from holdproof.adapters.a2a.owners import OwnedStore
from holdproof.adapters.shared_store import shield_until_done
from holdproof.errors import InvalidInputError
from holdproof.kernel import Tx, transcripts

PREFIX: Final = "a2a-push/"


class HoldproofPushNotificationConfigStore(OwnedStore, PushNotificationConfigStore):
    """Push notification configurations on a store."""

    async def set_info(
        self, task_id: str, notification_config: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Write a configuration in the place of the one with its id; return it with its ids filled in."""
        if not isinstance(notification_config, TaskPushNotificationConfig):
            kind = type(notification_config).__name__
            raise InvalidInputError(f"a configuration must be a TaskPushNotificationConfig, not {kind}")
        config: TaskPushNotificationConfig = normalize_push_notification_config(task_id, notification_config)
        owner = self._owner(context)
        name = documents.joined(PREFIX, task_id, owner)
        key = documents.joined("", config.id)
        store = await self._shared.store()
        put = store.transcripts.put_item
        await shield_until_done(put(name, key, MessageToDict(config), **self._label(owner)))
        return config

    async def get_info(self, task_id: str, context: ServerCallContext) -> list[TaskPushNotificationConfig]:
        """Return the caller's configurations for a task."""
        name = documents.joined(PREFIX, task_id, self._owner(context))
        within = self._within()
        store = await self._shared.store()
        items = await store.read(lambda tx: transcripts.read_items(tx, name, **within))
        return [_config(item.value) for item in items]

    async def get_info_for_dispatch(self, task_id: str) -> list[TaskPushNotificationConfig]:
        """Return the configurations for a task of all owners."""
        prefix = documents.joined(PREFIX, task_id, "")
        within = self._within()

        def read(tx: Tx) -> list[Any]:
            names = [each.name for each in documents.every(tx, prefix, **within)]
            return [item.value for name in names for item in transcripts.read_items(tx, name, **within)]

        store = await self._shared.store()
        return [_config(value) for value in await store.read(read)]

    async def delete_info(self, task_id: str, context: ServerCallContext, config_id: str | None = None) -> None:
        """Delete one configuration of the caller for a task, or all of them; nothing where there is none."""
        name = documents.joined(PREFIX, task_id, self._owner(context))
        store = await self._shared.store()
        if config_id is None:
            await shield_until_done(store.transcripts.delete(name, **self._within()))
            return
        key = documents.joined("", config_id)
        await shield_until_done(store.transcripts.delete_item(name, key, **self._within()))


def _config(value: Any) -> TaskPushNotificationConfig:
    config = TaskPushNotificationConfig()
    ParseDict(value, config, ignore_unknown_fields=True)
    return config
