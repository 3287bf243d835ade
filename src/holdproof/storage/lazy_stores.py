"""The four stores of services over one home, each opened when it is first asked for.

Rules:
- Strict, as the kernel is: settings that cannot be understood are an error, and what cannot be reached is one too,
  unless a `fallback` chain is named. Nobody who asked for a file writes to memory unawares.
- An opening that failed is tried anew by the next call. One thread opens, the others wait for it.
- A kernel in memory has services in memory: nothing of it is on disk.
"""

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Final

from holdproof.config import Paths, Provider, Settings
from holdproof.db import MEMORY, Tx, sql
from holdproof.errors import ClosedError, HoldproofError
from holdproof.executors import SyncExecutor
from holdproof.model.storage import StorageStatus, StoreStatus
from holdproof.storage import degraded, telemetry
from holdproof.storage.open_stores import KINDS, StorageExecutor, StoreOpener
from holdproof.storage.operation_tracker import OperationTracker

NOUNS: Final = {"relational": "relational", "vectors": "vector", "blobs": "blob", "telemetry": "telemetry"}
"""What a store of services is called as a noun, and in the settings."""


class LazyStores:
    """The stores of services on one face. Thread-safe."""

    def __init__(self, settings: Settings, paths: Paths, face: StorageExecutor, **options: Any) -> None:
        self.paths, self.settings = paths, _in_memory(settings) if settings.database_url == MEMORY else settings
        self._doings, self._lock, self._closed = OperationTracker(), threading.Lock(), False
        self._opening = StoreOpener(self.settings, paths, self._doings, face, options, strict=True)

    def open(self, noun: str) -> Any:
        """The store of a noun, opened if it is not yet."""
        with self._lock:
            return self._open(NOUNS[noun])

    def _open(self, kind: str) -> Any:
        if self._closed:
            raise ClosedError("the store is closed")
        found = self._opening.opened.stores.get(kind)
        if found is None:
            self._opening.again()
            found = self._opening.store(kind)
        return found

    def there(self, noun: str) -> bool:
        """Whether anybody can have used a store yet; nothing is opened, let alone made."""
        return self._opening.there(NOUNS[noun])

    def state(self, noun: str) -> StoreStatus | None:
        """What an open store runs on; None before its first call."""
        return self._opening.opened.status.get(NOUNS[noun])

    @property
    def first_run(self) -> list[str]:
        """Where what was new at its opening lives."""
        return list(self._opening.opened.first_run)

    def status(self) -> StorageStatus:
        """What each store runs on and holds, what is under way, what is degraded; opens what is not open yet."""
        with self._lock:
            stores = {kind: self._look(kind) for kind in KINDS}
        found = [f"the {kind} store: {each.degraded}" for kind, each in stores.items() if each.degraded]
        found += degraded.warnings(degraded.read(self.paths)).values()
        return StorageStatus(stores, self._doings.counts(), found, list(self.settings.warnings))

    def _look(self, kind: str) -> StoreStatus:
        try:
            if kind != "vector":
                self._open(kind)
            status, database = self._opening.look(kind)
            with closing(database):
                holds = SyncExecutor(database).read(_HOLDS[kind])
                if kind in {"relational", "telemetry"}:
                    holds["bytes"] = sum(database.backend.facts().get("bytes", {}).values())
        except (HoldproofError, OSError) as error:
            return StoreStatus(self.settings.providers[kind].type, "", f"cannot be opened: {error}")
        return replace(status, holds=holds)

    def close(self) -> None:
        """Finish what is under way and close what was opened; may be called twice."""
        with self._lock:
            self._closed = True
            self._opening.opened.close()


def _in_memory(settings: Settings) -> Settings:
    providers = {kind: Provider("memory", dimensions=each.dimensions) for kind, each in settings.providers.items()}
    return replace(settings, providers=providers)


_ROWS = sql(
    "SELECT (SELECT count(*) FROM cli_sessions), (SELECT count(*) FROM shapes), (SELECT count(*) FROM dreams),"
    " (SELECT count(*) FROM agent_state), (SELECT count(*) FROM instances)"
)
_VECTORS = sql(
    "SELECT (SELECT count(*) FROM vectors WHERE stamp > 0),"
    " coalesce((SELECT dimensions FROM vector_facts WHERE one = 1), 0)"
)
_BLOBS = sql("SELECT count(*), CAST(coalesce(sum(size), 0) AS BIGINT) FROM blobs")


def _row(query: Any, names: tuple[str, ...], tx: Tx) -> dict[str, int]:
    [found] = tx.all(query)
    return {name: int(value) for name, value in zip(names, found, strict=True)}


_HOLDS: Final[dict[str, Callable[[Tx], dict[str, int]]]] = {
    "relational": partial(_row, _ROWS, ("sessions", "shapes", "dreams", "agents", "instances")),
    "vector": partial(_row, _VECTORS, ("vectors", "dimensions")),
    "blob": partial(_row, _BLOBS, ("blobs", "bytes")),
    "telemetry": lambda tx: {"events": telemetry.count(tx)},
}
