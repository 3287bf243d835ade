"""Workflow engines behind one interface, so that a benchmark of workflows is written once and run by each of them.

A workflow is an `async def` whose first parameter runs its steps. DBOS is not a dependency: it takes part where it is
installed (extra `bench`), with coroutines, the fastest of its ways here. Its queues, and who waits for a result,
look a hundred times a second, by default once. On SQLite `dbos` has the rollback journal
that it makes by itself, `dbos, WAL` the write-ahead log that everybody else here has; both are synchronous=FULL.
"""

import asyncio
import importlib
import importlib.util
import sqlite3  # noqa: TID251 -- a peer, not the product
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import holdproof
from bench import workload as w
from bench.fresh_stores import Place, Where, in_a_folder, on_a_server
from bench.peers_postgres import Server

Step = Callable[..., Awaitable[Any]]
"""`await step(function, *arguments)`: run the function as a step, and give its durable result."""
Workflow = Callable[..., Awaitable[Any]]
"""`async def workflow(step, *arguments)`."""
Call = Callable[..., Awaitable[Any]]
"""`await call(*arguments)`: run the workflow here, to its end."""

RECOVERERS: Final = 64
"""How many flows a recovering process of ours runs at once."""
QUEUED: Final = 64
"""How many queued flows a worker of ours runs at once."""
_RECOVER_LIMIT: Final = 100
_POLLING_S: Final = 0.01
_COMPLETION_TIMEOUT_S: Final = 60


class Session(Protocol):
    """An engine at work in this process, with one workflow."""

    call: Call

    async def recover(self) -> None:
        """Start what a killed process left behind; return when it is under way or has ended."""

    def queue(self) -> AbstractAsyncContextManager[Call]:
        """A queue that this process works on; the call enqueues the workflow, and returns when it has ended."""


class Engine(Protocol):
    """A way to run workflows durably, on one kind of database."""

    @property
    def name(self) -> str:
        """How contestants are called."""

    @property
    def kind(self) -> str:
        """What `by_kind` finds it by, in another process."""

    @property
    def lease_s(self) -> float:
        """How long after a kill nobody may continue a flow."""

    def place(self) -> AbstractContextManager[Where]:
        """A fresh database, removed afterwards."""

    def open(self, where: Where, workflow: Workflow) -> AbstractAsyncContextManager[Session]:
        """The engine on that database, with the workflow registered."""


# --- Holdproof ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Own:
    """Holdproof, through its async client."""

    fresh: Place = in_a_folder
    lease_s: float = 30.0
    name: str = "holdproof"
    kind: str = "holdproof"

    def place(self) -> AbstractContextManager[Where]:
        """A fresh store."""
        return self.fresh()

    @asynccontextmanager
    async def open(self, where: Where, workflow: Workflow) -> AsyncIterator[Session]:
        """An open store, with the workflow as a function of its agent."""
        home, url = where
        async with holdproof.open(home, url) as store:
            await store.agents.register(w.AGENT, version="1")
            yield _OwnSession(store, workflow, self.lease_s)


class _OwnSession:
    def __init__(self, store: holdproof.Holdproof, workflow: Workflow, lease_s: float) -> None:
        self._store = store

        async def run(flow: holdproof.OpenFlow, *arguments: Any) -> Any:
            async def step(function: Callable[..., Awaitable[Any]], *values: Any) -> Any:
                return await flow.step(function.__name__, function, *values)

            return await workflow(step, *arguments)

        self._function = store.flow(name=workflow.__name__, agent=w.AGENT, lease_s=lease_s)(run)
        self.call: Call = self._function

    @asynccontextmanager
    async def queue(self) -> AsyncIterator[Call]:
        """A queue without limits, and a worker."""

        async def call(*arguments: Any) -> Any:
            handle = await self._function.enqueue(*arguments)
            return await handle.result()

        async with self._store.worker(concurrency=QUEUED):
            yield call

    async def recover(self) -> None:
        """Run what is left behind, many flows at once."""
        await asyncio.gather(*(self._recover_some() for _ in range(RECOVERERS)))

    async def _recover_some(self) -> None:
        while (await self._store.flows.recover(limit=_RECOVER_LIMIT)).reruns:
            pass


