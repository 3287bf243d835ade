"""`OpenStores`: the four stores of a storage, each opened when it is first used and then cached.

The kernel uses it as it is (`store.blobs` and its siblings), `StorageProvider` opens all four at once. Rules:
- A store that cannot be reached is opened as the next type of its `fallback` chain: memory if none is named, nothing if
  the chain is empty. Never silently: it is a warning with its reason, and `status` says degraded.
- `strict`, as under the kernel: a store whose settings name no chain has none, so nobody who configured a file writes
  to memory unawares; and a kernel in memory has its application tables in memory.
- Rows of vectors and blobs are in the database of the relational store: where that fell back to a file, so did they.
- Only stores that are unreachable, locked, full, read-only, damaged or of another program fall back. Wrong settings, a
  failed migration and a newer store are errors: somebody must decide.
- Stores in the same database share it. A database that could not be opened is tried again by the next call, but not
  twice within one chain. One thread opens, the others wait for it.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from holdproof import folders
from holdproof.config import Paths, Provider, Settings
from holdproof.content.kubo import Kubo
from holdproof.db import MEMORY, Database, Query, Tx, Work, call, open_database, sql
from holdproof.db.backends import is_url
from holdproof.errors import (
    ClosedError,
    ConfigError,
    CorruptError,
    ForeignFileError,
    HoldproofError,
    MissingExtraError,
    UnavailableError,
    UnreachableError,
)
from holdproof.executors import SyncExecutor
from holdproof.model.storage import StorageStatus, StoreStatus
from holdproof.storage import degraded, telemetry
from holdproof.storage.blobs import INLINE, Blobs, BlobStoreConfig, open_backend
from holdproof.storage.executors import (
    AsyncStorageExecutor,
    OperationTracker,
    StorageExecutor,
    SyncStorageExecutor,
)
from holdproof.storage.relational import Relational
from holdproof.storage.telemetry import Telemetry
from holdproof.storage.vectors import open_vectors
from holdproof.urls import redact

_log = logging.getLogger("holdproof.storage")

KINDS: Final = ("relational", "vector", "blob", "telemetry")
"""The stores as the settings and the seed call them."""
_SHARED_INLINE: Final = 16 << 20
"""Up to here a body lies in its row on a server by default; a larger one would need as much memory to be stored."""
_KIND_OF_RESOURCE: Final = {"vectors": "vector", "blobs": "blob"}
_MEMORY: Final = "memory"
_CAUSES_FALLBACK = (UnavailableError, ForeignFileError, CorruptError, UnreachableError, MissingExtraError, OSError)


@dataclass
class _OpenStore:
    """One open store, what it runs on, and how to close it."""

    store: Any
    status: StoreStatus
    closers: list[Callable[[], None]] = field(default_factory=list)


class OpenStores:
    """The stores over one home, for one of the executors. Thread-safe."""

    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        executor: StorageExecutor,
        *,
        strict: bool = True,
        tracker: OperationTracker | None = None,
        before_opening: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        self.paths = paths
        self._before_opening = before_opening
        self.settings = _in_memory(settings) if strict and settings.database_url == MEMORY else settings
        self.tracker = tracker or OperationTracker()
        self.closed = False
        self.first_run: list[str] = []
        """The databases that were created, by their redacted addresses."""
        self._executor = executor
        self._strict = strict
        self._options = options
        # One lock for all four: they share databases, and opening is rare.
        self._lock = threading.Lock()
        self._stores: dict[str, _OpenStore] = {}
        self._databases: dict[tuple[str, str], Database] = {}
        self._failures: dict[tuple[str, str], Exception] = {}
        self._closers: list[Callable[[], None]] = []

    def open(self, name: str) -> Any:
        """Return a store by its name in the settings or on the client (`blob`, `blobs`); open it if it is not yet."""
        self._before_opening()
        with self._lock:
            self._failures = {}
            return self._open(_kind(name)).store

    def open_all(self, kinds: Iterable[str] = KINDS) -> None:
        """Open several; if one of them is an error, close what was opened before."""
        try:
            with self._lock:
                self._failures = {}
                for kind in kinds:
                    self._open(kind)
        except BaseException:
            self.close()
            raise

    def exists(self, name: str) -> bool:
        """Whether the database of a store exists, without creating it; assumed of a server."""
        kind = _kind(name)
        provider = self.settings.providers[kind]
        if kind in {"vector", "blob"}:
            target = MEMORY if provider.type == _MEMORY else self._membrane(provider if kind == "vector" else None)
        else:
            target = self._target(kind, provider.type)
        return target != MEMORY and ("://" in target or Path(target).exists())

    def state(self, name: str) -> StoreStatus | None:
        """What an open store runs on; None before its first use."""
        entry = self._stores.get(_kind(name))
        return None if entry is None else entry.status

    def statuses(self) -> dict[str, StoreStatus]:
        """What each open store runs on."""
        return {kind: entry.status for kind, entry in self._stores.items()}

    def measure(self) -> StorageStatus:
        """Open every store; say what each runs on and holds, what is running, and what is degraded."""
        with self._lock:
            stores = {kind: self._measure(kind) for kind in KINDS}
        reasons = [f"the {kind} store: {each.degraded}" for kind, each in stores.items() if each.degraded]
        reasons += degraded.warnings(degraded.read(self.paths)).values()
        return StorageStatus(stores, self.tracker.counts(), reasons, list(self.settings.warnings))

    def beside(self) -> "OpenStores":
        """The same settings with nothing open yet: what it opens can replace stores of this one (`exchange`)."""
        return OpenStores(
            self.settings, self.paths, self._executor, strict=self._strict, tracker=self.tracker, **self._options
        )

    def exchange(self, other: "OpenStores", kinds: Iterable[str]) -> None:
        """Swap these stores with those of another opening, which closes them when it is closed."""
        for kind in kinds:
            own = self._stores[kind]
            self._stores[kind] = other._stores[kind]
            other._stores[kind] = own
        self.first_run += other.first_run

    def close(self) -> None:
        """Finish what is running and close everything, the last opened first; may be called twice."""
        # Before the lock: a thread that waits to open something must see it when its turn comes.
        self.closed = True
        with self._lock:
            for entry in reversed(self._stores.values()):
                _run_all(entry.closers)
            _run_all(self._closers)

    # --- one store -------------------------------------------------------------------------------------------------

    def _open(self, kind: str) -> _OpenStore:
        """Open a store as the first type of its chain that can be opened."""
        if self.closed:
            raise ClosedError("the store is closed")
        entry = self._stores.get(kind)
        if entry is not None:
            return entry
        provider = self.settings.providers[kind]
        default_chain = () if self._strict else (_MEMORY,)
        chain = (provider.type, *(default_chain if provider.fallback is None else provider.fallback))
        reasons: list[str] = []
        for name in chain:
            try:
                store, where = _OPENERS[kind](self, name, provider)
            except _CAUSES_FALLBACK as error:
                reasons.append(f"{name}: {error}")
                if len(reasons) == len(chain):
                    raise
                continue
            break
        # Closers of attempts that failed are among them: such an attempt may have opened a database.
        if (
            kind in {"vector", "blob"}
            and name != _MEMORY
            and self._has_followed(provider if kind == "vector" else None)
        ):
            reasons.append("its rows are where the relational store fell back to")
        entry = _OpenStore(store, StoreStatus(name, where, "; ".join(reasons) or None), self._closers)
        self._closers = []
        self._stores[kind] = entry
        _warn_if_degraded(kind, entry.status, provider.type)
        return entry

    def _measure(self, kind: str) -> StoreStatus:
        try:
            self._failures = {}
            # Opening the vectors would fix their dimensions for good: their rows are counted beside them.
            if kind != "vector":
                self._open(kind)
            status, database = self._rows(kind)
            with closing(database):
                holds = SyncExecutor(database).read(_COUNTS[kind])
                # Before their first use the vectors have the dimensions that the first use will fix.
                if kind == "vector" and not holds["dimensions"]:
                    holds["dimensions"] = self.settings.providers[kind].dimensions
                if kind in {"relational", "telemetry"}:
                    holds["bytes"] = sum(database.backend.facts().get("bytes", {}).values())
        except (HoldproofError, OSError) as error:
            return StoreStatus(self.settings.providers[kind].type, "", f"cannot be opened: {error}")
        return replace(status, holds=holds)

    def _rows(self, kind: str) -> tuple[StoreStatus, Database]:
        """What a store runs on, and a handle of its own on the database."""
        entry = self._stores.get(kind)
        if entry is not None and not isinstance(entry.store, MissingVectors):
            return entry.status, entry.store._executor.database.share()
        provider = self.settings.providers[kind]
        target = MEMORY if provider.type == _MEMORY else self._membrane(provider)
        return StoreStatus(provider.type, redact(target)), self._database(target, "membrane")

    def _relational(self, name: str, provider: Provider) -> tuple[Any, str]:
        del provider
        target = self._target("relational", name)
        return Relational(self._run_on(target, "membrane")), redact(target)

    def _vector(self, name: str, provider: Provider) -> tuple[Any, str]:
        target = MEMORY if name == _MEMORY else self._rows_of(provider)
        executor: Any = self._run_on(target, "membrane")
        cache = None if target == MEMORY else self.paths.cache / "vectors"
        threshold = {} if provider.threshold is None else {"threshold": provider.threshold}
        try:
            work = open_vectors(executor, name, dimensions=provider.dimensions, cache=cache, **threshold)
            return SyncExecutor(executor.database).run(work), redact(target)
        except MissingExtraError as error:
            # Without numpy the other three stores still work, so that the last of the chain refuses call by call.
            if name != _MEMORY:
                raise
            return MissingVectors(provider.dimensions, error), ""

    def _blob(self, name: str, provider: Provider) -> tuple[Any, str]:
        if name == _MEMORY:
            return Blobs(self._run_on(MEMORY, "membrane"), BlobStoreConfig()), MEMORY
        address = self._blob_address(name, provider)
        _probe(name, address)
        target = self._rows_of()
        executor = self._run_on(target, "membrane")
        is_shared = is_url(target)
        # Files in a home can be read by one machine only: beside rows on a server they are for what a row cannot hold.
        is_own_folder = name == "filesystem" and provider.path is None
        inline = _SHARED_INLINE if is_shared and is_own_folder else INLINE
        config = BlobStoreConfig(open_backend(address), inline=inline)
        config.is_shared = is_shared
        self._closers.append(config.close)
        return Blobs(executor, config), redact(address)

    def _telemetry(self, name: str, provider: Provider) -> tuple[Any, str]:
        target = self._target("telemetry", name)
        return Telemetry(self._run_on(target, "telemetry"), provider.retention), redact(target)

    # --- addresses and databases -----------------------------------------------------------------------------------

    def _target(self, kind: str, type_name: str) -> str:
        """The file or URL of the relational or the telemetry store."""
        provider = self.settings.providers[kind]
        if type_name == _MEMORY:
            return MEMORY
        if type_name == "sqlite":
            default = self.paths.membrane_db if kind == "relational" else self.paths.telemetry_db
            return str(configured_file(provider) or default)
        url = provider.connection or self.settings.providers["relational"].connection
        if url is None:
            raise ConfigError(
                f"the {kind} store is of the type postgres and has no connection;"
                f" set providers.{kind}.connection, like postgresql://user@host/name",
                key=f"providers.{kind}.connection",
            )
        return url

    def _membrane(self, provider: Provider | None = None) -> str:
        """The database with the rows of vectors and blobs: their own, the relational one, or the default file."""
        # Vectors may have a database of their own; blobs have only their bytes elsewhere.
        own = None if provider is None else vector_database(provider)
        if own is not None:
            return own
        relational = self.settings.providers["relational"]
        if relational.type == _MEMORY:
            return self._target("relational", "sqlite")
        # Where the relational store fell back to a file, its rows and theirs stay in one database.
        entry = self._stores.get("relational")
        follows = entry is not None and self._has_followed(provider)
        return self._target("relational", entry.status.type if entry is not None and follows else relational.type)

    def _has_followed(self, provider: Provider | None) -> bool:
        """Whether rows of vectors or blobs are in a database that the relational store fell back to."""
        entry = self._stores.get("relational")
        if entry is None or (provider is not None and vector_database(provider) is not None):
            return False
        return entry.status.degraded is not None and entry.status.type != _MEMORY

    def _rows_of(self, provider: Provider | None = None) -> str:
        """The same, with the relational store open before: it decides whether a fallback is used."""
        if provider is None or vector_database(provider) is None:
            relational = self.settings.providers["relational"]
            if relational.type != _MEMORY and relational.fallback:
                self._open_relational_first()
        return self._membrane(provider)

    def _open_relational_first(self) -> None:
        # What a half-opened store still has to close is not the relational store's to close.
        own = self._closers
        self._closers = []
        try:
            self._open("relational")
        finally:
            self._closers = own

    def _blob_address(self, name: str, provider: Provider) -> str:
        if name == "filesystem":
            return str(Path(provider.path).expanduser() if provider.path else self.paths.blobs)
        if not provider.connection:
            key = "providers.blob.connection"
            raise ConfigError(f"a blob store of the type {name} needs a connection; set {key}", key=key)
        return provider.connection

    def _run_on(self, target: str, space: str) -> AsyncStorageExecutor | SyncStorageExecutor:
        """An executor on a database of its own in memory, or on a handle of one that stores share."""
        database = self._database(target, space)
        self._closers.append(database.close)
        return self._executor(database, self.tracker)

    def _database(self, target: str, space: str) -> Database:
        key = (target, space)
        database = self._databases.get(key)
        # What is in memory is never shared: each store in memory is alone there.
        if database is not None and target != MEMORY and not database.closed:
            return database.share()
        if key in self._failures:
            raise self._failures[key]
        try:
            options = {**self.settings.options_of(target), **self._options}
            database = open_database(target, space=space, **options)
        except _CAUSES_FALLBACK as error:
            self._failures[key] = error
            raise
        if database.first_run and target != MEMORY:
            self.first_run.append(redact(target))
        self._databases[key] = database
        return database


_OPENERS: Final[dict[str, Callable[[OpenStores, str, Provider], tuple[Any, str]]]] = {
    "relational": OpenStores._relational,
    "vector": OpenStores._vector,
    "blob": OpenStores._blob,
    "telemetry": OpenStores._telemetry,
}


class MissingVectors:
    """Stands for the vector store where numpy is not installed: every call but `close` raises MissingExtraError."""

    def __init__(self, dimensions: int, reason: MissingExtraError) -> None:
        self.dimensions = dimensions
        self._reason = reason

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        del args, kwargs
        raise MissingExtraError(self._reason.message) from self._reason

    add = upsert = search = delete = count = _refuse

    async def close(self) -> None:
        """Do nothing: nothing is open."""


def configured_file(provider: Provider) -> Path | None:
    """Return the SQLite file that the settings of a store name; None for the default one."""
    # A connection belongs to the type that is configured: that of a server says nothing about its fallback.
    file = provider.path or (provider.connection if provider.type == "sqlite" else None)
    return None if file is None else Path(file).expanduser()


def vector_database(provider: Provider) -> str | None:
    """Return where vectors have a database of their own, a URL or a file; None beside the application tables."""
    if provider.connection or provider.path is None:
        return provider.connection
    file = Path(provider.path).expanduser()
    # D-gent names a JSON file, which may be there and can be imported: the database is beside it.
    return str(file.with_suffix(".db") if file.suffix == ".json" else file)


def _kind(name: str) -> str:
    return _KIND_OF_RESOURCE.get(name, name)


def _run_all(closers: list[Callable[[], None]]) -> None:
    while closers:
        closers.pop()()


def _warn_if_degraded(kind: str, status: StoreStatus, configured: str) -> None:
    if status.degraded is not None:
        loss = ", and nothing stored there outlives this process" if status.type == _MEMORY else ""
        other = "" if status.type == configured else f", not {configured}"
        _log.warning("the %s store runs on %s%s%s: %s", kind, status.type, other, loss, status.degraded)


def _in_memory(settings: Settings) -> Settings:
    providers = {kind: Provider(_MEMORY, dimensions=each.dimensions) for kind, each in settings.providers.items()}
    return replace(settings, providers=providers)


def _probe(name: str, address: str) -> None:
    """Raise unless bytes can be stored there: a server is only asked when it is used, which would be too late."""
    if name == "ipfs":
        node = Kubo(address.removeprefix("ipfs+"), idle_s=5.0)
        try:
            node.version()
        finally:
            node.close()
        return
    if name == "filesystem":
        # The default folder does not exist yet at the first run.
        folders.make(address)
    backend = open_backend(address)
    try:
        with suppress(FileNotFoundError):
            # Listing is the cheapest request that needs the bucket, the credentials and the network.
            next(iter(backend.list_older(0.0)), None)
    finally:
        backend.close()


# --- what a store holds ----------------------------------------------------------------------------------------------

_ROWS = sql(
    "SELECT (SELECT count(*) FROM cli_sessions), (SELECT count(*) FROM shapes), (SELECT count(*) FROM dreams),"
    " (SELECT count(*) FROM agent_state), (SELECT count(*) FROM instances)"
)
_VECTORS = sql(
    "SELECT (SELECT count(*) FROM vectors WHERE stamp > 0),"
    " coalesce((SELECT dimensions FROM vector_facts WHERE one = 1), 0)"
)
_BLOBS = sql("SELECT count(*), CAST(coalesce(sum(size), 0) AS BIGINT) FROM blobs")


def _counts(query: Query, names: tuple[str, ...], tx: Tx) -> dict[str, int]:
    [numbers] = tx.all(query)
    return {name: int(number) for name, number in zip(names, numbers, strict=True)}


def _count_events(tx: Tx) -> dict[str, int]:
    return {"events": telemetry.count(tx)}


_COUNTS: Final[dict[str, Callable[[Tx], dict[str, int]]]] = {
    "relational": partial(_counts, _ROWS, ("sessions", "shapes", "dreams", "agents", "instances")),
    "vector": partial(_counts, _VECTORS, ("vectors", "dimensions")),
    "blob": partial(_counts, _BLOBS, ("blobs", "bytes")),
    "telemetry": _count_events,
}


def status(stores: Callable[[], OpenStores]) -> Work[StorageStatus]:
    """What each store runs on and holds, what is running, and what is degraded."""
    return (yield from call(lambda: stores().measure()))
