"""The server and the peer on PostgreSQL: psycopg 3 with its pool, one round trip per statement."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg_pool import ConnectionPool

from bench import workload
from bench.measurement import Contestant, Meter
from bench.threads import threads
from bench.workload import Statements, StepMaker
from harness.servers import Postgres

POOL = 16
_STATEMENTS = Statements("%s")
_MAKERS: dict[str, StepMaker] = {"txn": _STATEMENTS.txn, "unit": _STATEMENTS.unit}


class Server:
    """A real PostgreSQL server in a temporary folder, with new databases on demand."""

    def __init__(self) -> None:
        self._server = Postgres()
        self._numbers = itertools.count()
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                value = connection.execute(f"SHOW {setting}").fetchone()
                assert value == ("on",), f"the server would not be durable: {setting} is {value}"

    def url(self, database: str) -> str:
        """The URL of a database of this server."""
        return self._server.url(database)

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """The URL of an empty database, dropped afterwards; the disk is quiet when it is handed out."""
        name = f"bench_{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
            connection.execute("CHECKPOINT")
            try:
                yield self.url(name)
            finally:
                connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def stop(self) -> None:
        """Stop the server."""
        self._server.stop()


@contextmanager
def server() -> Iterator[Server]:
    """A running server, stopped and removed at the end."""
    running = Server()
    try:
        yield running
    finally:
        running.stop()


def fill(url: str) -> None:
    """The tables and rows of the workload."""
    with psycopg.connect(url) as connection:
        connection.execute(workload.plain("postgres"))
        connection.cursor().executemany(_STATEMENTS.fill_accounts, workload.account_rows())


def naive(running: Server, work: str, callers: int) -> Contestant:
    """Threads over a pool, an ordinary transaction per unit."""
    make = _MAKERS[work]

    def caller(pool: ConnectionPool, meter: Meter, first: int) -> None:
        for number in itertools.count(first, callers):
            with pool.connection() as connection:
                for text, parameters in make(number):
                    cursor = connection.execute(text, parameters)
                    if text.startswith("SELECT"):
                        cursor.fetchone()
            if not meter.done():
                return

    def sample(meter: Meter) -> None:
        with running.fresh() as url:
            fill(url)
            size = min(callers, POOL)
            with ConnectionPool(url, min_size=size, max_size=size, open=True, timeout=60) as pool:
                pool.wait()
                meter.start()
                threads(callers, lambda first: caller(pool, meter, first))

    return Contestant("naive", callers, sample)
