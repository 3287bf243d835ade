"""The peers on SQLite, each written the way its users write it; all durable: WAL, synchronous=FULL."""

import asyncio
import itertools
import sqlite3  # noqa: TID251 -- a peer, not the product
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiosqlite
import apsw

from bench import workload
from bench.measurement import Contestant, Meter
from bench.workload import Statements, Step, StepMaker

SETTINGS = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA foreign_keys=ON")
GROUP = 100
Execute = Callable[..., Any]
_STATEMENTS = Statements()
_MAKERS: dict[str, StepMaker] = {"txn": _STATEMENTS.txn, "unit": _STATEMENTS.unit, "logged": _STATEMENTS.logged}


@contextmanager
def fresh() -> Iterator[str]:
    """The path of a new database with the tables and rows of the workload."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = str(Path(folder, "bench.db"))
        connection = sqlite3.connect(path)
        connection.execute(SETTINGS[0])
        connection.executescript(workload.plain("sqlite"))
        connection.executemany(_STATEMENTS.fill_accounts, workload.account_rows())
        connection.executemany(_STATEMENTS.fill_items, workload.item_rows())
        connection.commit()
        connection.close()
        yield path


def raw(work: str) -> Contestant:
    """The standard library, one thread, one commit per unit."""
    return Contestant("raw sqlite3 commit-each", 1, _raw_sample(_MAKERS[work], _one_commit))


def raw_each(work: str) -> Contestant:
    """The standard library, one thread, every statement its own commit: eight for a decision."""
    return Contestant("raw sqlite3 8 commits", 1, _raw_sample(_MAKERS[work], _run))


def _raw_sample(make: StepMaker, act: Callable[[Execute, list[Step]], None]) -> Callable[[Meter], None]:
    def sample(meter: Meter) -> None:
        with fresh() as path:
            connection = sqlite3.connect(path, isolation_level=None)
            for setting in SETTINGS:
                connection.execute(setting)
            meter.start()
            for number in itertools.count():
                act(connection.execute, make(number))
                if not meter.done():
                    break
            connection.close()

    return sample


def _one_commit(execute: Execute, steps: list[Step]) -> None:
    execute("BEGIN IMMEDIATE")
    _run(execute, steps)
    execute("COMMIT")


def _run(execute: Execute, steps: list[Step]) -> None:
    """The statements, nothing more: an answer is fetched only where there is one."""
    for text, parameters in steps:
        cursor = execute(text, parameters)
        if text.startswith("SELECT"):
            cursor.fetchall()


def ceiling(work: str) -> Contestant:
    """The most this machine can do: apsw, prepared statements, 100 units per commit, nothing above it."""
    make = _MAKERS[work]

    def sample(meter: Meter) -> None:
        with fresh() as path:
            connection = open_apsw(path)
            cursor = connection.cursor()
            execute, numbers = cursor.execute, itertools.count()
            meter.start()
            while True:
                execute("BEGIN IMMEDIATE")
                for number in itertools.islice(numbers, GROUP):
                    _run(execute, make(number))
                execute("COMMIT")
                if not meter.done(GROUP):
                    break
            connection.close()

    return Contestant("ceiling", 1, sample)


def open_apsw(path: str) -> apsw.Connection:
    """A connection with the settings of every peer."""
    connection = apsw.Connection(path)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # as the product: a join is not planned anew each time
    for setting in SETTINGS:
        connection.execute(setting)
    return connection


def aio(work: str, callers: int) -> Contestant:
    """aiosqlite: one connection shared under a lock, one transaction per unit."""
    return Contestant("aiosqlite", callers, _aio_sample(_MAKERS[work], callers, each=False))


def aio_each(work: str, callers: int) -> Contestant:
    """aiosqlite with every statement in its own transaction, the naive way to keep a decision."""
    return Contestant("aiosqlite 8 transactions", callers, _aio_sample(_MAKERS[work], callers, each=True))


def _aio_sample(make: StepMaker, callers: int, *, each: bool) -> Callable[[Meter], None]:
    async def caller(connection: aiosqlite.Connection, lock: asyncio.Lock, meter: Meter, first: int) -> None:
        for number in itertools.count(first, callers):
            async with lock:
                for text, parameters in make(number):
                    cursor = await connection.execute(text, parameters)
                    if text.startswith("SELECT"):
                        await cursor.fetchone()
                    if each:
                        await connection.commit()
                if not each:
                    await connection.commit()
            if not meter.done():
                return

    async def work(path: str, meter: Meter) -> None:
        async with aiosqlite.connect(path) as connection:
            for setting in SETTINGS:
                await connection.execute(setting)
            lock = asyncio.Lock()
            meter.start()
            await asyncio.gather(*(caller(connection, lock, meter, first) for first in range(callers)))

    def sample(meter: Meter) -> None:
        with fresh() as path:
            asyncio.run(work(path, meter))

    return sample
