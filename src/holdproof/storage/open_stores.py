"""Opening the four stores as settings say, and what is done where that is not possible.

Rules:
- A store that cannot be reached is opened as the next type of its `fallback` chain: memory if none is named, nothing if
  the chain is empty. Never silently: it is a warning with its reason, and `status` says degraded.
- Where the opening is strict, as under the kernel, a store whose settings name no chain has none.
- Passed over is only what is unreachable, locked, full, read-only, damaged or not ours. Wrong settings, a failed
  migration and a newer store are errors: somebody must decide.
- Stores in the same database share it, and a database that could not be opened is not tried twice.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdproof import folders
from holdproof.config import Paths, Provider, Settings, redact
from holdproof.content.kubo import Kubo
from holdproof.db import MEMORY, Database, open_database
from holdproof.errors import (
    ConfigError,
    CorruptError,
    ForeignFileError,
    MissingExtraError,
    UnavailableError,
    UnreachableError,
)
from holdproof.executors import SyncExecutor
from holdproof.model.storage import StoreStatus
from holdproof.storage.absent import AbsentVectors
from holdproof.storage.blobs import Blobs, BlobStoreConfig, open_place
from holdproof.storage.executors import AsyncStorageExecutor, SyncStorageExecutor
from holdproof.storage.operation_tracker import OperationTracker
from holdproof.storage.relational import Relational
from holdproof.storage.telemetry import Telemetry
from holdproof.storage.vectors import open_vectors

_log = logging.getLogger("holdproof.storage")

KINDS: Final = ("relational", "vector", "blob", "telemetry")
_FILES: Final = {"relational": "membrane_db", "telemetry": "telemetry_db"}
_MEMORY: Final = "memory"
_BUSY_S: Final = 10.0
_PASSED_OVER = (UnavailableError, ForeignFileError, CorruptError, UnreachableError, MissingExtraError, OSError)


@dataclass
class OpenStores:
    """The stores that were opened, what each runs on, and what is to be closed with them."""

    stores: dict[str, Any] = field(default_factory=dict)
    status: dict[str, StoreStatus] = field(default_factory=dict)
    membrane: Database | None = None
    first_run: list[str] = field(default_factory=list)
    closed: bool = False
    _ends: dict[str, list[Callable[[], None]]] = field(default_factory=dict)

    def at_end(self, kind: str, end: Callable[[], None]) -> None:
        """Have this done when that kind of store is closed."""
        self._ends.setdefault(kind, []).append(end)

    def swap(self, other: "OpenStores", kinds: Iterable[str]) -> None:
        """Have the stores of these kinds that another opening made, and leave it ours."""
        for kind in kinds:
            self.stores[kind], other.stores[kind] = other.stores[kind], self.stores[kind]
            self.status[kind], other.status[kind] = other.status[kind], self.status[kind]
            self._ends[kind], other._ends[kind] = other._ends[kind], self._ends[kind]
            if kind == "relational":
                self.membrane, other.membrane = other.membrane, self.membrane
        self.first_run += other.first_run

    def close(self) -> None:
        """Close everything, the last first; may be called twice."""
        self.closed = True
        for ends in reversed(self._ends.values()):
            while ends:
                ends.pop()()


def open_stores(
    settings: Settings, paths: Paths, doings: OperationTracker, *, kinds: Iterable[str] = KINDS, **options: Any
) -> OpenStores:
    """Open them for coroutines; if one of them is an error, what was opened before is closed again."""
    opening = StoreOpener(settings, paths, doings, AsyncStorageExecutor, options)
    try:
        for kind in kinds:
            opening.store(kind)
    except BaseException:
        opening.opened.close()
        raise
    return opening.opened


StorageExecutor = type[AsyncStorageExecutor] | type[SyncStorageExecutor]


class StoreOpener:
    """One opening of stores on a face: of all four, or of one after the other. For one thread at a time."""

    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        doings: OperationTracker,
        face: StorageExecutor,
        options: dict[str, Any],
        *,
        strict: bool = False,
    ) -> None:
        self._settings, self._paths, self._doings, self._options = settings, paths, doings, options
        self._shown, self._last = face, () if strict else (_MEMORY,)
        self._tried: dict[tuple[str, str], Database | Exception] = {}
        self.opened = OpenStores()
        self._kind = ""
        makers = (self._relational, self._vector, self._blob, self._telemetry)
        self._makers = dict(zip(KINDS, makers, strict=True))

    def store(self, kind: str) -> Any:
        """Open one kind of store, as the first type of its chain that can be."""
        self._kind, wanted = kind, self._settings.providers[kind]
        chain = (wanted.type, *(self._last if wanted.fallback is None else wanted.fallback))
        reasons: list[str] = []
        for left, name in zip(reversed(range(len(chain))), chain, strict=True):
            try:
                store, where = self._makers[kind](name, wanted)
            except _PASSED_OVER as error:
                reasons.append(f"{name}: {error}")
                if not left:
                    raise
            else:
                self._keep(kind, store, StoreStatus(name, where, "; ".join(reasons) or None), wanted.type)
                return store
        raise AssertionError("a chain has a last type")

    def look(self, kind: str) -> tuple[StoreStatus, Database]:
        """What a store runs on, and a handle on its rows. Vectors need not be open: that would settle their length."""
        store = self.opened.stores.get(kind)
        if store is not None and not isinstance(store, AbsentVectors):
            return self.opened.status[kind], store._face.database.share()
        wanted = self._settings.providers[kind]
        target = MEMORY if wanted.type == _MEMORY else self._membrane(wanted)
        return StoreStatus(wanted.type, redact(target)), self._database(target, "membrane")

    def there(self, kind: str) -> bool:
        """Whether the database of a store is there; of a server it is taken for granted."""
        wanted = self._settings.providers[kind]
        if kind in {"vector", "blob"}:
            target = MEMORY if wanted.type == _MEMORY else self._membrane(wanted if kind == "vector" else None)
        else:
            target = self._target(wanted.type, wanted, getattr(self._paths, _FILES[kind]))
        return target != MEMORY and ("://" in target or Path(target).exists())

    def again(self) -> None:
        """Let what could not be opened be tried once more."""
        self._tried = {key: found for key, found in self._tried.items() if isinstance(found, Database)}

    def _keep(self, kind: str, store: Any, status: StoreStatus, wanted: str) -> None:
        self.opened.stores[kind], self.opened.status[kind] = store, status
        if status.degraded is not None:
            lost = ", and nothing stored there outlives this process" if status.type == _MEMORY else ""
            _log.warning("the %s store runs on %s, not %s%s: %s", kind, status.type, wanted, lost, status.degraded)

    # --- one kind each: the store, and where it is -----------------------------------------------------------------

    def _relational(self, name: str, wanted: Provider) -> tuple[Any, str]:
        target = self._target(name, wanted, self._paths.membrane_db)
        face = self._face(target, "membrane")
        self.opened.membrane = face.database
        return Relational(face), redact(target)

    def _vector(self, name: str, wanted: Provider) -> tuple[Any, str]:
        target = MEMORY if name == _MEMORY else self._membrane(wanted)
        face: Any = self._face(target, "membrane")
        cache = None if target == MEMORY else self._paths.cache / "vectors"
        chosen = {} if wanted.threshold is None else {"threshold": wanted.threshold}
        try:
            work = open_vectors(face, name, dimensions=wanted.dimensions, cache=cache, **chosen)
            return SyncExecutor(face.database).run(work), redact(target)
        except MissingExtraError as error:
            if name != _MEMORY:
                raise
            return AbsentVectors(wanted.dimensions, error), ""

    def _blob(self, name: str, wanted: Provider) -> tuple[Any, str]:
        if name == _MEMORY:
            return Blobs(self._face(MEMORY, "membrane"), BlobStoreConfig()), MEMORY
        place = self._place(name, wanted)
        _probe(name, place)
        face = self._face(self._membrane(), "membrane")
        shelf = BlobStoreConfig(open_place(place))
        self.opened.at_end(self._kind, shelf.close)
        return Blobs(face, shelf), redact(place)

    def _telemetry(self, name: str, wanted: Provider) -> tuple[Any, str]:
        target = self._target(name, wanted, self._paths.telemetry_db)
        return Telemetry(self._face(target, "telemetry"), wanted.retention), redact(target)

    # --- places ----------------------------------------------------------------------------------------------------

    def _target(self, name: str, wanted: Provider, file: Path) -> str:
        if name == _MEMORY:
            return MEMORY
        if name == "sqlite":
            return str(Path(wanted.path).expanduser() if wanted.path else file)
        url = wanted.connection or self._settings.providers["relational"].connection
        if url is None:
            raise ConfigError("a store of the type postgres needs a connection, like postgresql://user@host/name")
        return url

    def _membrane(self, wanted: Provider | None = None) -> str:
        """The database beside which vectors and blobs are kept: their own, the relational one, or the file."""
        if wanted is not None and wanted.connection:
            return wanted.connection
        relational = self._settings.providers["relational"]
        kind = "sqlite" if relational.type == _MEMORY else relational.type
        return self._target(kind, relational, self._paths.membrane_db)

    def _place(self, name: str, wanted: Provider) -> str:
        if name == "filesystem":
            return str(Path(wanted.path).expanduser() if wanted.path else self._paths.blobs)
        if not wanted.connection:
            raise ConfigError(f"a blob store of the type {name} needs a connection", key="providers.blob.connection")
        return wanted.connection

    def _face(self, target: str, space: str) -> AsyncStorageExecutor | SyncStorageExecutor:
        """A face on a database of its own in memory, or on a handle of one that stores share."""
        database = self._database(target, space)
        self.opened.at_end(self._kind, database.close)
        return self._shown(database, self._doings)

    def _database(self, target: str, space: str) -> Database:
        found = self._tried.get((target, space)) if target != MEMORY else None
        if found is None or (isinstance(found, Database) and found.closed):
            try:
                found = open_database(target, space=space, **self._options)
                if found.first_run and target != MEMORY:
                    self.opened.first_run.append(redact(target))
            except _PASSED_OVER as error:
                self._tried[target, space] = error
                raise
            self._tried[target, space] = found
            return found
        if isinstance(found, Exception):
            raise found
        return found.share()


def _probe(name: str, place: str) -> None:
    """Whether bytes can be kept there at all."""
    if name == "ipfs":
        node = Kubo(place.removeprefix("ipfs+"), idle_s=5.0)
        try:
            node.version()
        finally:
            node.close()
        return
    if name == "filesystem":
        folders.make(place)
    target = open_place(place)
    try:
        with suppress(FileNotFoundError):
            next(iter(target.listed(0.0)), None)
    finally:
        target.close()
