"""`HoldproofCache`: what nodes and tasks of LangGraph gave back, so that the same input is not computed again.

Rules:
- Sync and async are native. What was set together is there together.
- A value whose time is over is not there, whether it was swept or not.
- Nothing is written that could not be read again, and nothing is made that is not listed (`SafeSerializer`).
- A namespace is cleared alone, not with those whose names begin like it.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from langgraph.cache.base import BaseCache, FullKey, Namespace

from holdproof import client, sync
from holdproof.adapters.langgraph.safety import SafeSerializer
from holdproof.adapters.shared_store import SharedStore, StoreAdapter, Where, shield_until_done
from holdproof.kernel import Tx, notes

PATH: Final = "langgraph-cache"


class HoldproofCache(StoreAdapter, BaseCache[Any]):
    """LangGraph's cache on a store: a folder, a URL, `:memory:`, one that is open, or where the environment says.

    `allow` are types of your own that may be cached.
    """

    def __init__(
        self, store: Where = None, *, allow: Iterable[type | tuple[str, str]] = (), ns: str | None = None
    ) -> None:
        super().__init__(serde=SafeSerializer(allow))
        self._shared = SharedStore(store, ns=ns)
        core = self._shared.core()
        self._sync = sync.Holdproof(core, self._shared.ns)
        self._async = client.Holdproof(core, self._shared.ns)

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        """Return the values of those keys that are there."""
        return self._decoded(self._sync.read(lambda tx: self._find(tx, keys)))

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        """Return the values of those keys that are there."""
        return self._decoded(await self._async.read(lambda tx: self._find(tx, keys)))

    def set(self, pairs: Mapping[FullKey, tuple[Any, int | None]]) -> None:
        """Keep values, each for so many seconds or for good."""
        values = self._encoded(pairs)
        self._sync.write(lambda tx: self._put(tx, values))

    async def aset(self, pairs: Mapping[FullKey, tuple[Any, int | None]]) -> None:
        """Keep values, each for so many seconds or for good."""
        values = self._encoded(pairs)
        await shield_until_done(self._async.write(lambda tx: self._put(tx, values)))

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Remove what is kept in some namespaces, or everything."""
        self._sync.write(lambda tx: self._clear(tx, namespaces))

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Remove what is kept in some namespaces, or everything."""
        await shield_until_done(self._async.write(lambda tx: self._clear(tx, namespaces)))

    # --- rows --------------------------------------------------------------------------------------------------------

    def _encoded(
        self, pairs: Mapping[FullKey, tuple[Any, int | None]]
    ) -> dict[FullKey, tuple[dict[str, str], int | None]]:
        values = {}
        for key, (value, ttl_s) in pairs.items():
            kind, content = self.serde.dumps_typed(value)
            values[key] = ({"kind": kind, "content": b64encode(content).decode()}, ttl_s)
        return values

    def _decoded(self, values: Mapping[FullKey, Mapping[str, str]]) -> dict[FullKey, Any]:
        return {
            key: self.serde.loads_typed((value["kind"], b64decode(value["content"]))) for key, value in values.items()
        }

    def _find(self, tx: Tx, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        notes_of = {key: notes.find(tx, _path(key[0]), key[1], ns=self._ns) for key in keys}
        return {key: note.value for key, note in notes_of.items() if note is not None}

    def _put(self, tx: Tx, values: Mapping[FullKey, tuple[dict[str, str], int | None]]) -> None:
        for (namespace, key), (value, ttl_s) in values.items():
            if ttl_s is not None and ttl_s <= 0:
                notes.delete(tx, _path(namespace), key, ns=self._ns)
            else:
                notes.put(tx, _path(namespace), key, value, ttl_s=ttl_s, ns=self._ns)

    def _clear(self, tx: Tx, namespaces: Sequence[Namespace] | None) -> None:
        for path in [(PATH,)] if namespaces is None else map(_path, namespaces):
            notes.delete_below(tx, path, ns=self._ns)


def _path(namespace: Namespace) -> tuple[str, str]:
    """Return where the values of a namespace lie: one label for all of it, and labels have no dots."""
    return PATH, "/".join(quote(part, safe="").replace(".", "%2E") for part in namespace) or "/"
