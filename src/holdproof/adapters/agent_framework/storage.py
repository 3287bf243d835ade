"""The `CheckpointStorage` of the Microsoft Agent Framework: items of one transcript, by their id.

Rules:
- A checkpoint is durable when `save` returns its id; saved again under the same id, the later one counts, whole.
- The latest of a workflow is the one that was saved last, whatever a clock said.
- Decoding builds nothing but values, the framework's own types, and types that the user has allowed, always; what
  could not be read back is refused when it is saved. The framework's format has pickles in it, and its own words hold
  here too: whoever can write to the database must be trusted.
- A row that cannot be read is an error, and never passed over.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from agent_framework import WorkflowCheckpoint, WorkflowCheckpointException
from agent_framework._workflows import _checkpoint_encoding as encoding

from holdproof.adapters.shared_store import SharedStore, StoreAdapter, Where, shield_until_done
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.kernel import transcripts
from holdproof.model.transcripts import Item

PREFIX: Final = "agent-framework/"


class HoldproofCheckpointStorage(StoreAdapter):
    """Checkpoints on a store: a folder, a URL, `:memory:`, one that is open, or where the environment says."""

    def __init__(
        self,
        where: Where = None,
        *,
        allowed_checkpoint_types: Iterable[str] = (),
        name: str = "checkpoints",
        ns: str | None = None,
    ) -> None:
        self._shared = SharedStore(where, ns=ns)
        self._name = PREFIX + name
        self._allowed = frozenset(allowed_checkpoint_types)

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Keep a checkpoint; its id."""
        encoded = self._encoded(checkpoint)
        store = await self._shared.store()
        put = store.transcripts.put_item
        try:
            await shield_until_done(
                put(
                    self._name,
                    checkpoint.checkpoint_id,
                    encoded,
                    tag=checkpoint.workflow_name,
                    **self._shared.within(),
                )
            )
        except InvalidInputError as error:
            raise WorkflowCheckpointException(str(error)) from error
        return str(checkpoint.checkpoint_id)

    def _encoded(self, checkpoint: WorkflowCheckpoint) -> Any:
        """Return a checkpoint as JSON, tried out: one that could not be loaded again is refused now."""
        try:
            encoded = encoding.encode_checkpoint_value(checkpoint.to_dict())
            # Decoded right away: a type that is not allowed is refused now, and not when the workflow must resume.
            encoding.decode_checkpoint_value(encoded, allowed_types=self._allowed)
        except WorkflowCheckpointException:
            raise
        except Exception as error:
            message = f"the checkpoint {checkpoint.checkpoint_id} cannot be encoded: {error}"
            raise WorkflowCheckpointException(message) from error
        return encoded

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Return the checkpoint with an id; WorkflowCheckpointException where there is none."""
        store = await self._shared.store()
        try:
            item = await store.transcripts.get_item(self._name, checkpoint_id, **self._shared.within())
        except NotFoundError as error:
            raise WorkflowCheckpointException(f"No checkpoint found with ID {checkpoint_id}") from error
        return self._decoded(item)

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """Return the checkpoints of a workflow, in the order in which they were saved."""
        return [self._decoded(item) for item in await self._items(workflow_name)]

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Return the ids of the checkpoints of a workflow, in the order in which they were saved."""
        return [str(item.key) for item in await self._items(workflow_name)]

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """Return the checkpoint of a workflow that was saved last, None where there is none."""
        items = await self._items(workflow_name, last=1)
        return self._decoded(items[0]) if items else None

    async def delete(self, checkpoint_id: str) -> bool:
        """Remove a checkpoint; whether there was one."""
        store = await self._shared.store()
        return await shield_until_done(
            store.transcripts.delete_item(self._name, checkpoint_id, **self._shared.within())
        )

    async def _items(self, workflow_name: str, last: int | None = None) -> list[Item]:
        store = await self._shared.store()
        query = {"tag": workflow_name, "last": last, **self._shared.within()}
        return await store.read(partial(transcripts.read_items, name=self._name, **query))

    def _decoded(self, item: Item) -> WorkflowCheckpoint:
        checkpoint = WorkflowCheckpoint.from_dict(
            encoding.decode_checkpoint_value(item.value, allowed_types=self._allowed)
        )
        # The key and tag of a row must agree with its content, or a row was exchanged.
        if (checkpoint.checkpoint_id, checkpoint.workflow_name) != (item.key, item.tag):
            raise WorkflowCheckpointException(f"the checkpoint {item.key} says that it is {checkpoint.checkpoint_id}")
        return checkpoint
