"""The `Session` of the OpenAI Agents SDK: a transcript.

Rules:
- Items come back in the order in which they were added, each `add_items` whole, whoever else adds at the same time.
- What was added is durable when the call returns. A caller that is cancelled learns it once that is decided.
- An append writes what is new, however long the session is.
- A compaction replaces what it has seen, as one; it leaves all as it was where items came or went meanwhile.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from functools import partial
from itertools import takewhile
from typing import Any, Final

from agents.memory import SessionSettings

from holdproof.adapters.shared_store import SharedStore, StoreAdapter, Where, shield_until_done
from holdproof.client import Holdproof
from holdproof.errors import ConflictError
from holdproof.kernel import Tx, transcripts
from holdproof.model.transcripts import Item

PREFIX: Final = "openai-agents/"


@dataclass(frozen=True, slots=True)
class CompactionSnapshot:
    """The last items of a session, whether they are all of it, and how to replace those from a position on."""

    items: list[Any]
    complete: bool
    replace_suffix: Callable[[int, list[Any]], Awaitable[bool]]


class HoldproofSession(StoreAdapter):
    """A conversation on a store: a folder, a URL, `:memory:`, one that is open, or where the environment says."""

    session_id: str
    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        where: Where = None,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        ns: str | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = _settings(session_settings)
        self._shared = SharedStore(where, ns=ns)
        self._name = PREFIX + session_id

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items in their order: the latest `limit`, or as many as the settings say, or all."""
        store = await self._shared.store()
        # An explicit limit wins over the session's settings, as in the SDK's own sessions.
        if limit is None and self.session_settings is not None:
            limit = _settings(self.session_settings).limit
        # The SDK's own sessions take a negative limit for none.
        last = None if limit is None or limit < 0 else limit
        query = {"last": last, **self._shared.within()}
        items = await store.read(partial(transcripts.read_items, name=self._name, **query))
        return [item.value for item in items]

    async def add_items(self, items: list[Any]) -> None:
        """Add items at the end."""
        store = await self._shared.store()
        if items:
            await shield_until_done(store.transcripts.append(self._name, list(items), **self._shared.within()))

    async def pop_item(self) -> Any | None:
        """Take the last item away; None where there is none."""
        store = await self._shared.store()
        popped = await shield_until_done(store.transcripts.pop_item(self._name, **self._shared.within()))
        return None if popped is None else popped.value

    async def clear_session(self) -> None:
        """Take all items away."""
        store = await self._shared.store()
        await shield_until_done(store.transcripts.delete(self._name, **self._shared.within()))

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Any], bool] | None = None
    ) -> CompactionSnapshot | None:
        """Return the last items, and how to replace them: what the SDK asks for where a session has a limit.

        `prune_prefix` says of older items whether they go too: an encrypted session has some that nobody can read.
        """
        if self._is_transformed():
            return None
        ns = self._ns

        def read(tx: Tx) -> list[Item]:
            return transcripts.read_items(tx, self._name, last=limit + 1, ns=ns)

        items = await (await self._shared.store()).read(read)
        complete = len(items) <= limit
        items = items if complete else items[1:]

        async def replace_suffix(start: int, output: list[Any]) -> bool:
            suffix = [item.seq for item in items[start:]]
            if not suffix:
                return False

            def write(tx: Tx) -> None:
                # Numbers are never given twice, so these are the same items or others came or went.
                if transcripts.delete_range(tx, self._name, first=suffix[0], ns=ns) != suffix:
                    raise ConflictError(f"the session {self.session_id} was changed meanwhile")
                if prune_prefix is not None:
                    self._prune(tx, suffix[0], prune_prefix)
                transcripts.append(tx, self._name, output, ns=ns)

            try:
                await shield_until_done((await self._shared.store()).write(write))
            except ConflictError:
                return False
            return True

        return CompactionSnapshot([item.value for item in items], complete, replace_suffix)

    def _is_transformed(self) -> bool:
        """Whether a subclass reads or writes items in a way of its own, which a compaction must not pass by."""
        methods = ("get_items", "add_items", "pop_item", "clear_session")
        return any(getattr(type(self), name) is not getattr(HoldproofSession, name) for name in methods)

    def _prune(self, tx: Tx, before: int, is_prunable: Callable[[Any], bool]) -> None:
        """Remove the oldest items of those before a number, as long as they may go."""
        ns = self._ns
        older = transcripts.read_items(tx, self._name, before=before, ns=ns)
        prunable = [item.seq for item in takewhile(lambda item: is_prunable(item.value), older)]
        if prunable:
            transcripts.delete_range(tx, self._name, last=prunable[-1], ns=ns)

    async def _atomic_replace_items(self, items: list[Any]) -> bool:
        """Replace all items as one: the SDK asks for it where it compacts everything; else it would clear, then add."""
        if self._is_transformed():
            return False
        ns = self._ns

        def write(tx: Tx) -> None:
            transcripts.delete_items(tx, self._name, ns=ns)
            transcripts.append(tx, self._name, items, ns=ns)

        await shield_until_done((await self._shared.store()).write(write))
        return True


async def session_ids(store: Holdproof, *, ns: str | None = None) -> list[str]:
    """Return the ids of all sessions of a store, in order."""
    ids: list[str] = []
    cursor: str | None = None
    within: dict[str, Any] = {} if ns is None else {"ns": ns}
    while True:
        page = await store.transcripts.list(prefix=PREFIX, cursor=cursor, **within)
        ids += [transcript.name.removeprefix(PREFIX) for transcript in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return ids


def _settings(settings: SessionSettings | dict[str, Any] | None) -> SessionSettings:
    """Settings as the SDK has them; a word that is none of its is refused."""
    if isinstance(settings, SessionSettings):
        return settings
    if unknown := sorted(set(settings or {}) - {field.name for field in fields(SessionSettings)}):
        raise TypeError(f"Unknown session settings: {', '.join(unknown)}")
    return SessionSettings(**(settings or {}))
