"""The store behind an adapter: one that is passed in open, or one that all adapters of the process share by its name.

Frameworks make an object for every conversation, and a store is opened once: the first adapter that needs it opens it,
in a thread, and the last one that is closed closes it.
"""

import asyncio
import threading
from collections.abc import Awaitable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from holdproof import sync
from holdproof.client import Holdproof
from holdproof.errors import ClosedError, RemoteError
from holdproof.kernel import MAIN, MEMORY, Store, open_store

T = TypeVar("T")
Where = str | Path | Holdproof | sync.Holdproof | None


def located(where: str | Path | None) -> tuple[str | Path | None, str | None]:
    """Return home and URL of a store that is named by a folder, a URL, `:memory:` or not at all."""
    if isinstance(where, str) and (where == MEMORY or "://" in where):
        return None, where
    return where, None


def embedded(store: Any) -> Any:
    """Return a store that is open in this process; RemoteError for one on a server."""
    if isinstance(store, Holdproof | sync.Holdproof):
        return store
    raise RemoteError(
        "an adapter runs transactions of its own, so it needs a store that is open in this process: pass a folder, a"
        f" PostgreSQL URL or the result of holdproof.open(), not a {type(store).__name__}",
        given=type(store).__name__,
    )


class _SharedCore:
    """A store of this process, and how many adapters use it."""

    def __init__(self) -> None:
        self.users = 0
        self.lock = threading.Lock()
        self.core: Store | None = None


_CORES: Final[dict[tuple[str, str], _SharedCore]] = {}
_CORES_LOCK: Final = threading.Lock()


class SharedStore:
    """The store of an adapter; it is opened at first use."""

    def __init__(self, where: Where, *, ns: str | None = None) -> None:
        self._store: Holdproof | None = None
        self._sync_store: sync.Holdproof | None = None
        self._shared: _SharedCore | None = None
        self._closed = False
        self._key = ("", "")
        if not isinstance(where, str | Path | None):
            store = embedded(where)
            self.ns = store.ns if ns is None else ns
            self._store = store if isinstance(store, Holdproof) and ns is None else Holdproof(store.core, self.ns)
            return
        self.ns = ns
        home, url = located(where)
        # Absolute, so that two relative spellings of one folder share a store.
        self._key = ("" if home is None else str(Path(home).absolute()), url or "")
        with _CORES_LOCK:
            alone = where == MEMORY  # two in-memory stores of the same name are still two stores
            self._shared = _SharedCore() if alone else _CORES.setdefault(self._key, _SharedCore())
            self._shared.users += 1

    @property
    def opened(self) -> Holdproof | None:
        """The store, where it is open already."""
        return self._store

    def within(self) -> dict[str, Any]:
        """Return the namespace as keyword arguments of an operation; none means the store's own."""
        return {} if self.ns is None else {"ns": self.ns}

    async def store(self) -> Holdproof:
        """Open the store if needed and return it; ClosedError once the adapter is closed."""
        if self._closed:
            raise ClosedError("the adapter is closed")
        if self._store is None:
            self._store = Holdproof(await asyncio.to_thread(self._open), self.ns)
        return self._store

    def core(self) -> Store:
        """Open the store if needed and return what clients are made of; it may block until the store is open."""
        if self._closed:
            raise ClosedError("the adapter is closed")
        if self._store is None:
            self._store = Holdproof(self._open(), self.ns)
        return self._store.core

    def sync_store(self) -> sync.Holdproof:
        """Open the store if needed and return its sync client, for frameworks that call from threads."""
        core = self.core()  # refuses an adapter that is closed
        if self._sync_store is None:
            self._sync_store = sync.Holdproof(core, self.ns)
        return self._sync_store

    def _open(self) -> Store:
        shared = self._shared
        assert shared is not None
        # Two adapters may need the store at the same moment: the second waits for the first to open it.
        with shared.lock:
            if shared.core is None:
                home, url = self._key
                shared.core = open_store(home or None, url or None)
            return shared.core

    def close(self) -> None:
        """Release the store; may be called twice. A store that was passed in stays open."""
        if self._closed:
            return
        self._closed = True
        shared = self._shared
        self._shared = None
        if shared is None:
            return
        with _CORES_LOCK:
            shared.users -= 1
            last = shared.users == 0
            if last and _CORES.get(self._key) is shared:
                del _CORES[self._key]
        if last:
            # Outside the lock of all cores: closing waits for transactions, and other stores need not wait for them.
            with shared.lock:
                if shared.core is not None:
                    shared.core.close()


class StoreUser:
    """What every adapter on a shared store has: the store, and the namespace in it."""

    _shared: SharedStore

    @property
    def _ns(self) -> str:
        return self._shared.ns or MAIN

    def _within(self) -> dict[str, Any]:
        """Return the namespace as keyword arguments of a function of a transaction."""
        return {"ns": self._ns}


class StoreAdapter(StoreUser):
    """An adapter that is closed by hand, or as a context manager, sync or async."""

    def close(self) -> None:
        """Release the store; may be called twice. A store that was passed in stays open."""
        self._shared.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def shield_until_done(work: Awaitable[T]) -> T:
    """Wait for a write to end even if the caller is cancelled meanwhile.

    A caller that learns of its cancellation can then look: what it wrote is durable, or was refused.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            task.add_done_callback(_consume_exception)
            await asyncio.wait({task})
        raise


def _consume_exception(task: "asyncio.Future[Any]") -> None:
    """Retrieve a failure that nobody awaits any more, or asyncio would log it as never retrieved."""
    if not task.cancelled():
        task.exception()
