"""The pure parts of storage: the machine, what is under way, what may be asked, what is remembered."""

import threading
from pathlib import Path

import apsw
import pytest

from holdproof import errors
from holdproof.config import Paths
from holdproof.db import open_database
from holdproof.db.sql import refusal
from holdproof.db.sqlite.authorizer import allows
from holdproof.model.storage import STORAGE_POLYNOMIAL, StorageOp, StorageState
from holdproof.storage import degraded
from holdproof.storage.executors import OperationTracker

EDGES = {
    (StorageState.IDLE, StorageOp.READ): StorageState.READING,
    (StorageState.IDLE, StorageOp.WRITE): StorageState.WRITING,
    (StorageState.IDLE, StorageOp.MIGRATE): StorageState.MIGRATING,
    (StorageState.IDLE, StorageOp.ERROR): StorageState.RECOVERING,
    (StorageState.READING, StorageOp.DONE): StorageState.IDLE,
    (StorageState.WRITING, StorageOp.DONE): StorageState.IDLE,
    (StorageState.MIGRATING, StorageOp.DONE): StorageState.IDLE,
    (StorageState.RECOVERING, StorageOp.RECOVERED): StorageState.IDLE,
}


def test_the_machine_has_the_edges_of_the_seed_and_no_others() -> None:
    assert STORAGE_POLYNOMIAL.positions == frozenset(StorageState)
    for state in StorageState:
        assert STORAGE_POLYNOMIAL.directions(state) == {op for at, op in EDGES if at is state}
        for op in StorageOp:
            if (state, op) in EDGES:
                assert STORAGE_POLYNOMIAL.transition(state, op) is EDGES[state, op]
            else:
                with pytest.raises(errors.IllegalTransitionError):
                    STORAGE_POLYNOMIAL.transition(state, op)


def test_reads_and_writes_run_side_by_side() -> None:
    tracker = OperationTracker()
    with tracker.operation(StorageOp.READ), tracker.operation(StorageOp.READ), tracker.operation(StorageOp.WRITE):
        assert tracker.counts() == {"reading": 2, "writing": 1}
    assert tracker.counts() == {}


@pytest.mark.parametrize("whole", [StorageOp.MIGRATE, StorageOp.ERROR])
def test_what_concerns_the_whole_storage_runs_alone_and_ends_even_by_an_error(whole: StorageOp) -> None:
    tracker = OperationTracker()
    with pytest.raises(ZeroDivisionError), tracker.operation(whole):  # noqa: PT012
        for op in (StorageOp.READ, StorageOp.WRITE, StorageOp.MIGRATE, StorageOp.ERROR):
            with pytest.raises(errors.StorageBusyError):
                tracker.begin(op)
        raise ZeroDivisionError
    with tracker.operation(StorageOp.WRITE):
        assert tracker.counts() == {"writing": 1}


def test_of_many_threads_one_migrates() -> None:
    tracker, won, barrier = OperationTracker(), list[int](), threading.Barrier(8)

    def migrate(number: int) -> None:
        barrier.wait(30)
        try:
            tracker.begin(StorageOp.MIGRATE)
        except errors.StorageBusyError:
            return
        won.append(number)

    threads = [threading.Thread(target=migrate, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(won) == 1


ASKED = """
SELECT 1
WITH x AS (SELECT 1) SELECT * FROM x
CREATE TABLE temp_things (x INT)
INSERT INTO t VALUES ('CREATE TEMP TABLE')
TRUNCATE t
REPLACE INTO t VALUES (1)
/* why */ select 1
"""
REFUSED = """
COMMIT
/* */ COMMIT
/* /* */ */ COMMIT
END
SET x = 1
RESET ALL
DISCARD ALL
DO $$ $$
CALL f()
COPY t TO 'x'
LOAD 'x'
LISTEN x
PREPARE x AS SELECT 1
DEALLOCATE ALL
VACUUM
GRANT x TO y
ATTACH 'x' AS y
CREATE TEMP TABLE t (x INT)
create  temporary view v AS SELECT 1
CREATE LOCAL TEMPORARY TABLE t (x INT)
CREATE OR REPLACE TEMP VIEW v AS SELECT 1
SELECT 1 INTO TEMP t
ALTER ROLE CURRENT_USER SET work_mem = 1
alter /* quietly */ user x PASSWORD 'y'
CREATE USER x
"""


@pytest.mark.parametrize("statement", ASKED.strip().split("\n"))
def test_what_services_need_may_be_asked(statement: str) -> None:
    assert refusal(statement) is None


@pytest.mark.parametrize("statement", ["", *REFUSED.strip().split("\n")])
def test_what_is_not_theirs_may_not(statement: str) -> None:
    assert refusal(statement) is not None


def test_the_guard_of_sqlite_keeps_the_ledger_however_it_is_spelled() -> None:
    for name in ("schema_migrations", "SCHEMA_MIGRATIONS", "Schema_Migrations"):
        assert not allows(apsw.SQLITE_DELETE, name, None)
        assert not allows(apsw.SQLITE_ALTER_TABLE, "main", name)
    assert allows(apsw.SQLITE_READ, "schema_migrations", "name")
    assert allows(apsw.SQLITE_DELETE, "agent_state", None)
    assert not allows(apsw.SQLITE_CREATE_VTABLE, "x", "dbstat")


def test_a_database_is_closed_with_its_last_handle() -> None:
    first = open_database(":memory:", space="telemetry")
    second = first.share()
    first.close()
    first.close()
    assert first.closed
    assert not second.closed
    assert second.read(lambda tx: tx.now).result()
    second.close()
    with pytest.raises(errors.ClosedError):
        second.read(lambda tx: tx.now)


def test_what_was_in_memory_is_remembered_where_it_can_be(tmp_path: Path) -> None:
    paths = Paths.find(tmp_path / "home")
    period = {"relational": {"since": "2026-01-01T00:00:00Z", "reason": "full"}}
    assert degraded.read(paths) == {}
    assert degraded.write(paths, period)
    assert degraded.read(paths) == period
    assert degraded.write(paths, {})
    assert not paths.degraded.exists()
    paths.state.rmdir()
    paths.state.write_text("in the way")
    assert degraded.write(paths, period)
    assert (paths.cache / "degraded.json").exists()
    assert degraded.read(paths) == period


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}', '{"a": {}}', "\0"])
def test_a_memory_that_cannot_be_read_is_left_out(tmp_path: Path, text: str) -> None:
    paths = Paths.find(tmp_path)
    paths.create()
    paths.degraded.write_text(text)
    assert degraded.read(paths) == {}
