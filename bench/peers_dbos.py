"""DBOS: the same flows as its workflows with steps, each coroutine-based, which is the fastest of its ways here.

It keeps a step by one row when the step has ended; there is no log. On SQLite `dbos` has the rollback journal that it
makes by itself, `dbos, WAL` the write-ahead log that everybody else here has; both are synchronous=FULL.
Not a dependency: it takes part where it is installed (`pip install dbos`).
"""

import asyncio
import importlib
import importlib.util
import sqlite3  # noqa: TID251 -- a peer, not the product
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

from bench.durable_steps import STEPS, trivial
from bench.measurement import Contestant, Meter
from bench.peers_postgres import Server

Url = Callable[[], AbstractContextManager[str]]


def present() -> bool:
    """Whether it can take part."""
    found = importlib.util.find_spec("dbos") is not None
    if not found and sys.stderr.isatty():
        sys.stderr.write("dbos is not installed (pip install dbos): it takes no part\n")
    return found


def on_sqlite() -> list[tuple[str, Url]]:
    """Names and places of its files: as they come, and with a write-ahead log."""
    return [("dbos", lambda: _file("delete")), ("dbos, WAL", lambda: _file("wal"))]


@contextmanager
def _file(journal: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder, "dbos.db")
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA journal_mode={journal}")
        yield f"sqlite:///{path}"


def on_postgres(running: Server) -> list[tuple[str, Url]]:
    """The name and place of its database."""
    return [("dbos", running.fresh)]


def steps(name: str, callers: int, place: Url) -> Contestant:
    """That many workflows at once; a step counts once its result is durable."""

    async def all_callers(flow: Any, meter: Meter) -> None:
        async def caller() -> None:
            while await flow():
                pass

        meter.start()
        await asyncio.gather(*(caller() for _ in range(callers)))

    def sample(meter: Meter) -> None:
        with place() as url, _launched(url, meter) as flow:
            asyncio.run(all_callers(flow, meter))

    return Contestant(name, callers, sample)


@contextmanager
def _launched(url: str, meter: Meter) -> Iterator[Any]:
    """The workflow, as registered with a fresh runtime on that database."""
    dbos: Any = importlib.import_module("dbos").DBOS
    step = dbos.step()(trivial)

    async def flow() -> bool:
        for number in range(STEPS):
            await step(number)
            if not meter.done():
                return False
        return True

    workflow = dbos.workflow()(flow)
    dbos(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    dbos.launch()
    try:
        yield workflow
    finally:
        dbos.destroy(destroy_registry=True)
