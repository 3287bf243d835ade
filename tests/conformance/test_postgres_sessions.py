"""How many sessions an open database uses on PostgreSQL, and what one that connects late must find out first."""

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

from holdproof import errors
from holdproof.db import Database, Tx, open_database
from holdproof.db.clock import system_random
from holdproof.db.postgres.connection import PostgresConnection, PostgresTx, ServerClock
from holdproof.testing.schema import MIGRATIONS, add

_MARKS = "SELECT worker, mark FROM kernel.commit_marks WHERE starts_with(worker, 'holdproof-')"


def _admin(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def _write_at_once(db: Database, count: int) -> None:
    """Let so many transactions wait for each other, so that each needs a worker of its own."""
    barrier = threading.Barrier(count)
    futures = [db.write(_meeting(barrier, number)) for number in range(count)]
    for future in futures:
        future.result(60)


def _meeting(barrier: threading.Barrier, number: int) -> Callable[[Tx], str]:
    def run(tx: Tx) -> str:
        barrier.wait(60)
        return add(tx, f"c{number}")

    return run


def test_a_worker_connects_when_it_is_first_needed(empty_postgres_url: str) -> None:
    with closing(open_database(empty_postgres_url, migrations=MIGRATIONS, workers=12)) as db:
        before = _admin(empty_postgres_url, _MARKS)
        assert len(before) < 12, "opening has fewer transactions than that"
        _write_at_once(db, 12)
        after = _admin(empty_postgres_url, _MARKS)
        assert len(after) == 12
        assert all(mark for _, mark in after), "each commit left its mark"


def test_a_worker_that_connects_late_finds_that_a_neighbours_commit_was_lost(empty_postgres_url: str) -> None:
    """The server was set back before its first connection: nothing is written that would not continue the history."""
    with closing(open_database(empty_postgres_url, migrations=MIGRATIONS, workers=1)) as db:
        db.write(lambda tx: add(tx, "acknowledged")).result()
        backend: Any = db.backend
        mark = backend._borrower._marks.new_worker()
        late = PostgresConnection(backend._connector, PostgresTx(ServerClock(), system_random), ServerClock(), mark)
        late.mark_commits()
        _admin(empty_postgres_url, "UPDATE kernel.commit_marks SET mark = 'an older one' WHERE mark <> ''")
        with closing(late), pytest.raises(errors.HistoryLostError):
            late.connect()
        with pytest.raises(errors.HistoryLostError):
            db.write(lambda tx: add(tx, "later")).result()
    assert _admin(empty_postgres_url, "SELECT name FROM kernel.counters") == [("acknowledged",)]
