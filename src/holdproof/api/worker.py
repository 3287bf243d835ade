"""Workers: `store.worker(queues=["payments"], concurrency=8)` runs due flows until it is stopped.

    with store.worker(concurrency=4):          # in the background; `async with` for the async client
        …
    store.worker().run()                       # here, until `stop` is called elsewhere

What a worker does is in runtime/workers.py; here is how its flows run at once: in threads of the sync client, in tasks
of the async one.
"""

import asyncio
import logging
import queue
import threading
import time
import uuid
from abc import ABC
from collections.abc import Mapping
from typing import Any, Final, Generic, Self

from holdproof import validation
from holdproof.db import Database
from holdproof.errors import ClosedError, HoldproofError
from holdproof.executors import AsyncExecutor, Executor, SyncExecutor
from holdproof.model.defaults import CONCURRENCY
from holdproof.model.namespaces import MAIN
from holdproof.model.times import to_micros
from holdproof.runtime import flows, workers
from holdproof.runtime.functions import LeasedCall, RegisteredFunction
from holdproof.runtime.lease_keeper import keeper_of
from holdproof.runtime.overview import HEARTBEAT_S
from holdproof.runtime.workers import Look, WorkerSpec

_log = logging.getLogger("holdproof.worker")

DRAIN_S: Final = 30.0
# Seconds between two looks when nothing was notified: a database that notifies across processes is looked at rarely.
_IDLE_NOTIFIED_S: Final = 5.0
_IDLE_POLLED_S: Final = 1.0
_AFTER_ERROR_S: Final = 1.0


