"""`Lifecycle`: a process that uses a storage, from `bootstrap` to `shutdown`.

    async with await bootstrap() as life:
        print(life.message or "")
        await life.storage.blob.put("a", b"1")

Rules:
- Bootstrap opens the storage, applies migrations and records the instance; if one of these fails, nothing stays open.
- It sends a heartbeat every 30 seconds, and marks others stale that sent none for 5 minutes. Long jobs do not delay
  heartbeats, and a failing job ends nothing: it is a warning, and tried again.
- One of the instances runs the scheduled jobs, once a day: telemetry retention, sweeping blobs, expiring rollback
  tokens. Stores in memory are left alone: they end with their process.
- Stores that this process has open over the same home write the memory images that are due, at every heartbeat.
- What else a process does at every heartbeat (`also`) runs beside these, and fails alone.
- Shutdown leaves no task behind, records that the instance has stopped, and closes what bootstrap opened; it may be
  called twice.
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

from holdproof import validation
from holdproof.db import MEMORY
from holdproof.errors import ClosedError, HoldproofError, InstanceStoppedError
from holdproof.folders import find_project
from holdproof.model.instances import Instance, Mode
from holdproof.model.storage import TelemetryEvent
from holdproof.storage import heartbeat_jobs, instances, scheduled_jobs
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
    """Start to use a storage (by default that of the settings) for a project (by default that of the working folder).

    Memory images of stores that this process has open over the same home are written by themselves when they are due.
    `also` names what else runs at every heartbeat: `{"report": send_report}`.
    """
    validation.number("heartbeat_s", heartbeat_s, least=0.001, most=DAY_S)
    validation.number("stale_s", stale_s, least=0.001, most=_LONG_S)
    opened = storage or await StorageProvider.from_config()
    try:
        await opened.run_migrations()
        mode = _mode(opened, project)
        if mode is not Mode.EPHEMERAL:
            await asyncio.to_thread(_make_folders, opened)
        named = project_here() if project is None else project_of(project)
        life = Lifecycle(opened, mode, await _enter(opened, named), stale_s=stale_s, closes=storage is None)
        await life.report("instance.started", {"mode": mode.value})
    except BaseException:
        # A storage that the caller opened stays the caller's.
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
    with suppress(HoldproofError):  # a read-only home is no reason not to run on a server
        storage.paths.create()


async def _enter(storage: StorageProvider, project: Project) -> Instance:
    host = _host()
    pid = os.getpid()
    return await storage.membrane.write(lambda tx: instances.start(tx, hostname=host, pid=pid, project=project))


def _host() -> str:
    return socket.gethostname() or "localhost"


def _everywhere(where: str) -> str:
    """A name of a database for all hosts: a file together with its host, as text that a database can store."""
    # A URL is the same from every host; a file of the same path is another one on another host.
    name = where if "://" in where else f"{_host()} {where}"
    return name.encode(errors="backslashreplace").decode()


class Lifecycle:
    """A process that uses a storage: sends heartbeats, and runs its share of the scheduled jobs."""

    def __init__(
        self, storage: StorageProvider, mode: Mode, instance: Instance, *, stale_s: float, closes: bool
    ) -> None:
        self.storage = storage
        self.mode = mode
        self.instance = instance
        self._stale_s = stale_s
        self._closes = closes
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = asyncio.Lock()
        self._over = False

    @property
    def message(self) -> str | None:
        """The message for people at the first run: where data lives; None at every other."""
        databases = self.storage.first_run
        paths = self.storage.paths
        if not databases:
            return None
        data = ", ".join(databases)
        return f"first run: this storage is new; its data lives in {data}, its settings in {paths.config_file}"

    def begin(self, every_s: float, also: Mapping[str, Work] = MappingProxyType({})) -> None:
        """Start the background tasks: heartbeat, scheduled jobs, jobs of open stores, and those of the caller."""
        works = {"heartbeat": self.beat, "upkeep": self.run_jobs, "images": self._run_store_jobs, **also}
        for name, work in works.items():
            task = asyncio.create_task(self._every(every_s, name, work), name=f"holdproof {name} {self.instance.id}")
            self._tasks.append(task)

    async def _every(self, seconds: float, name: str, work: Work) -> None:
        while True:
            # Sleep first: bootstrap has just sent the first heartbeat.
            await asyncio.sleep(seconds)
            try:
                await work()
            # Somebody stopped this instance on purpose: its tasks end, the process goes on.
            except InstanceStoppedError:
                return
            except Exception as error:
                _log.warning("%s of instance %s failed: %s", name, self.instance.id, error)

    async def beat(self) -> tuple[Instance, ...]:
        """Send a heartbeat; return the other instances that this one marked stale."""
        current = self.instance
        limit = self._stale_s
        self.instance, stale = await self.storage.membrane.write(
            lambda tx: (instances.beat(tx, current), instances.mark_stale(tx, stale_s=limit))
        )
        for other in stale:
            _log.warning("instance %s (%s, pid %s) sends no heartbeats any more", other.id, other.hostname, other.pid)
            await self.report("instance.stale", {}, of=other)
        return stale

    async def run_jobs(self) -> list[str]:
        """Run the scheduled jobs that are due and that no other instance has claimed; return their names."""
        names = []
        me = self.instance.id
        membrane = self.storage.membrane
        for job, work in self._jobs().items():
            if not await membrane.write(lambda tx: scheduled_jobs.claim(tx, job, by=me, every_s=DAY_S)):  # noqa: B023
                continue
            error = None
            try:
                await work()
            except Exception as raised:
                # PostgreSQL stores no NUL, and the column is for people: a thousand characters will do.
                error = f"{type(raised).__name__}: {raised}".replace("\0", "")[:1000]
                _log.warning("%s failed and is tried again later: %s", job, error)
            await membrane.write(lambda tx: scheduled_jobs.end(tx, job, by=me, error=error))  # noqa: B023
            names.append(job)
        return names

    async def _run_store_jobs(self) -> None:
        """Run what the open stores over this home want done at a heartbeat."""
        for job in heartbeat_jobs.of(self.storage.paths.data):
            with suppress(ClosedError):  # the store was closed meanwhile
                await asyncio.to_thread(job)

    def _jobs(self) -> dict[str, Work]:
        """The jobs by name; the name of a store that several instances share is the same for all of them."""
        storage = self.storage
        jobs: dict[str, Work] = {"selfgrow expire": lambda: storage.membrane.write(steps.expire)}
        for kind, method, store in (("telemetry", "retain", storage.telemetry), ("blob", "sweep", storage.blob)):
            where = storage.status().stores[kind].where
            work = getattr(store, method, None)
            if where != MEMORY and work is not None:
                jobs[f"{kind} {method} {_everywhere(where)}"] = work
        return jobs

    async def report(self, event_type: str, data: dict[str, Any], *, of: Instance | None = None) -> None:
        """Append an event about an instance to telemetry; a failure is logged as a warning."""
        about = of or self.instance
        facts = {"hostname": about.hostname, "pid": about.pid, **data}
        names = {"instance_id": about.id, "project_hash": about.project_hash}
        event = TelemetryEvent(event_type, self.instance.last_heartbeat, facts, **names)
        try:
            await self.storage.telemetry.append([event])
        except HoldproofError as error:
            _log.warning("telemetry did not store %s: %s", event_type, error)

    async def shutdown(self) -> None:
        """Stop the background tasks, record that the instance has stopped, close what bootstrap opened."""
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
        tasks = self._tasks
        self._tasks = []
        for task in tasks:
            task.cancel()
        # Cancelled tasks are awaited, so that none is destroyed while the loop closes.
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _stop(self) -> None:
        id = self.instance.id
        try:
            stopped, self.instance = await self.storage.membrane.write(
                lambda tx: (instances.stop(tx, id), instances.get(tx, id))
            )
        except HoldproofError as error:
            _log.warning("the end of instance %s was not recorded: %s", id, error)
            return
        if stopped:
            await self.report("instance.stopped", {})

    async def __aenter__(self) -> "Lifecycle":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()
