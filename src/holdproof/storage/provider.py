"""`StorageProvider`: the four stores of a storage, opened together for coroutines.

    async with await StorageProvider.from_config() as storage:
        await storage.relational.execute("INSERT INTO agent_state (agent_id) VALUES (:id)", {"id": "soul"})

    storage = StorageProvider(relational=mine, vector=…, blob=…, telemetry=…)    # four stores of one's own

Rules:
- Settings that cannot be understood are left out with a warning; the kernel is stricter.
- A store that cannot be reached falls back as its settings allow, and says so: in `status`, in the log, and at the next
  healthy start, because what was stored in memory is lost.
- While the storage migrates or recovers, every other call is refused with StorageBusyError.
"""

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from holdproof import config as settings_of
from holdproof.config import Paths, Settings
from holdproof.db import MEMORY, Tx, migrate, sql
from holdproof.db.clock import system_clock
from holdproof.errors import ClosedError, InvalidInputError
from holdproof.model.storage import StorageOp, StorageStatus
from holdproof.model.times import to_text
from holdproof.storage import degraded, legacy_paths
from holdproof.storage.executors import AsyncStorageExecutor
from holdproof.storage.open_stores import KINDS, OpenStores
from holdproof.storage.own_stores import OwnStores
from holdproof.storage.stores import BlobStore, RelationalStore, TelemetryStore, VectorStore

_log = logging.getLogger("holdproof.storage")

_MINIMAL = {"providers": {kind: {"type": "memory"} for kind in KINDS}}


class StorageProvider:
    """The four stores; close it, or use it as an async context manager."""

    def __init__(
        self,
        relational: Any,
        vector: Any,
        blob: Any,
        telemetry: Any,
        *,
        config: Settings | None = None,
        paths: Paths | None = None,
    ) -> None:
        """Bring together four stores of one's own, open already; each needs only the seed's methods.

        `config` and `paths` are for what reads them; without them they are the defaults, and no file is read.
        """
        where = paths or Paths.find(None)
        settings = config or settings_of.load(paths=where, env={}, strict=False, override={})
        stores = {"relational": relational, "vector": vector, "blob": blob, "telemetry": telemetry}
        self._stores: OpenStores | OwnStores = OwnStores(stores, settings, where)
        self._warnings: list[str] = []

    @classmethod
    def _of(cls, stores: OpenStores, warnings: list[str]) -> "StorageProvider":
        """The provider over stores that were opened from settings."""
        storage = cls.__new__(cls)
        storage._stores = stores
        storage._warnings = warnings
        return storage

    @classmethod
    async def from_config(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        home: str | Path | None = None,
        url: str | None = None,
        **options: Any,
    ) -> "StorageProvider":
        """Open the stores that the settings name: those in the file at `path`, else the user's and the project's.

        `url` names the database of the relational store, over the settings and `HOLDPROOF_DATABASE_URL`.
        """
        file = None if path is None else Path(path).expanduser()
        return await cls._load(home, file, options, url=url)

    @classmethod
    async def from_config_dict(
        cls, config: Mapping[str, Any], *, home: str | Path | None = None, **options: Any
    ) -> "StorageProvider":
        """Open the stores that these settings name, laid out as in `config.yaml`."""
        return await cls._load(home, config, options)

    @classmethod
    async def create_minimal(cls, **options: Any) -> "StorageProvider":
        """Open a working provider in memory; its contents are lost when it is closed."""
        storage = await cls._load(None, _MINIMAL, options, env={})
        await storage.run_migrations()
        return storage

    @classmethod
    async def _load(
        cls,
        home: str | Path | None,
        source: Path | Mapping[str, Any] | None,
        options: dict[str, Any],
        env: Mapping[str, str] = os.environ,
        url: str | None = None,
    ) -> "StorageProvider":
        paths = Paths.find(home)
        settings = settings_of.load(
            paths=paths, url=url, project=_working_folder(), env=env, strict=False, override=source
        )
        for warning in settings.warnings:
            _log.warning("%s", warning)
        stores = OpenStores(settings, paths, AsyncStorageExecutor, strict=False, **options)
        await _open_in_thread(stores)
        for address in stores.first_run:
            _log.info("a new storage was created; its data lives in %s", address)
        warnings = [*settings.warnings, *await asyncio.to_thread(_record_degraded, stores)]
        # A minimal provider is for tests and sandboxes: it neither reads nor mentions anything of this user.
        if env:
            warnings += await asyncio.to_thread(_mention_legacy_data, stores)
        return cls._of(stores, warnings)

    @property
    def relational(self) -> RelationalStore:
        """Tables of services, by SQL."""
        return cast("RelationalStore", self._stores.open("relational"))

    @property
    def vector(self) -> VectorStore:
        """Vectors by id, searched by similarity."""
        return cast("VectorStore", self._stores.open("vector"))

    @property
    def blob(self) -> BlobStore:
        """Bytes by key."""
        return cast("BlobStore", self._stores.open("blob"))

    @property
    def telemetry(self) -> TelemetryStore:
        """Events by time."""
        return cast("TelemetryStore", self._stores.open("telemetry"))

    @property
    def membrane(self) -> AsyncStorageExecutor:
        """The executor of the application tables: `await storage.membrane.write(lambda tx: …)`.

        Raises InvalidInputError where the relational store is one's own: it has only what its maker gave it.
        """
        executor = getattr(self._stores.open("relational"), "held", None)
        if not isinstance(executor, AsyncStorageExecutor):
            raise InvalidInputError(
                "this needs Holdproof's own relational store; open the provider with StorageProvider.from_config()",
                field="relational",
            )
        return executor

    @property
    def config(self) -> Settings:
        """The settings it was opened with."""
        return self._stores.settings

    @property
    def paths(self) -> Paths:
        """Where its files are."""
        return self._stores.paths

    @property
    def first_run(self) -> list[str]:
        """The databases that this opening created."""
        return list(self._stores.first_run)

    async def run_migrations(self) -> list[str]:
        """Apply pending migrations and enter all applied ones in `schema_version`; the names applied by this call.

        A relational store of one's own has a schema of its own: nothing is applied there.
        """
        if not isinstance(getattr(self.relational, "held", None), AsyncStorageExecutor):
            return []
        with self._stores.tracker.operation(StorageOp.MIGRATE):
            return await asyncio.to_thread(self._migrate)

    def _migrate(self) -> list[str]:
        database = self.membrane.database
        # A server may be shared with other hosts: its migrations were applied when the database was opened.
        applied = [] if database.dialect == "postgres" else migrate.migrate(database, migrate.shipped("membrane"))
        database.write(_enter_versions).result()
        return applied

    async def recover(self) -> StorageStatus:
        """Try again to open degraded stores; what was stored in memory meanwhile is lost.

        Healthy stores stay as they are, and so do those that are in memory by choice. Raises ClosedError if the storage
        is closed, also while this runs.
        """
        with self._stores.tracker.operation(StorageOp.ERROR):
            kinds = [kind for kind, status in self._stores.statuses().items() if status.degraded]
            # Stores of one's own are never degraded: whoever made them mends them.
            if isinstance(self._stores, OwnStores):
                return self.status()
            other = self._stores.beside()
            await _open_in_thread(other, kinds)
            # No await from here to the exchange: a cancelled caller leaves all of the old stores, or all of the new.
            if not self._stores.closed:
                # Stores that fell back once more are no better than those in use, which have data.
                statuses = other.statuses()
                healthy = [kind for kind in kinds if not statuses[kind].degraded]
                self._stores.exchange(other, healthy)
            await asyncio.to_thread(other.close)
            if self._stores.closed:
                raise ClosedError("the storage is closed")
            self._warnings += await asyncio.to_thread(_record_degraded, self._stores)
        return self.status()

    def status(self) -> StorageStatus:
        """What each store runs on, what is running, and what is degraded; opens and counts nothing."""
        statuses = self._stores.statuses()
        reasons = []
        for kind, status in statuses.items():
            if status.degraded:
                reasons.append(f"the {kind} store runs on {status.type}: {status.degraded}")
            elif status.where == MEMORY:
                reasons.append(f"the {kind} store is in memory: nothing survives the end of this process")
        return StorageStatus(statuses, self._stores.tracker.counts(), reasons, list(self._warnings))

    async def close(self) -> None:
        """Finish what is running and close all four; may be called twice."""
        if isinstance(self._stores, OwnStores):
            await self._stores.close()
        else:
            await asyncio.to_thread(self._stores.close)

    async def __aenter__(self) -> "StorageProvider":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _open_in_thread(stores: OpenStores, kinds: Iterable[str] = KINDS) -> None:
    """Open stores in a thread; if the caller is cancelled meanwhile, they are closed as soon as they are open."""
    # A thread cannot be cancelled: it runs to its end, and then there is something to close.
    opening = asyncio.create_task(asyncio.to_thread(stores.open_all, kinds))
    try:
        await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(partial(_close_unwanted, stores))
        raise


def _close_unwanted(stores: OpenStores, opening: "asyncio.Task[None]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        stores.close()


def _mention_legacy_data(stores: OpenStores) -> list[str]:
    """Log where legacy data can be imported from, at a first run; warn of old paths that are in use again."""
    if stores.first_run and (hint := legacy_paths.hint()) is not None:
        _log.info("%s", hint)
    warnings = legacy_paths.returned()
    for warning in warnings:
        _log.warning("%s", warning)
    return warnings


def _working_folder() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:  # a deleted working folder holds no project
        return None


_ENTER = sql(
    "INSERT INTO schema_version (version, applied_at) VALUES (:version, :at) ON CONFLICT (version) DO NOTHING",
)
_APPLIED = sql("SELECT name, applied_at FROM schema_migrations ORDER BY name")


def _enter_versions(tx: Tx) -> None:
    """Enter the number of each migration and when it was applied in the table where D-gent programs look for it."""
    for name, at in tx.all(_APPLIED):
        tx.execute(_ENTER, version=int(name.partition("_")[0]), at=at)


def _record_degraded(stores: OpenStores) -> list[str]:
    """Record which stores fell back to memory; return a warning for each that did before and is healthy again."""
    before = degraded.read(stores.paths)
    statuses = stores.statuses()
    in_memory = {kind: each for kind, each in statuses.items() if each.where == MEMORY}
    # A store that is in memory by choice cannot tell whether the loss was noticed: its record stays.
    after = {kind: period for kind, period in before.items() if kind in in_memory}
    for kind, status in in_memory.items():
        if status.degraded:
            after.setdefault(kind, {"since": to_text(system_clock()), "reason": status.degraded})
    warnings = [text for kind, text in degraded.warnings(before).items() if kind not in after]
    if after != before and not degraded.write(stores.paths, after):
        warnings.append(
            "no folder can be written to: the next start will not know that stores were in memory in this one"
        )
    for warning in warnings:
        _log.warning("%s", warning)
    return warnings
