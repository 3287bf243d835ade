"""The peers for point reads: one row by primary key out of 10,000."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import aiosqlite
import apsw

from bench.measurement import Contestant, Meter
from bench.peers_sqlite import fresh
from bench.workload import READ_ROWS, Statements

STRIDE = 7_919
_READ = Statements().read
Reader = Callable[[aiosqlite.Connection, int], Awaitable[object]]


def keys(first: int) -> "itertools.cycle[int]":
    """Keys in an order that no page cache likes."""
    return itertools.cycle((first + step * STRIDE) % READ_ROWS for step in range(READ_ROWS))


def inline() -> Contestant:
    """The ceiling: apsw in a plain loop, no thread, no loop."""

    def sample(meter: Meter) -> None:
        with fresh() as path:
            connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
            execute = connection.cursor().execute
            meter.start()
            for key in keys(0):
                execute(_READ, (key,)).fetchall()
                if not meter.done():
                    break
            connection.close()

    return Contestant("ceiling", 1, sample)


async def _cursor(connection: aiosqlite.Connection, key: int) -> object:
    async with connection.execute(_READ, (key,)) as cursor:
        return await cursor.fetchone()


async def _fetchall(connection: aiosqlite.Connection, key: int) -> object:
    return await connection.execute_fetchall(_READ, (key,))


def aio(callers: int) -> Contestant:
    """aiosqlite as its documentation shows it."""
    return Contestant("aiosqlite", callers, _aio_sample(_cursor, callers))


def aio_fetchall(callers: int) -> Contestant:
    """aiosqlite's one-hop shortcut."""
    return Contestant("aiosqlite execute_fetchall", callers, _aio_sample(_fetchall, callers))


def _aio_sample(read: Reader, callers: int) -> Callable[[Meter], None]:
    async def caller(connection: aiosqlite.Connection, meter: Meter, first: int) -> None:
        for key in keys(first):
            await read(connection, key)
            if not meter.done():
                return

    async def work(path: str, meter: Meter) -> None:
        async with aiosqlite.connect(path) as connection:
            meter.start()
            await asyncio.gather(*(caller(connection, meter, first) for first in range(callers)))

    def sample(meter: Meter) -> None:
        with fresh() as path:
            asyncio.run(work(path, meter))

    return sample
