"""Where an adapter keeps things: on a store that is open, or on one that all adapters of a process with its name share.

Frameworks make an object for every conversation, and a store is opened once: the first that asks opens it, in a thread,
and the last that closes closes it.
"""

import asyncio
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final, TypeVar

from holdproof import sync
from holdproof.client import Holdproof
from holdproof.db import MEMORY
from holdproof.errors import ClosedError, RemoteError
from holdproof.store.opening import Store, open_store

T = TypeVar("T")
Where = str | Path | Holdproof | sync.Holdproof | None


def located(where: str | Path | None) -> tuple[str | Path | None, str | None]:
    """Home and URL of a store that somebody names by a folder, a URL, `:memory:` or not at all."""
    if isinstance(where, str) and (where == MEMORY or "://" in where):
        return None, where
    return where, None


def embedded(store: Any) -> Any:
    """A store that is open in this process; RemoteError for one on a server."""
    if isinstance(store, Holdproof | sync.Holdproof):
        return store
    raise RemoteError(
        "the adapter works within transactions of its own: it needs a store that is open in this process, in a folder"
        " or on PostgreSQL, and this is none",
        given=type(store).__name__,
    )


class _Shared:
    """A store of this process, and how many use it."""

    def __init__(self) -> None:
        self.users = 0
        self.lock = threading.Lock()
        self.core: Store | None = None


_SHARED: Final[dict[tuple[str, str], _Shared]] = {}
_GUARD: Final = threading.Lock()


class SharedStore:
    """A store for an adapter; nothing is opened before it is asked for."""

    def __init__(self, where: Where, *, ns: str | None = None) -> None:
        self._store: Holdproof | None = None
        self._shared: _Shared | None = None
        self._closed = False
        self._key = ("", "")
        if not isinstance(where, str | Path | None):
            given = embedded(where)
            self.ns = given.ns if ns is None else ns
            self._store = given if isinstance(given, Holdproof) and ns is None else Holdproof(given.core, self.ns)
            return
        self.ns = ns
        home, url = located(where)
        self._key = ("" if home is None else str(Path(home).absolute()), url or "")
        with _GUARD:
            alone = where == MEMORY  # each in-memory store is another one
            self._shared = _Shared() if alone else _SHARED.setdefault(self._key, _Shared())
            self._shared.users += 1

    def within(self) -> dict[str, Any]:
        """The namespace as operations take it."""
        return {} if self.ns is None else {"ns": self.ns}

    async def store(self) -> Holdproof:
        """The store; ClosedError once the adapter is closed."""
        if self._closed:
            raise ClosedError("the adapter is closed")
        if self._store is None:
            self._store = Holdproof(await asyncio.to_thread(self._open), self.ns)
        return self._store

    def _open(self) -> Store:
        shared = self._shared
        assert shared is not None
        with shared.lock:
            if shared.core is None:
                home, url = self._key
                shared.core = open_store(home or None, url or None)
            return shared.core

    def close(self) -> None:
        """Let go of the store; may be called twice. One that was given stays open."""
        if self._closed:
            return
        self._closed = True
        shared, self._shared = self._shared, None
        if shared is None:
            return
        with _GUARD:
            shared.users -= 1
            last = shared.users == 0
            if last and _SHARED.get(self._key) is shared:
                del _SHARED[self._key]
        if last:
            with shared.lock:
                if shared.core is not None:
                    shared.core.close()


async def settled(work: Awaitable[T]) -> T:
    """Wait for a write even if the caller is cancelled meanwhile: who is told of the cancellation may look."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            task.add_done_callback(_heard)
            await asyncio.wait({task})
        raise


def _heard(task: "asyncio.Future[Any]") -> None:
    """Nobody is left to be told of a failure."""
    if not task.cancelled():
        task.exception()
