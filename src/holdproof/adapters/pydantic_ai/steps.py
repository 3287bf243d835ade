"""The `StepStore` of `pydantic-ai-harness`: runs, their events, snapshots of their messages, effects of their tools.

Rules:
- An event or a snapshot with an idempotency key is there once, however often it is sent.
- A message is stored once for each run. A snapshot is what it keeps of the one before, and what it adds.
- A run is registered once: of two processes with the same id, the second is refused.
- Nothing is skipped in silence: what cannot be read is an error.
"""

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai_harness.step_persistence import ContinuableSnapshot, RunRecord, StepEvent, ToolEffectRecord

from holdproof.adapters import documents
from holdproof.adapters.shared_store import SharedStore, StoreAdapter, Where, shield_until_done
from holdproof.errors import AlreadyExistsError, ConflictError, FormatError, InvalidInputError, NotFoundError
from holdproof.kernel import Tx, transcripts
from holdproof.model.transcripts import Item

T = TypeVar("T")

RUNS: Final = "pydantic-ai-run/"
EVENTS: Final = "pydantic-ai-events/"
MESSAGES: Final = "pydantic-ai-messages/"
SNAPSHOTS: Final = "pydantic-ai-snapshots/"
EFFECTS: Final = "pydantic-ai-effects/"

_RUN: Final = TypeAdapter(RunRecord)
_EVENT: Final = TypeAdapter(StepEvent)
_EFFECT: Final = TypeAdapter(ToolEffectRecord)
_SNAPSHOT: Final = TypeAdapter(ContinuableSnapshot)
_STARTED: Final = "started"
_COMPLETE: Final = "complete"


