"""The `SessionStore` of the Claude Agent SDK: a transcript for each session, and one for each of its subagents.

Rules:
- Entries come back in the order in which they were appended, each call whole, whoever else appends at the same time.
- An entry with a `uuid` is there once, however often it is sent: the SDK repeats batches whose answer it missed.
- The summary of a session is folded in the transaction that appends, and from new entries only.
- Deleting a session deletes its subagents with it, as one.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from claude_agent_sdk import fold_session_summary

from holdproof.adapters import documents
from holdproof.adapters.shared_store import SharedStore, StoreAdapter, Where, shield_until_done
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.kernel import Tx, transcripts
from holdproof.model.times import to_micros
from holdproof.model.transcripts import Transcript

PREFIX: Final = "claude-agent/"
SUBAGENTS: Final = "claude-agent-sub/"

Key = Mapping[str, str]
Subject = str | Callable[[Key], str | None] | None


class HoldproofSessionStore(StoreAdapter):
    """Sessions on a store: a folder, a URL, `:memory:`, one that is open, or where the environment says.

    `subject` names the person whose sessions these are, or is a function that does so for a session's key:
    `store.erase.subject(name)` then removes them.
    """

    def __init__(self, where: Where = None, *, subject: Subject = None, ns: str | None = None) -> None:
        self._shared = SharedStore(where, ns=ns)
        self._subject = subject

    async def append(self, key: Key, entries: list[Any]) -> None:
        """Add entries at the end, except those whose uuid is there already."""
        items = [(_uuid(entry), documents.exact("an entry", entry)) for entry in entries]
        if not items:
            return
        name = _name(key)
        within = self._within()
        subject = self._subject(key) if callable(self._subject) else self._subject

        def write(tx: Tx) -> None:
            added = transcripts.append_new(tx, name, items, subject=subject, **within)
            # Subagents do not contribute to the summary of their session.
            if added and key.get("subpath") is None:
                state = transcripts.get(tx, name, **within).state
                before = {**state["summary"], "mtime": 0} if "summary" in state else None
                folded = fold_session_summary(before, key, added)
                summary = {field: folded[field] for field in ("session_id", "data")}
                transcripts.update_state(tx, name, {"summary": summary}, **within)

        store = await self._shared.store()
        await shield_until_done(store.write(write))

    async def load(self, key: Key) -> list[Any] | None:
        """Return all entries in their order; None for a session that was never written, or is deleted."""
        name = _name(key)
        within = self._within()

        def read(tx: Tx) -> list[Any] | None:
            try:
                transcripts.get(tx, name, **within)
            except NotFoundError:
                return None
            return [item.value for item in transcripts.read_items(tx, name, **within)]

        store = await self._shared.store()
        return await store.read(read)

    async def list_sessions(self, project_key: str) -> list[dict[str, Any]]:
        """Return the sessions of a project with the times of their last changes."""
        listed = await self._listed(documents.joined(PREFIX, project_key, ""))
        return [{"session_id": _last_part(each), "mtime": _mtime(each)} for each in listed]

    async def list_session_summaries(self, project_key: str) -> list[dict[str, Any]]:
        """Return the summaries of a project's sessions, each as of its last append."""
        listed = await self._listed(documents.joined(PREFIX, project_key, ""))
        return [{**each.state["summary"], "mtime": _mtime(each)} for each in listed if "summary" in each.state]

    async def delete(self, key: Key) -> None:
        """Delete a session with its subagents, or with `subpath` one of them; nothing where there is none."""
        name = _name(key)
        below = documents.joined(SUBAGENTS, key["project_key"], key["session_id"], "")
        within = self._within()

        def write(tx: Tx) -> None:
            transcripts.delete(tx, name, **within)
            if key.get("subpath") is None:
                for each in list(documents.every(tx, below, **within)):
                    transcripts.delete(tx, each.name, **within)

        store = await self._shared.store()
        await shield_until_done(store.write(write))

    async def list_subkeys(self, key: Key) -> list[str]:
        """Return the subpaths of a session's subagents."""
        below = documents.joined(SUBAGENTS, key["project_key"], key["session_id"], "")
        return [_last_part(each) for each in await self._listed(below)]

    async def _listed(self, prefix: str) -> list[Transcript]:
        store = await self._shared.store()
        within = self._within()
        return await store.read(lambda tx: list(documents.every(tx, prefix, **within)))


def _name(key: Key) -> str:
    """Return the transcript of a key; those of subagents are apart, so that sessions are listed without them."""
    subpath = key.get("subpath")
    if subpath is None:
        return documents.joined(PREFIX, key["project_key"], key["session_id"])
    return documents.joined(SUBAGENTS, key["project_key"], key["session_id"], subpath)


def _uuid(entry: Any) -> str | None:
    if not isinstance(entry, Mapping):
        raise InvalidInputError(f"an entry must be a JSON object, not {type(entry).__name__}", field="entries")
    uuid = entry.get("uuid")
    # Titles, tags and mode markers have none, and may well be repeated.
    return uuid if isinstance(uuid, str) and uuid else None


def _last_part(transcript: Transcript) -> str:
    *_, last = documents.parted("", transcript.name)
    return last


def _mtime(transcript: Transcript) -> int:
    """Return when a transcript was last written, in milliseconds since 1970."""
    return to_micros(transcript.updated_at) // 1000
