"""The `Session` of the OpenAI Agents SDK: a transcript.

Rules:
- Items come back in the order in which they were added, each `add_items` whole, whoever else adds at the same time.
- What was added is durable when the call returns. A caller that is cancelled learns it once that is decided.
- An append writes what is new, however long the session is.
"""

from dataclasses import fields
from types import TracebackType
from typing import Any, Final

from agents.memory import SessionSettings

from holdproof.adapters.shared_store import SharedStore, Where, settled
from holdproof.client import Holdproof

PREFIX: Final = "openai-agents/"


class HoldproofSession:
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
        self._place = SharedStore(where, ns=ns)
        self._name = PREFIX + session_id

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The items in their order: the latest `limit`, or as many as the settings say, or all."""
        store = await self._place.store()
        if limit is None and self.session_settings is not None:
            limit = _settings(self.session_settings).limit
        last = None if limit is None or limit < 0 else limit
        found = await store.transcripts.read(self._name, last=last, **self._place.within())
        return [item.value for item in found]

    async def add_items(self, items: list[Any]) -> None:
        """Add items at the end."""
        store = await self._place.store()
        if items:
            await settled(store.transcripts.append(self._name, list(items), **self._place.within()))

    async def pop_item(self) -> Any | None:
        """Take the last item away; None where there is none."""
        store = await self._place.store()
        popped = await settled(store.transcripts.pop(self._name, **self._place.within()))
        return None if popped is None else popped.value

    async def clear_session(self) -> None:
        """Take all items away."""
        store = await self._place.store()
        await settled(store.transcripts.delete(self._name, **self._place.within()))

    def close(self) -> None:
        """Let go of the store; may be called twice. One that was given stays open."""
        self._place.close()

    async def __aenter__(self) -> "HoldproofSession":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def session_ids(store: Holdproof, *, ns: str | None = None) -> list[str]:
    """The ids of all sessions of a store, in order."""
    found: list[str] = []
    after: str | None = ""
    within: dict[str, Any] = {} if ns is None else {"ns": ns}
    while after is not None:
        page = await store.transcripts.list(prefix=PREFIX, after=after, **within)
        found += [one.name.removeprefix(PREFIX) for one in page.transcripts]
        after = page.next
    return found


def _settings(given: SessionSettings | dict[str, Any] | None) -> SessionSettings:
    """Settings as the SDK has them; a word that is none of its is refused."""
    if isinstance(given, SessionSettings):
        return given
    if unknown := sorted(set(given or {}) - {field.name for field in fields(SessionSettings)}):
        raise TypeError(f"Unknown session settings: {', '.join(unknown)}")
    return SessionSettings(**(given or {}))