class HoldproofStepStore(StoreAdapter):
    """Steps on a store: a folder, a URL, `:memory:`, one that is open, or where the environment says.

    `subject` names the person whose runs these are: `store.erase.subject(name)` then removes them.
    """

    def __init__(self, where: Where = None, *, subject: str | None = None, ns: str | None = None) -> None:
        self._shared = SharedStore(where, ns=ns)
        self._subject = subject

    # --- runs --------------------------------------------------------------------------------------------------------

    async def register_run(self, record: RunRecord) -> None:
        """Write a new run; AlreadyExistsError where there is one with its id, unless it is the same one."""
        name = documents.joined(RUNS, record.run_id)
        body = _dumped(_RUN, record)

        def write(tx: Tx) -> None:
            try:
                transcripts.put_state(tx, name, body, expected=0, **self._label())
            except ConflictError as error:
                if transcripts.get(tx, name, **self._within()).state != body:
                    raise AlreadyExistsError(f"the run {record.run_id} is registered", run_id=record.run_id) from error

        await shield_until_done((await self._shared.store()).write(write))

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        """Return a run, None where there is none."""
        name = documents.joined(RUNS, run_id)
        store = await self._shared.store()
        try:
            transcript = await store.transcripts.get(name, **self._within())
        except NotFoundError:
            return None
        return _loaded(_RUN, transcript.state)

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None
    ) -> list[RunRecord]:
        """Return the runs of a parent, of a conversation, or all, the first started first."""
        fields = {"parent_run_id": parent_run_id, "conversation_id": conversation_id}
        filters = {field: value for field, value in fields.items() if value is not None}
        within = self._within()

        def read(tx: Tx) -> list[Any]:
            states = (each.state for each in documents.every(tx, RUNS, **within))
            return [state for state in states if all(state[field] == value for field, value in filters.items())]

        runs = [_loaded(_RUN, state) for state in await (await self._shared.store()).read(read)]
        return sorted(runs, key=lambda run: run.started_at)

    # --- events ------------------------------------------------------------------------------------------------------

    async def append_event(self, event: StepEvent) -> None:
        """Add an event, unless one with its idempotency key is there."""
        name = documents.joined(EVENTS, event.run_id)
        items = [(_key(event.idempotency_key), _dumped(_EVENT, event))]
        store = await self._shared.store()
        await shield_until_done(store.write(lambda tx: transcripts.append_new(tx, name, items, **self._label())))

    async def list_events(self, *, run_id: str) -> list[StepEvent]:
        """Return the events of a run in the order they were added."""
        return [_loaded(_EVENT, item.value) for item in await self._items(EVENTS, run_id)]

    # --- snapshots ---------------------------------------------------------------------------------------------------

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        """Add a snapshot, unless one with its idempotency key is there."""
        run_id = snapshot.run_id
        body = _dumped(_SNAPSHOT, snapshot)
        messages = body.pop("messages")
        hashes = [_hash(message) for message in messages]
        key = _key(snapshot.idempotency_key)
        names = (documents.joined(SNAPSHOTS, run_id), documents.joined(MESSAGES, run_id))

        def write(tx: Tx) -> None:
            of_snapshots, of_messages = names
            # Changing nothing takes the row: nobody adds a snapshot between this reading and this writing.
            transcripts.append(tx, of_snapshots, (), **self._label())
            items = transcripts.read_items(tx, of_snapshots, **self._within())
            if key is not None and any(item.key == key for item in items):
                return
            histories = [history for _, history in _folded(items)]
            shared = _common(histories[-1], hashes) if histories else 0
            transcripts.append_new(tx, of_messages, list(zip(hashes, messages, strict=True))[shared:], **self._label())
            value = {"snapshot": body, "keeps": shared, "adds": hashes[shared:]}
            transcripts.put_item(tx, of_snapshots, key or tx.new_id(), value, tag=snapshot.state, **self._label())

        await shield_until_done((await self._shared.store()).write(write))

    async def latest_snapshot(self, *, run_id: str, include_interrupted: bool = False) -> ContinuableSnapshot | None:
        """Return the newest snapshot whose tools were settled, or the newest of all; None where there is none."""
        snapshots = await self.list_snapshots(run_id=run_id, include_interrupted=include_interrupted)
        return snapshots[-1] if snapshots else None

    async def list_snapshots(self, *, run_id: str, include_interrupted: bool = False) -> list[ContinuableSnapshot]:
        """Return the snapshots of a run in the order they were added, without those that were interrupted."""
        of_snapshots = documents.joined(SNAPSHOTS, run_id)
        of_messages = documents.joined(MESSAGES, run_id)
        within = self._within()

        def read(tx: Tx) -> tuple[list[Item], list[Item]]:
            return (
                transcripts.read_items(tx, of_snapshots, **within),
                transcripts.read_items(tx, of_messages, **within),
            )

        items, stored = await (await self._shared.store()).read(read)
        messages = {item.key: item.value for item in stored}
        return [
            _snapshot(item, hashes, messages)
            for item, hashes in _folded(items)
            if include_interrupted or item.tag == _COMPLETE
        ]

    # --- effects -----------------------------------------------------------------------------------------------------

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        """Write what is known of a tool call in the place of what was."""
        name = documents.joined(EFFECTS, record.run_id)
        key = documents.joined("", record.tool_call_id)
        body = _dumped(_EFFECT, record)
        store = await self._shared.store()
        put = store.transcripts.put_item
        await shield_until_done(put(name, key, body, tag=record.status, **self._label()))

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """Return what is known of a tool call, None where nothing is."""
        name = documents.joined(EFFECTS, run_id)
        store = await self._shared.store()
        try:
            item = await store.transcripts.get_item(name, documents.joined("", tool_call_id), **self._within())
        except NotFoundError:
            return None
        return _loaded(_EFFECT, item.value)

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Return the tool calls that were started and never ended."""
        return [_loaded(_EFFECT, item.value) for item in await self._items(EFFECTS, run_id, tag=_STARTED)]

    async def _items(self, prefix: str, run_id: str, *, tag: str | None = None) -> list[Item]:
        name = documents.joined(prefix, run_id)
        within = self._within()
        store = await self._shared.store()
        return await store.read(lambda tx: transcripts.read_items(tx, name, tag=tag, **within))

    def _label(self) -> dict[str, Any]:
        return {**self._within(), "subject": self._subject}


# --- values ----------------------------------------------------------------------------------------------------------


def _key(idempotency_key: str | None) -> str | None:
    return None if idempotency_key is None else documents.joined("", idempotency_key)


def _hash(message: Any) -> str:
    return sha256(json.dumps(message, sort_keys=True).encode()).hexdigest()


def _common(before: list[str], hashes: list[str]) -> int:
    """Return how many messages two histories share at their beginning."""
    pairs = zip(before, hashes, strict=False)
    return next((n for n, (old, new) in enumerate(pairs) if old != new), min(len(before), len(hashes)))


def _folded(items: list[Item]) -> Iterator[tuple[Item, list[str]]]:
    """Yield each snapshot with the hashes of its messages: what it keeps of the one before, and what it adds."""
    hashes: list[str] = []
    for item in items:
        hashes = [*hashes[: item.value["keeps"]], *item.value["adds"]]
        yield item, hashes


def _snapshot(item: Item, hashes: list[str], stored: dict[str | None, Any]) -> ContinuableSnapshot:
    missing = [each for each in hashes if each not in stored]
    if missing:
        raise FormatError(f"the snapshot {item.key} needs a message that is gone: {missing[0]}", snapshot=item.key)
    return _loaded(_SNAPSHOT, {**item.value["snapshot"], "messages": [stored[each] for each in hashes]})


def _dumped(adapter: TypeAdapter[T], value: T) -> Any:
    try:
        dumped = adapter.dump_python(value, mode="json")
    except ValueError as error:
        raise InvalidInputError(f"a {type(value).__name__} holds what JSON cannot: {error}") from error
    if isinstance(value, ContinuableSnapshot):
        # As Pydantic AI writes messages: bytes as base64.
        dumped["messages"] = ModelMessagesTypeAdapter.dump_python(value.messages, mode="json")
    return dumped


def _loaded(adapter: TypeAdapter[T], value: Any) -> T:
    try:
        return adapter.validate_python(value)
    # One of a newer version, or altered: leaving it out would change what the run did.
    except ValidationError as error:
        raise FormatError(f"what is stored of a run cannot be read: {error}") from error