# --- DBOS --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dbos:
    """DBOS: a step is one row, written when it has ended; there is no log, and no arguments of steps."""

    name: str
    fresh: Place
    kind: str = "dbos"
    lease_s: float = 0.0  # It has no leases: who starts under the same name continues at once.

    def place(self) -> AbstractContextManager[Where]:
        """A fresh database."""
        return self.fresh()

    @asynccontextmanager
    async def open(self, where: Where, workflow: Workflow) -> AsyncIterator[Session]:
        """A launched runtime; launching it recovers what is left behind, in the background."""
        dbos: Any = importlib.import_module("dbos").DBOS
        session = _DbosSession(dbos, workflow)
        _, url = where
        settings = {"name": "bench", "system_database_url": url, "log_level": "ERROR", "application_version": "1"}
        dbos(config=settings)
        # Launched in the loop it would run recovered workflows there; in a thread it runs them on a loop of its own.
        await asyncio.to_thread(dbos.launch)
        try:
            yield session
        finally:
            # A workflow that has not ended would retry for ever to record its end in a database that is gone.
            await asyncio.to_thread(
                dbos.destroy, destroy_registry=True, workflow_completion_timeout_sec=_COMPLETION_TIMEOUT_S
            )


class _DbosSession:
    def __init__(self, dbos: Any, workflow: Workflow) -> None:
        steps: dict[Any, Any] = {}

        async def step(function: Callable[..., Awaitable[Any]], *values: Any) -> Any:
            if function not in steps:
                steps[function] = dbos.step()(function)
            return await steps[function](*values)

        async def run(*arguments: Any) -> Any:
            return await workflow(step, *arguments)

        self._dbos = dbos
        # A killed process's workflows are found again by name.
        self.call: Call = dbos.workflow(name=workflow.__name__)(run)

    @asynccontextmanager
    async def queue(self) -> AsyncIterator[Call]:
        """A queue without limits, which the launched runtime works on."""
        queue = await asyncio.to_thread(self._dbos.register_queue, "bench", polling_interval_sec=_POLLING_S)

        async def call(*arguments: Any) -> Any:
            handle = await queue.enqueue_async(self.call, *arguments)
            return await handle.get_result(polling_interval_sec=_POLLING_S)

        yield call

    async def recover(self) -> None:
        """Nothing to do: launching it began the recovery."""


def has_dbos() -> bool:
    """Whether it can take part."""
    installed = importlib.util.find_spec("dbos") is not None
    if not installed and sys.stderr.isatty():
        sys.stderr.write("dbos is not installed (pip install -e '.[bench]'): it takes no part\n")
    return installed


@contextmanager
def _dbos_file(journal: str) -> Iterator[Where]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder, "dbos.db")
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA journal_mode={journal}")
        yield folder, f"sqlite:///{path}"


# --- who takes part ----------------------------------------------------------------------------------------------


def on_sqlite() -> list[Engine]:
    """Everybody on SQLite, peers first."""
    peers: list[Engine] = [Dbos("dbos", partial(_dbos_file, "delete")), Dbos("dbos, WAL", partial(_dbos_file, "wal"))]
    return [*(peers if has_dbos() else []), Own()]


def on_postgres(running: Server) -> list[Engine]:
    """Everybody on PostgreSQL, peers first."""
    fresh = partial(on_a_server, running)
    peers: list[Engine] = [Dbos("dbos", fresh)]
    return [*(peers if has_dbos() else []), Own(fresh)]


def by_kind(kind: str, lease_s: float) -> Engine:
    """The engine of that kind, for a process that is told where its database is."""
    return Own(lease_s=lease_s) if kind == "holdproof" else Dbos(kind, in_a_folder)
