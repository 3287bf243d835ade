"""The messages of a conversation with a Pydantic AI agent: a transcript.

Rules:
- The messages of a run are added as one, once it has ended: a run that fails leaves the history as it was.
- Two runs at a time on one history both stay, each whole; with `alone=True` the later one is refused (ConflictError).
- Messages are validated by Pydantic AI when they are read; what is no message is FormatError and never passed over.
"""

from functools import partial
from typing import Any, Final

from pydantic import ValidationError
from pydantic_ai.messages import ModelMessagesTypeAdapter

from holdproof.adapters.shared_store import SharedStore, StoreAdapter, Where, shield_until_done
from holdproof.errors import FormatError, NotFoundError
from holdproof.kernel import transcripts

PREFIX: Final = "pydantic-ai/"


class HoldproofHistory(StoreAdapter):
    """A conversation on a store: a folder, a URL, `:memory:`, one that is open, or where the environment says."""

    def __init__(self, conversation_id: str, where: Where = None, *, ns: str | None = None) -> None:
        self.conversation_id = conversation_id
        self._shared = SharedStore(where, ns=ns)
        self._name = PREFIX + conversation_id

    async def messages(self, last: int | None = None) -> list[Any]:
        """Return the messages in their order, or the last so many."""
        store = await self._shared.store()
        query = {"last": last, **self._shared.within()}
        items = await store.read(partial(transcripts.read_items, name=self._name, **query))
        try:
            return list(ModelMessagesTypeAdapter.validate_python([item.value for item in items]))
        # A message of a newer version, or no message: skipping it would change the conversation.
        except ValidationError as error:
            message = f"the history {self.conversation_id} holds what is no message"
            raise FormatError(message, conversation=self.conversation_id) from error

    async def append(self, messages: list[Any], *, expected: int | None = None) -> None:
        """Add messages at the end, if nobody wrote since the revision `expected`."""
        store = await self._shared.store()
        items = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
        await shield_until_done(store.transcripts.append(self._name, items, expected=expected, **self._shared.within()))

    async def run(self, agent: Any, prompt: Any = None, *, alone: bool = False, **options: Any) -> Any:
        """Run an agent with the messages so far, and add the new ones; options are those of `agent.run`."""
        # Read before the run: if another run appends meanwhile, this append is a ConflictError.
        expected_rev = await self._rev() if alone else None
        result = await agent.run(prompt, message_history=await self.messages(), **options)
        await self.append(result.new_messages(), expected=expected_rev)
        return result

    async def _rev(self) -> int:
        store = await self._shared.store()
        try:
            return (await store.transcripts.get(self._name, **self._shared.within())).rev
        except NotFoundError:
            return 0

    async def clear(self) -> None:
        """Forget all messages."""
        store = await self._shared.store()
        await shield_until_done(store.transcripts.delete(self._name, **self._shared.within()))