class WorkerBase(ABC, Generic[Executor]):
    """What both workers know of themselves."""

    def __init__(
        self,
        executor: Executor,
        registry: Mapping[str, RegisteredFunction],
        *,
        queues: tuple[str, ...] | None = None,
        concurrency: int = CONCURRENCY,
        name: str | None = None,
        ns: str = MAIN,
    ) -> None:
        worker_id = str(uuid.uuid4())
        self._executor = executor
        self._registry = registry
        self.spec = WorkerSpec(
            worker_id=worker_id,
            name=worker_id if name is None else validation.name("name", name),
            queues=None if queues is None else tuple(validation.name("queue", each) for each in queues),
            concurrency=validation.count("concurrency", concurrency, least=1),
            ns=ns,
        )
        self._running: dict[str, LeasedCall] = {}
        self._is_stopping = False
        self._turn = 0
        self._beat_at = 0.0
        self._problems: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<Worker {self.spec.name}: {len(self._running)} of {self.spec.concurrency}>"

    @property
    def running(self) -> tuple[str, ...]:
        """The flows that it runs now, by id."""
        return tuple(self._running)

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions that it runs, by name."""
        return tuple(self._registry)

    @property
    def _database(self) -> Database:
        return self._executor.database

    @property
    def _topic(self) -> str:
        return flows.tasks_topic(self.spec.ns)

    def _free(self) -> int:
        return self.spec.concurrency - len(self._running)

    def _began(self, look: Look) -> None:
        """Note what a look brought."""
        self._turn += 1
        problems = frozenset(look.claim.problems)
        for problem in problems - self._problems:
            _log.error("%s", problem)
        self._problems = problems
        for stopped in look.claim.stopped:
            _log.error("flow %s was stopped: %s", stopped.flow.flow_id, stopped.error)

    def _ended(self, leased: LeasedCall, error: str | None) -> None:
        flow_id = leased.run.lease.flow_id
        self._running.pop(flow_id, None)
        if error is not None:
            _log.warning("flow %s of %s failed: %s", flow_id, leased.call.name, error)

    def _idle_s(self, look: Look | None) -> float:
        """Return how long to wait for the topic at most."""
        longest = _IDLE_NOTIFIED_S if self._database.backend.notifies else _IDLE_POLLED_S
        if look is None:
            return min(longest, _AFTER_ERROR_S)
        if look.until is None:
            return longest
        return max(0.0, min(longest, (to_micros(look.until) - self._database.clock()) / 1e6))

    def _is_beat_due(self) -> bool:
        return time.monotonic() >= self._beat_at

    def _beat(self, state: str) -> Any:
        self._beat_at = time.monotonic() + HEARTBEAT_S
        return workers.beat(self.spec, self._registry, running=len(self._running), state=state)

    def _look(self) -> Any:
        return workers.look(self.spec, self._registry, free=self._free(), turn=self._turn)

    def _work(self, leased: LeasedCall) -> Any:
        return workers.run(self._registry[leased.call.name], leased)

    def _unfinished(self) -> Any:
        """Return the work that gives back what is not finished; nobody extends those leases any more."""
        runs = [leased.run for leased in list(self._running.values())]
        keeper = keeper_of(self._database)
        for run in runs:
            keeper.drop(run)
        return workers.give_back(runs)


class SyncWorker(WorkerBase[SyncExecutor]):
    """A worker of the sync client: each flow runs in a thread of its own."""

    def __init__(self, executor: SyncExecutor, registry: Mapping[str, RegisteredFunction], **options: Any) -> None:
        super().__init__(executor, registry, **options)
        self._wakes = threading.Event()
        self._idle = threading.Event()
        self._leased: queue.SimpleQueue[LeasedCall | None] = queue.SimpleQueue()
        self._threads = 0
        self._loop: threading.Thread | None = None

    def start(self) -> Self:
        """Work in the background, and return at once."""
        # A daemon: a program that ends without `stop` must not hang; its flows come back when their leases expire.
        self._loop = threading.Thread(target=self.run, name=f"holdproof-worker-{self.spec.name}", daemon=True)
        self._executor.run(workers.enlist(self.spec, self._registry))
        self._beat_at = time.monotonic() + HEARTBEAT_S
        self._loop.start()
        return self

    def run(self) -> None:
        """Work here until `stop` is called by another thread or a signal handler."""
        if self._loop is None:
            self._executor.run(workers.enlist(self.spec, self._registry))
            self._beat_at = time.monotonic() + HEARTBEAT_S
        while not self._is_stopping:
            self._wakes.clear()
            since = self._database.topics.epoch
            try:
                look = self._one_look()
            except ClosedError:
                return
            except HoldproofError:
                _log.exception("a look for due flows failed; the next one comes soon")
                look = None
            if look is None or not (look.more and self._free() > 0):
                self._wait(since, self._idle_s(look))

    def _one_look(self) -> Look:
        if self._is_beat_due():
            self._executor.run(self._beat("RUNNING"))
        look: Look = self._executor.run(self._look())
        self._began(look)
        for leased in look.claim.leased:
            self._running[leased.run.lease.flow_id] = leased
            if self._threads < self.spec.concurrency:
                self._threads += 1
                name = f"holdproof-flow-{self._threads}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
            self._leased.put(leased)
        return look

    def _serve(self) -> None:
        while (leased := self._leased.get()) is not None:
            error: str | None = None
            try:
                error = self._executor.run(self._work(leased))
            except BaseException as stop:  # the flow is left to be recovered, the thread to the next one
                error = validation.error_text(stop)
            self._ended(leased, error)
            self._wakes.set()

    def _wait(self, since: int, seconds: float) -> None:
        topics = self._database.topics
        # Nothing to wait for where the topic was notified since the look.
        if seconds > 0 and topics.subscribe(self._topic, since, self._wakes.set):
            self._wakes.wait(seconds)
            topics.unsubscribe(self._topic, self._wakes.set)

    def stop(self, deadline_s: float = DRAIN_S) -> bool:
        """Take nothing new, wait for what runs, and give back what is unfinished after `deadline_s`.

        Returns whether everything was finished or suspended in time.
        """
        end = time.monotonic() + validation.seconds("deadline_s", deadline_s)
        self._is_stopping = True
        self._wakes.set()
        if self._loop is not None and self._loop is not threading.current_thread():
            self._loop.join(max(0.0, end - time.monotonic()))
        self._executor.run(self._beat("STOPPING"))
        while self._running and time.monotonic() < end:
            self._wakes.clear()
            if self._running:
                self._wakes.wait(end - time.monotonic())
        finished = not self._running
        self._executor.run(self._unfinished())
        for _ in range(self._threads):
            self._leased.put(None)
        self._executor.run(workers.delist(self.spec))
        return finished

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class AsyncWorker(WorkerBase[AsyncExecutor]):
    """A worker of the async client: each flow runs in a task of its own."""

    def __init__(self, executor: AsyncExecutor, registry: Mapping[str, RegisteredFunction], **options: Any) -> None:
        super().__init__(executor, registry, **options)
        self._wakes = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None
        self._enlisted = False

    async def start(self) -> Self:
        """Work in the background, and return at once."""
        await self._enlist()
        self._loop = asyncio.create_task(self.run(), name=f"holdproof-worker-{self.spec.name}")
        return self

    async def _enlist(self) -> None:
        if not self._enlisted:
            self._enlisted = True
            await self._executor.run(workers.enlist(self.spec, self._registry))
            self._beat_at = time.monotonic() + HEARTBEAT_S

    async def run(self) -> None:
        """Work here until `stop` is called by another task."""
        await self._enlist()
        while not self._is_stopping:
            self._wakes.clear()
            since = self._database.topics.epoch
            try:
                look = await self._one_look()
            except ClosedError:
                return
            except HoldproofError:
                _log.exception("a look for due flows failed; the next one comes soon")
                look = None
            if look is None or not (look.more and self._free() > 0):
                await self._wait(since, self._idle_s(look))

    async def _one_look(self) -> Look:
        if self._is_beat_due():
            await self._executor.run(self._beat("RUNNING"))
        look: Look = await self._executor.run(self._look())
        self._began(look)
        for leased in look.claim.leased:
            self._running[leased.run.lease.flow_id] = leased
            task = asyncio.create_task(self._serve(leased), name=f"holdproof-flow-{leased.run.lease.flow_id}")
            # The loop itself holds tasks weakly.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return look

    async def _serve(self, leased: LeasedCall) -> None:
        error: str | None = None
        try:
            error = await self._executor.run(self._work(leased))
        finally:
            self._ended(leased, error)
            self._wakes.set()

    async def _wait(self, since: int, seconds: float) -> None:
        topics = self._database.topics
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(self._wakes.set)

        if seconds > 0 and topics.subscribe(self._topic, since, wake):
            try:
                await asyncio.wait_for(self._wakes.wait(), seconds)
            except TimeoutError:
                pass
            finally:
                topics.unsubscribe(self._topic, wake)

    async def stop(self, deadline_s: float = DRAIN_S) -> bool:
        """Take nothing new, wait for what runs, and give back what is unfinished after `deadline_s`.

        Returns whether everything was finished or suspended in time.
        """
        end = time.monotonic() + validation.seconds("deadline_s", deadline_s)
        self._is_stopping = True
        self._wakes.set()
        if self._loop is not None:
            await asyncio.wait({self._loop}, timeout=max(0.0, end - time.monotonic()))
        await self._executor.run(self._beat("STOPPING"))
        pending = set(self._tasks)
        if pending:
            _, pending = await asyncio.wait(pending, timeout=max(0.0, end - time.monotonic()))
        await self._executor.run(self._unfinished())
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await self._executor.run(workers.delist(self.spec))
        return not pending

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
