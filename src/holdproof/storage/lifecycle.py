"""The life of a process that uses a storage, from `bootstrap` to `shutdown`.

    async with await bootstrap() as life:
        print(life.message or "")
        await life.storage.blob.put("a", b"1")

Rules:
- Bootstrap opens the storage, applies migrations and enters the instance; if one of these fails, nothing stays open.
- It is heard every 30 seconds, and marks others stale that were not heard for 5 minutes. Long duties keep no heartbeat
  back, and a failing one ends nothing: it is a warning, and tried again.
- What nobody else does is done by one of the instances, once a day: telemetry grows old as its settings say, blobs are
  swept, rollback tokens expire. Stores in memory are left alone: they end with their process.
- Whatever else a process wants done at every heartbeat (`also`: images of a store's memory) is done beside these, and
  fails alone.
- Shutdown leaves no task behind, says that the instance has ended, and closes what bootstrap opened; it may be called
  twice.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final

from holdproof.config import find_project
from holdproof.db import MEMORY
from holdproof.errors import HoldproofError, InstanceStoppedError
from holdproof.model.instances import Instance, Mode
from holdproof.model.storage import TelemetryEvent
from holdproof.storage import instances, scheduled_jobs, values
from holdproof.storage.projects import Project, project_here, project_of
from holdproof.storage.provider import StorageProvider
from holdproof.storage.selfgrow import steps

_log = logging.getLogger("holdproof.storage")

HEARTBEAT_S: Final = 30.0
DAY_S: Final = 86_400.0
_LONG_S: Final = 36_600 * DAY_S

Work = Callable[[], Awaitable[Any]]


async def bootstrap(
    storage: StorageProvider | None = None,
    *,
    project: str | os.PathLike[str] | None = None,
    heartbeat_s: float = HEARTBEAT_S,
    stale_s: float = instances.STALE_S,
    also: Mapping[str, Work] = MappingProxyType({}),
) -> "Lifecycle":
    """Begin to use a storage, the given one or that of the settings, for a project, given or the one we stand in.

    `also` names what else is done at every heartbeat: `{"images": store.image.beat}`.
    """
    values.number("heartbeat_s", heartbeat_s, least=0.001, most=DAY_S)
    values.number("stale_s", stale_s, least=0.001, most=_LONG_S)
    opened = storage or await StorageProvider.from_config()
    try:
        await opened.run_migrations()
        mode = _mode(opened, project)
        if mode is not Mode.EPHEMERAL:
            await asyncio.to_thread(_make_folders, opened)
        named = project_here() if project is None else project_of(project)
        life = Lifecycle(opened, mode, await _enter(opened, named), stale_s=stale_s, closes=storage is None)
        await life.tell("instance.started", {"mode": mode.value})
    except BaseException:
        if storage is None:
            await opened.close()
        raise
    life.begin(heartbeat_s, also)
    return life


def _mode(storage: StorageProvider, project: str | os.PathLike[str] | None) -> Mode:
    if storage.status().stores["relational"].where == MEMORY:
        return Mode.EPHEMERAL
    with suppress(FileNotFoundError):
        if find_project(Path(project) if project is not None else Path.cwd()) is not None:
            return Mode.PROJECT
    return Mode.GLOBAL


def _make_folders(storage: StorageProvider) -> None:
    with suppress(HoldproofError):  # a home that can only be read is no reason not to run on a server
        storage.paths.create()


async def _enter(storage: StorageProvider, project: Project) -> Instance:
    host, pid = _host(), os.getpid()
    return await storage.membrane.write(lambda tx: instances.start(tx, hostname=host, pid=pid, project=project))


def _host() -> str:
    return socket.gethostname() or "localhost"


def _everywhere(where: str) -> str:
    """What a place is called from every host: a file only with its host, and as text that a database can keep."""
    name = where if "://" in where else f"{_host()} {where}"
    return name.encode(errors="backslashreplace").decode()


class Lifecycle:
    """A process that uses a storage: heard regularly, and doing its share of the upkeep."""

    def __init__(
        self, storage: StorageProvider, mode: Mode, instance: Instance, *, stale_s: float, closes: bool
    ) -> None:
        self.storage, self.mode, self.instance = storage, mode, instance
        self._stale_s, self._closes = stale_s, closes
        self._tasks: list[asyncio.Task[None]] = []
        self._ending, self._over = asyncio.Lock(), False

    @property
    def message(self) -> str | None:
        """What a person is told at the first run: where data lives; None at every other."""
        made, paths = self.storage.first_run, self.storage.paths
        if not made:
            return None
        return (
            f"first run: this storage is new; its data lives in {', '.join(made)}, its settings in {paths.config_file}"
        )

    def begin(self, every_s: float, also: Mapping[str, Work] = MappingProxyType({})) -> None:
        """Start to be heard, and to look after what is due."""
        for name, work in {"heartbeat": self.beat, "upkeep": self.tend, **also}.items():
            task = asyncio.create_task(self._every(every_s, name, work), name=f"holdproof {name} {self.instance.id}")
            self._tasks.append(task)

    async def _every(self, seconds: float, name: str, work: Work) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except InstanceStoppedError:
                return
            except Exception as error:
                _log.warning("%s of instance %s failed: %s", name, self.instance.id, error)

    async def beat(self) -> tuple[Instance, ...]:
        """Say that this instance is alive; the others that were found to be stale."""
        known, limit = self.instance, self._stale_s
        self.instance, stale = await self.storage.membrane.write(
            lambda tx: (instances.beat(tx, known), instances.mark_stale(tx, stale_s=limit))
        )
        for other in stale:
            _log.warning("instance %s (%s, pid %s) is not heard any more", other.id, other.hostname, other.pid)
            await self.tell("instance.stale", {}, of=other)
        return stale

    async def tend(self) -> list[str]:
        """Do the duties that are due and that no other instance has taken; which these were."""
        done, me, membrane = [], self.instance.id, self.storage.membrane
        for duty, work in self._duties().items():
            if not await membrane.write(lambda tx: scheduled_jobs.claim(tx, duty, by=me, every_s=DAY_S)):  # noqa: B023
                continue
            error = None
            try:
                await work()
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}".replace("\0", "")[:1000]
                _log.warning("%s failed and is tried again later: %s", duty, error)
            await membrane.write(lambda tx: scheduled_jobs.end(tx, duty, by=me, error=error))  # noqa: B023
            done.append(duty)
        return done

    def _duties(self) -> dict[str, Work]:
        """What there is to do; a store that several instances share has one name for all of them."""
        storage = self.storage
        given = {"telemetry": ("retain", storage.telemetry), "blob": ("sweep", storage.blob)}
        found: dict[str, Work] = {"selfgrow expire": lambda: storage.membrane.write(steps.expire)}
        for kind, (verb, store) in given.items():
            where, work = storage.status().stores[kind].where, getattr(store, verb, None)
            if where != MEMORY and work is not None:
                found[f"{kind} {verb} {_everywhere(where)}"] = work
        return found

    async def tell(self, event_type: str, data: dict[str, Any], *, of: Instance | None = None) -> None:
        """Tell telemetry what became of an instance; where that is not possible it is a warning."""
        about = of or self.instance
        facts = {"hostname": about.hostname, "pid": about.pid, **data}
        names = {"instance_id": about.id, "project_hash": about.project_hash}
        event = TelemetryEvent(event_type, self.instance.last_heartbeat, facts, **names)
        try:
            await self.storage.telemetry.append([event])
        except HoldproofError as error:
            _log.warning("telemetry did not take %s: %s", event_type, error)

    async def shutdown(self) -> None:
        """Stop what runs in the background, say that the instance has ended, close what bootstrap opened."""
        async with self._ending:
            if self._over:
                return
            self._over = True
            try:
                await self._rest()
                await self._stop()
            finally:
                if self._closes:
                    await self.storage.close()

    async def _rest(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _stop(self) -> None:
        id = self.instance.id
        try:
            stopped, self.instance = await self.storage.membrane.write(
                lambda tx: (instances.stop(tx, id), instances.get(tx, id))
            )
        except HoldproofError as error:
            _log.warning("instance %s ends unheard: %s", id, error)
            return
        if stopped:
            await self.tell("instance.stopped", {})

    async def __aenter__(self) -> "Lifecycle":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()
