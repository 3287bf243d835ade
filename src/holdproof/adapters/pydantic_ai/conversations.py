"""The `ConversationStore` of Pydantic AI: conversations with branches and forks, each message stored once.

A transcript for each conversation's record, and one for each tree: the messages of a conversation and of all its forks,
found by their ids. A note for each message says in which tree it is.

Rules:
- A record and its new messages are written as one, or not at all. Of two writers that loaded the same revision one is
  taken; the other gets ConversationConflict, and leaves nothing.
- A fork shares the messages before it. Deleting a conversation removes those that no other conversation has, at once.
- Whoever writes takes the tree first: what a fork points at is never released while it is being forked.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_core import PydanticSerializationError

from holdproof.adapters import documents
from holdproof.adapters.shared_store import SharedStore, StoreAdapter, Where, shield_until_done
from holdproof.errors import ConflictError, FormatError, InvalidInputError, NotFoundError
from holdproof.kernel import Tx, notes, transcripts

RECORDS: Final = "pydantic-ai-conversation/"
TREES: Final = "pydantic-ai-tree/"
ENTRIES: Final = ("pydantic-ai", "entries")

_RECORD: Final = TypeAdapter(ConversationRecord)


class _Stored(NamedTuple):
    """A record as it is stored: what it says, in which tree its messages are, and how often it was written."""

    record: ConversationRecord
    tree: str
    rev: int


class HoldproofConversationStore(StoreAdapter, ConversationStore):
    """Conversations on a store: a folder, a URL, `:memory:`, one that is open, or where the environment says.

    `subject` names the person whose conversations these are: `store.erase.subject(name)` then removes them.
    """

    def __init__(self, where: Where = None, *, subject: str | None = None, ns: str | None = None) -> None:
        self._shared = SharedStore(where, ns=ns)
        self._subject = subject

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, None where there is none."""
        store = await self._shared.store()
        stored = await store.read(lambda tx: self._find(tx, conversation_id))
        return None if stored is None else stored.record

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return the records of all conversations, or those of a scope, the last saved first."""
        within = self._within()

        def read(tx: Tx) -> list[ConversationRecord]:
            states = [each.state for each in documents.every(tx, RECORDS, **within)]
            return [_record(state["record"]) for state in states if scope is None or state["scope"] == scope]

        records = await (await self._shared.store()).read(read)
        records.sort(key=lambda record: record.updated_at, reverse=True)
        return records[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Write a record and the messages that its history adds; ConversationConflict where another was first."""
        id = record.conversation_id
        state = {"record": _dumped(record), "scope": record.scope}
        items = [(entry.id, _body(entry)) for entry in new_entries]
        is_new_head = record.head_id is None or record.head_id in dict(items)

        def write(tx: Tx) -> None:
            stored = self._find(tx, id)
            if (stored.record.revision if stored else None) != expected_revision:
                raise ConversationConflict(id)
            tree = stored.tree if stored else (self._tree(tx, record.head_id, new_entries) or tx.new_id())
            self._enter(tx, tree, id)
            # Only now: before, somebody might have deleted what a fork points at.
            if not is_new_head and self._item(tx, tree, str(record.head_id)) is None:
                raise ConversationConflict(id)
            transcripts.append_new(tx, TREES + tree, items, subject=self._subject, **self._within())
            for key, _ in items:
                notes.put(tx, ENTRIES, key, {"tree": tree}, subject=self._subject, **self._within())
            self._put(tx, id, {**state, "tree": tree}, stored.rev if stored else 0)

        await shield_until_done((await self._shared.store()).write(write))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation and the messages that no other one has; ConversationConflict where it was changed."""

        def write(tx: Tx) -> None:
            stored = self._find(tx, conversation_id)
            if stored is None or stored.record.revision != expected_revision:
                raise ConversationConflict(conversation_id)
            conversations = self._leave(tx, stored.tree, conversation_id)
            again = self._find(tx, conversation_id)
            # It may have been saved, or deleted and made anew, while we waited for the tree.
            if again is None or again.record.revision != expected_revision or again.tree != stored.tree:
                raise ConversationConflict(conversation_id)
            transcripts.delete(tx, documents.joined(RECORDS, conversation_id), **self._within())
            self._release(tx, stored.tree, conversations)

        await shield_until_done((await self._shared.store()).write(write))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return a message with its entry; LookupError where there is none."""
        [entry] = await self.read_history(entry_id, limit=1)
        return entry

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the messages up to an entry, or the last so many of them; LookupError where one is missing."""
        if head_id is None:
            return []

        def read(tx: Tx) -> dict[str, Any]:
            tree = self._tree(tx, head_id, ())
            return {} if tree is None else self._bodies(tx, tree)

        bodies = await (await self._shared.store()).read(read)
        entries: list[ConversationEntry] = []
        id: str | None = head_id
        while id is not None and (limit is None or len(entries) < limit):
            if id not in bodies:
                raise LookupError(f"there is no entry {id}")
            entries.append(_entry(id, bodies[id]))
            id = bodies[id]["parent_id"]
        entries.reverse()
        return entries

    # --- rows --------------------------------------------------------------------------------------------------------

    def _find(self, tx: Tx, conversation_id: str) -> _Stored | None:
        try:
            transcript = transcripts.get(tx, documents.joined(RECORDS, conversation_id), **self._within())
        except NotFoundError:
            return None
        return _Stored(_record(transcript.state["record"]), transcript.state["tree"], transcript.rev)

    def _put(self, tx: Tx, conversation_id: str, state: dict[str, Any], expected: int) -> None:
        name = documents.joined(RECORDS, conversation_id)
        try:
            transcripts.put_state(tx, name, state, expected=expected, subject=self._subject, **self._within())
        except ConflictError as error:
            raise ConversationConflict(conversation_id) from error

    def _tree(self, tx: Tx, head_id: str | None, new_entries: Sequence[ConversationEntry]) -> str | None:
        """Return in which tree an entry is, or the first of new ones belongs; None where none is known."""
        entry_id = new_entries[0].parent_id if new_entries else head_id
        note = None if entry_id is None else notes.find(tx, ENTRIES, entry_id, **self._within())
        return None if note is None else str(note.value["tree"])

    def _item(self, tx: Tx, tree: str, entry_id: str) -> Any:
        try:
            return transcripts.get_item(tx, TREES + tree, entry_id, **self._within()).value
        except NotFoundError:
            return None

    def _bodies(self, tx: Tx, tree: str) -> dict[str, Any]:
        items = transcripts.read_items(tx, TREES + tree, **self._within())
        return {str(item.key): item.value for item in items}

    def _enter(self, tx: Tx, tree: str, conversation_id: str) -> None:
        """Take a tree, and note that a conversation has messages in it."""
        transcripts.append(tx, TREES + tree, (), subject=self._subject, **self._within())
        conversations = set(self._conversations(tx, tree))
        if conversation_id not in conversations:
            changes = {"conversations": sorted({*conversations, conversation_id})}
            transcripts.update_state(tx, TREES + tree, changes, **self._within())

    def _leave(self, tx: Tx, tree: str, conversation_id: str) -> list[str]:
        """Take a tree, note that a conversation left it, and return those that stay."""
        transcripts.append(tx, TREES + tree, (), **self._within())
        others = [each for each in self._conversations(tx, tree) if each != conversation_id]
        transcripts.update_state(tx, TREES + tree, {"conversations": others}, **self._within())
        return others

    def _conversations(self, tx: Tx, tree: str) -> list[str]:
        return list(transcripts.get(tx, TREES + tree, **self._within()).state.get("conversations", ()))

    def _release(self, tx: Tx, tree: str, conversations: Sequence[str]) -> None:
        """Remove the messages of a tree to which none of these conversations leads."""
        bodies = self._bodies(tx, tree)
        needed = set[str]()
        for conversation in conversations:
            stored = self._find(tx, conversation)
            tips = [] if stored is None else [stored.record.head_id, *stored.record.branches]
            for tip in tips:
                id = tip
                while id is not None and id in bodies and id not in needed:
                    needed.add(id)
                    id = bodies[id]["parent_id"]
        for id in bodies.keys() - needed:
            notes.delete(tx, ENTRIES, id, **self._within())
            transcripts.delete_item(tx, TREES + tree, id, **self._within())
        if not conversations:
            transcripts.delete(tx, TREES + tree, **self._within())


# --- values --------------------------------------------------------------------------------------------------------


def _body(entry: ConversationEntry) -> dict[str, Any]:
    [message] = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json")
    return {"parent_id": entry.parent_id, "message": message}


def _entry(id: str, body: dict[str, Any]) -> ConversationEntry:
    try:
        [message] = ModelMessagesTypeAdapter.validate_python([body["message"]])
    # A message of a newer version, or no message: skipping it would change the conversation.
    except ValidationError as error:
        raise FormatError(f"the entry {id} holds what is no message", entry=id) from error
    return ConversationEntry(id=id, parent_id=body["parent_id"], message=message)


def _dumped(record: ConversationRecord) -> Any:
    try:
        return _RECORD.dump_python(record, mode="json")
    except PydanticSerializationError as error:
        raise InvalidInputError(f"what the run waits for holds what JSON cannot: {error}", field="record") from error


def _record(value: dict[str, Any]) -> ConversationRecord:
    try:
        return _RECORD.validate_python(value)
    except ValidationError as error:
        id = value.get("conversation_id")
        raise FormatError(f"the record of the conversation {id} cannot be read", conversation=id) from error
