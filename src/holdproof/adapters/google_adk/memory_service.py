"""The `BaseMemoryService` of Google ADK: what a user said in earlier sessions, found again by its words.

A transcript for each session of a user, with an item for each event that says something, and one for memories that
were added by themselves.

Rules:
- An event is there once, however often its session is added. Events that came meanwhile are added, none is lost.
- A memory that was deleted stays deleted, also when its session is added again; its content is gone from the database.
- One user never finds what another one said, nor one app what was said to another.
- A search returns the memories that share most words with the query, at most `limit`; among equals first those that
  were added by themselves, then events, the earlier first.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from google.adk.events.event import Event
from google.adk.memory import BaseMemoryService
from google.adk.memory.base_memory_service import SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session

from holdproof.adapters import documents, word_match
from holdproof.adapters.google_adk import places
from holdproof.adapters.google_adk.places import Subject
from holdproof.adapters.shared_store import Where, shield_until_done
from holdproof.kernel import Tx, transcripts
from holdproof.validation import count

PREFIX: Final = "adk-memory/"
_SESSIONS: Final = "session"
_ENTRIES: Final = "entries"


class HoldproofMemoryService(places.StoreService, BaseMemoryService):
    """Memories on a store: a folder, a URL, `:memory:`, one that is open, or where the environment says.

    `subject` names the person whose memories these are, or is a function that does so for an app and a user
    (`subject=lambda app, user: user`): `store.erase.subject(name)` then removes them. `uri` is how a `services.yaml`
    names the store; what else ADK passes there is not needed.
    """

    def __init__(
        self,
        where: Where = None,
        *,
        uri: str | None = None,
        limit: int = 10,
        subject: Subject = None,
        ns: str | None = None,
        agents_dir: str | None = None,
    ) -> None:
        del agents_dir
        self._limit = count("limit", limit, least=1)
        self._shared = places.open_shared(where, uri, ns)
        self._subject = subject

    async def add_session_to_memory(self, session: Session) -> None:
        """Add the events of a session that are not there yet."""
        await self._add_events(session.app_name, session.user_id, session.id, session.events)

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Add events that are not there yet, with what is to be known of them."""
        await self._add_events(app_name, user_id, session_id or "", events, custom_metadata)

    async def _add_events(
        self,
        app_name: str,
        user_id: str,
        session_id: str,
        events: Sequence[Event],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        metadata = documents.exact("custom_metadata", dict(custom_metadata or {}))
        items = [
            (event.id or None, _body(event.content, event.author, event.timestamp, metadata))
            for event in events
            if event.content and event.content.parts
        ]
        if items:
            await self._write(app_name, user_id, (_SESSIONS, session_id), items)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Add memories by themselves; one with an id takes the place of the one that had it."""
        shared = dict(custom_metadata or {})
        name = documents.joined(PREFIX, app_name, user_id, _ENTRIES, "")
        subject = places.owner(self._subject, app_name, user_id)
        bodies = [
            (
                memory.id,
                _body(
                    memory.content,
                    memory.author,
                    memory.timestamp,
                    documents.exact("custom_metadata", {**shared, **memory.custom_metadata}),
                ),
            )
            for memory in memories
        ]

        def write(tx: Tx) -> None:
            for id, body in bodies:
                transcripts.put_item(tx, name, id or tx.new_id(), body, subject=subject, **self._within())

        if bodies:
            await shield_until_done((await self._shared.store()).write(write))

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Return the memories of a user that share most words with a query."""
        prefix = documents.joined(PREFIX, app_name, user_id, "")
        within = self._within()

        def read(tx: Tx) -> list[tuple[str | None, dict[str, Any]]]:
            names = [each.name for each in documents.every(tx, prefix, **within)]
            return [(item.key, item.value) for name in names for item in transcripts.read_items(tx, name, **within)]

        stored = await (await self._shared.store()).read(read)
        # A user may have said a lot: counting words must not hold up the event loop.
        best = await asyncio.to_thread(_best, stored, query, self._limit)
        return SearchMemoryResponse(memories=[_entry(id, body) for id, body in best])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Delete a memory by its id; nothing where there is none."""
        if not memory_id:
            return
        prefix = documents.joined(PREFIX, app_name, user_id, "")
        within = self._within()

        def write(tx: Tx) -> None:
            for each in list(documents.every(tx, prefix, **within)):
                if transcripts.delete_item(tx, each.name, memory_id, **within):
                    # The key stays, with nothing under it: the next time the session is added, it is there already.
                    transcripts.put_item(tx, each.name, memory_id, {}, **within)

        await shield_until_done((await self._shared.store()).write(write))

    async def _write(
        self, app_name: str, user_id: str, parts: tuple[str, str], items: list[tuple[str | None, Any]]
    ) -> None:
        name = documents.joined(PREFIX, app_name, user_id, *parts)
        subject = places.owner(self._subject, app_name, user_id)
        within = self._within()

        def write(tx: Tx) -> None:
            transcripts.append_new(tx, name, items, subject=subject, **within)

        await shield_until_done((await self._shared.store()).write(write))


# --- items ---------------------------------------------------------------------------------------------------------


def _body(content: Any, author: str | None, timestamp: float | str | None, metadata: dict[str, Any]) -> dict[str, Any]:
    body = {"content": content.model_dump(mode="json", exclude_none=True), "author": author, "timestamp": timestamp}
    return {**body, "metadata": metadata} if metadata else body


def _entry(id: str | None, body: Mapping[str, Any]) -> MemoryEntry:
    timestamp = body["timestamp"]
    # Of an event it is a number of seconds, of a memory that was added by itself the text that came with it.
    text = timestamp if isinstance(timestamp, str | None) else datetime.fromtimestamp(timestamp, UTC).isoformat()
    return MemoryEntry.model_validate(
        {
            "id": id,
            "content": body["content"],
            "author": body["author"],
            "timestamp": text,
            "custom_metadata": body.get("metadata", {}),
        }
    )


# --- words ---------------------------------------------------------------------------------------------------------


def _best(
    stored: Sequence[tuple[str | None, dict[str, Any]]], query: str, limit: int
) -> list[tuple[str | None, dict[str, Any]]]:
    """Return what shares most words with a query; what was added by itself before events among equals."""
    terms = word_match.words(query)
    scored = []
    for id, body in stored:
        if body and (score := word_match.score(terms, _text(body))):
            scored.append((score, id, body))
    scored.sort(key=lambda each: (-each[0], _said_at(each[2])))
    return [(id, body) for _, id, body in scored[:limit]]


def _said_at(body: Mapping[str, Any]) -> float:
    timestamp = body["timestamp"]
    return timestamp if isinstance(timestamp, int | float) else 0.0


def _text(body: Mapping[str, Any]) -> str:
    return " ".join(part["text"] for part in body["content"].get("parts", ()) if part.get("text"))
