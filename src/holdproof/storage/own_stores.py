"""`OwnStores`: four stores that a program made itself, in the place of those that settings name.

Rules:
- A store is anything with the seed's methods; what else Holdproof's own stores have is not needed.
- Nothing here opens, migrates or replaces a store: its maker has done that, and it is never degraded.
- Closing closes each store, also where another one fails.
"""

from collections.abc import Mapping
from typing import Any, Final

from holdproof.config import Paths, Settings
from holdproof.errors import ClosedError, InvalidInputError
from holdproof.model.storage import StoreStatus
from holdproof.storage.executors import OperationTracker

_METHODS: Final = {
    "relational": ("execute", "fetch_all", "fetch_one", "close"),
    "vector": ("add", "search", "close"),
    "blob": ("put", "get", "delete", "close"),
    "telemetry": ("append", "query", "close"),
}
"""What the seed's interfaces ask of each store."""


class OwnStores:
    """Four stores of one's own."""

    def __init__(self, stores: Mapping[str, Any], settings: Settings, paths: Paths) -> None:
        for kind, methods in _METHODS.items():
            lacking = [name for name in methods if not callable(getattr(stores[kind], name, None))]
            if lacking:
                raise InvalidInputError(
                    f"{kind} is no store: {type(stores[kind]).__name__} has no method {lacking[0]}", field=kind
                )
        self.settings = settings
        self.paths = paths
        self.tracker = OperationTracker()
        self.closed = False
        self.first_run: list[str] = []
        self._stores = dict(stores)

    def open(self, kind: str) -> Any:
        """Return a store; ClosedError after `close`."""
        if self.closed:
            raise ClosedError("the storage is closed")
        return self._stores[kind]

    def statuses(self) -> dict[str, StoreStatus]:
        """What each store is: its class; where it keeps things only it knows."""
        return {kind: StoreStatus(type(store).__name__, "", None) for kind, store in self._stores.items()}

    async def close(self) -> None:
        """Close each store once, the last one first; the first error is raised when all were tried."""
        stores = [] if self.closed else [*reversed(self._stores.values())]
        self.closed = True
        failed: Exception | None = None
        for store in stores:
            try:
                await store.close()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed
