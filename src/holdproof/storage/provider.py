"""`StorageProvider`: the four stores of services, opened together.

    async with await StorageProvider.from_config() as storage:
        await storage.relational.execute("INSERT INTO agent_state (agent_id) VALUES (:id)", {"id": "soul"})

Rules:
- Settings that cannot be understood are left out with a warning; the kernel is stricter.
- What cannot be reached falls back as its settings allow, and says so: in `status`, in the log, and at the next start
  that is well again, for what was stored in memory is gone.
- While it migrates or recovers, every other call is refused with StorageBusyError.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from holdproof import config as settings_of
from holdproof.config import Paths, Settings
from holdproof.db import MEMORY, Tx, migrate, sql
from holdproof.db.clock import system_clock
from holdproof.errors import ClosedError
from holdproof.importers import kgents
from holdproof.model.storage import StorageOp, StorageStatus
from holdproof.model.times import to_text
from holdproof.storage import degraded
from holdproof.storage.executors import AsyncStorageExecutor
from holdproof.storage.open_stores import KINDS, OpenStores, open_stores
from holdproof.storage.operation_tracker import OperationTracker
from holdproof.storage.stores import BlobStore, RelationalStore, TelemetryStore, VectorStore

_log = logging.getLogger("holdproof.storage")

_MINIMAL = {"providers": {kind: {"type": "memory"} for kind in KINDS}}


@dataclass
class StorageProvider:
    """The four stores of services; close it, or use it as an async context manager."""

    relational: RelationalStore
    vector: VectorStore
    blob: BlobStore
    telemetry: TelemetryStore
    config: Settings
    paths: Paths
    _opened: OpenStores = field(repr=False)
    _doings: OperationTracker = field(repr=False)
    _warnings: list[str] = field(repr=False)
    _options: dict[str, Any] = field(repr=False)

    @classmethod
    async def from_config(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        home: str | Path | None = None,
        url: str | None = None,
        **options: Any,
    ) -> "StorageProvider":
        """The stores that the settings name: those in the file at `path`, else the user's and the project's.

        `url` names the database of the relational store, over the settings and `HOLDPROOF_DATABASE_URL`.
        """
        given = None if path is None else Path(path).expanduser()
        return await cls._load(home, given, options, url=url)

    @classmethod
    async def from_config_dict(
        cls, config: Mapping[str, Any], *, home: str | Path | None = None, **options: Any
    ) -> "StorageProvider":
        """The stores that these settings name, laid out as in `config.yaml`."""
        return await cls._load(home, config, options)

    @classmethod
    async def create_minimal(cls, **options: Any) -> "StorageProvider":
        """A working provider in memory: what is stored can be read back, until it is closed."""
        storage = await cls._load(None, _MINIMAL, options, env={})
        await storage.run_migrations()
        return storage

    @classmethod
    async def _load(
        cls,
        home: str | Path | None,
        given: Path | Mapping[str, Any] | None,
        options: dict[str, Any],
        env: Mapping[str, str] = os.environ,
        url: str | None = None,
    ) -> "StorageProvider":
        paths = Paths.find(home)
        settings = settings_of.load(paths=paths, url=url, project=_here(), env=env, strict=False, override=given)
        for warning in settings.warnings:
            _log.warning("%s", warning)
        doings = OperationTracker()
        opened = await _open(settings, paths, doings, options)
        for place in opened.first_run:
            _log.info("a new storage was created; its data lives in %s", place)
        warnings = [*settings.warnings, *await asyncio.to_thread(_remember, paths, opened)]
        warnings += await asyncio.to_thread(_look_back, opened) if env else []
        hidden: dict[str, Any] = {"_opened": opened, "_doings": doings, "_warnings": warnings, "_options": options}
        return cls(**opened.stores, config=settings, paths=paths, **hidden)

    @property
    def membrane(self) -> AsyncStorageExecutor:
        """What services run functions of a transaction on: `await storage.membrane.write(lambda tx: …)`."""
        face: AsyncStorageExecutor = self._opened.stores["relational"].held
        return face

    @property
    def first_run(self) -> list[str]:
        """The databases that this opening made."""
        return list(self._opened.first_run)

    async def run_migrations(self) -> list[str]:
        """Apply what is pending, and enter in `schema_version` what is applied; the names applied by this call."""
        with self._doings.doing(StorageOp.MIGRATE):
            return await asyncio.to_thread(self._migrate)

    def _migrate(self) -> list[str]:
        database = self._opened.membrane
        assert database is not None
        done = [] if database.dialect == "postgres" else migrate.migrate(database, migrate.shipped("membrane"))
        database.write(_enter_versions).result()
        return done

    async def recover(self) -> StorageStatus:
        """Try again to open what is degraded; what was stored in memory meanwhile is not carried over.

        Stores that are well are left as they are, those in memory by choice with what they hold.
        """
        with self._doings.doing(StorageOp.ERROR):
            ill = [kind for kind, each in self._opened.status.items() if each.degraded]
            opened = await _open(self.config, self.paths, self._doings, self._options | {"kinds": ill})
            # Nothing is awaited in here: whoever is cancelled leaves the old stores or the new ones, all of them.
            if not self._opened.closed:
                self._opened.swap(opened, [kind for kind in ill if not opened.status[kind].degraded])
                self.relational, self.vector, self.blob, self.telemetry = map(self._opened.stores.__getitem__, KINDS)
            await asyncio.to_thread(opened.close)
            if self._opened.closed:
                raise ClosedError("the storage is closed")
            self._warnings += await asyncio.to_thread(_remember, self.paths, self._opened)
        return self.status()

    def status(self) -> StorageStatus:
        """What each store runs on, what is under way, and what is degraded."""
        found = []
        for kind, each in self._opened.status.items():
            if each.degraded:
                found.append(f"the {kind} store runs on {each.type}: {each.degraded}")
            elif each.where == MEMORY:
                found.append(f"the {kind} store is in memory: nothing survives the end of this process")
        return StorageStatus(dict(self._opened.status), self._doings.counts(), found, list(self._warnings))

    async def close(self) -> None:
        """Finish what is under way and close all four; may be called twice."""
        await asyncio.to_thread(self._opened.close)

    async def __aenter__(self) -> "StorageProvider":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _open(settings: Settings, paths: Paths, doings: OperationTracker, options: dict[str, Any]) -> OpenStores:
    """Open all four; what a caller that was cancelled no longer wants is closed again."""
    opening = asyncio.create_task(asyncio.to_thread(open_stores, settings, paths, doings, **options))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_let_go)
        raise


def _let_go(opening: "asyncio.Task[OpenStores]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _look_back(opened: OpenStores) -> list[str]:
    """Say where legacy data waits, at a first run; warn of old paths that are in use again."""
    if opened.first_run and (waiting := kgents.hint()) is not None:
        _log.info("%s", waiting)
    found = kgents.returned()
    for warning in found:
        _log.warning("%s", warning)
    return found


def _here() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:  # a deleted working folder holds no project
        return None


_ENTER = sql(
    "INSERT INTO schema_version (version, applied_at) VALUES (:version, :at) ON CONFLICT (version) DO NOTHING",
)
_APPLIED = sql("SELECT name, applied_at FROM schema_migrations ORDER BY name")


def _enter_versions(tx: Tx) -> None:
    """The number of each migration and when it was applied, where programs that know D-gent look for it."""
    for name, at in tx.all(_APPLIED):
        tx.execute(_ENTER, version=int(name.partition("_")[0]), at=at)


def _remember(paths: Paths, opened: OpenStores) -> list[str]:
    """Keep which stores are in memory against their settings; warnings for those that were, and are well again."""
    before = degraded.read(paths)
    memory = {kind: each for kind, each in opened.status.items() if each.degraded and each.where == MEMORY}
    chosen = {kind for kind, each in opened.status.items() if each.where == MEMORY and not each.degraded}
    after = {kind: period for kind, period in before.items() if kind in memory or kind in chosen}
    for kind, each in memory.items():
        after.setdefault(kind, {"since": to_text(system_clock()), "reason": str(each.degraded)})
    warnings = [text for kind, text in degraded.warnings(before).items() if kind not in after]
    if after != before and not degraded.write(paths, after):
        warnings.append("nothing can be written down: no later start will know that this one was degraded")
    for warning in warnings:
        _log.warning("%s", warning)
    return warnings
