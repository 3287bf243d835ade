"""What only PostgreSQL must do."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import closing
from typing import Any

import psycopg
import pytest

from holdfast import errors
from holdfast.db import Database, Hooks, Tx, open_database, sql
from holdfast.db.groups import GroupWriter
from holdfast.testing.schema import (
    ADD_COUNTER,
    ADD_ENTRY,
    BROKEN,
    GET_ENTRY,
    MIGRATIONS,
    SET_COUNTER,
    add,
    value,
)

_HANG_UP = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = '{}'"
_BUMP = sql("UPDATE counters SET value = value + 1 WHERE name = :name")


@pytest.fixture
def db(postgres_url: str) -> Iterator[Database]:
    with closing(open_database(postgres_url, migrations=MIGRATIONS, workers=1, readers=1)) as database:
        yield database


def _admin(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def _behind_a_hold(
    submit: Callable[..., "Future[Any]"],
    *jobs: Callable[[Tx], Any],
    holds: int = 1,
    before: Callable[[], None] = lambda: None,
) -> list[Any]:
    """Queue all jobs while every worker is held up, so that they share batches; their outcomes."""
    entered, go = threading.Semaphore(0), threading.Event()

    def hold(_: Tx) -> None:
        entered.release()
        assert go.wait(30)

    held = [submit(hold) for _ in range(holds)]
    for _ in range(holds):
        assert entered.acquire(timeout=30)
    futures = [submit(job) for job in jobs]
    before()
    go.set()
    wait([*held, *futures], 60)
    return [future.exception(0) or future.result(0) for future in futures]


def _make_careful(db: Database) -> None:
    """As if every worker had seen a failure a short while ago."""
    for worker in db.backend.writer.workers:
        setattr(worker, "_caution", 8)  # noqa: B010 (not part of what a worker shows)


# --- expectations --------------------------------------------------------------------------------------------------


def test_an_expectation_that_fails_is_charged_to_its_own_operation(db: Database) -> None:
    db.write(lambda tx: add(tx, "c", 5)).result()

    def guarded(tx: Tx) -> str:
        add(tx, "half")
        tx.execute(SET_COUNTER, name="nobody", value=1, expect=1)
        return "acknowledged"

    first, second = _behind_a_hold(db.write, guarded, lambda tx: value(tx, "c"))
    assert isinstance(first, errors.ExpectationError)
    assert second == 5
    assert db.read(lambda tx: value(tx, "half")).result() is None


def test_a_statement_first_used_after_a_failed_expectation_can_be_used_again(db: Database) -> None:
    def wrong(tx: Tx) -> None:
        tx.execute(SET_COUNTER, name="nobody", value=1, expect=1)
        tx.execute(ADD_COUNTER, name="c", value=1)

    with pytest.raises(errors.ExpectationError):
        db.write(wrong).result()
    assert db.write(lambda tx: add(tx, "c")).result() == "c"


def test_notes_of_a_pipelined_failure_do_not_reach_the_hooks(postgres_url: str) -> None:
    seen: list[str] = []
    hooks = Hooks(after_commit=[lambda notes: seen.extend(notes.get("name", []))])
    with closing(open_database(postgres_url, migrations=MIGRATIONS, workers=1, hooks=hooks)) as db:
        db.write(lambda tx: add(tx, "taken")).result()

        def noted(tx: Tx, name: str) -> None:
            tx.execute(ADD_COUNTER, name=name, value=0, expect=1)
            tx.note("name", name)

        _make_careful(db)
        outcomes = _behind_a_hold(db.write, *(lambda tx, n=n: noted(tx, n) for n in ("a", "taken", "b")))
        assert [type(outcome) for outcome in outcomes] == [type(None), errors.ConstraintError, type(None)]
        assert seen == ["a", "b"]


# --- workers that live long ----------------------------------------------------------------------------------------


def test_a_worker_idle_for_longer_than_marks_are_kept_can_still_commit(db: Database, postgres_url: str) -> None:
    db.write(lambda tx: add(tx, "c")).result()
    _admin(postgres_url, "UPDATE kernel.commit_marks SET at = now() - interval '8 days'")
    open_database(postgres_url, migrations=MIGRATIONS, workers=1).close()  # sweeps
    assert db.write(lambda tx: add(tx, "d")).result() == "d"


def test_a_finished_read_leaves_no_transaction_open(db: Database, postgres_url: str) -> None:
    assert db.read(lambda tx: value(tx, "c")).result() is None
    _admin(postgres_url, "SET lock_timeout = '3s'; ALTER TABLE kernel.counters ADD COLUMN extra TEXT")


def test_a_connection_lost_while_the_clock_is_set_anew_costs_a_group_nothing(db: Database, postgres_url: str) -> None:
    [worker] = db.backend.writer.workers
    assert isinstance(worker, GroupWriter)
    link: Any = worker.link
    begin = link.begin

    def cut(**options: bool) -> None:
        link.begin, link._clock._measured = begin, -1e9
        _admin(postgres_url, _HANG_UP.format(link._worker))
        begin(**options)

    def arm() -> None:
        link.begin = cut

    assert _behind_a_hold(db.write, lambda tx: add(tx, "a"), lambda tx: add(tx, "b"), before=arm) == ["a", "b"]


# --- deadlocks -----------------------------------------------------------------------------------------------------


def test_groups_that_lock_rows_in_opposite_order_all_finish(postgres_url: str) -> None:
    """Each operation touches one row; only the groups they share deadlock."""
    with closing(open_database(postgres_url, migrations=MIGRATIONS, workers=2)) as db:
        db.write(lambda tx: [add(tx, "a"), add(tx, "b"), add(tx, "c")]).result()
        barrier = threading.Barrier(2)

        def bump(name: str, *, meet: bool = False) -> Callable[[Tx], int]:
            met: list[bool] = []

            def run(tx: Tx) -> int:
                touched = tx.count(_BUMP, name=name)
                if meet and not met:
                    met.append(True)
                    barrier.wait(20)
                return touched

            return run

        _make_careful(db)
        jobs = (bump("a", meet=True), bump("b"), bump("c"), bump("b", meet=True), bump("a"), bump("c"))
        assert _behind_a_hold(db.write, *jobs, holds=2) == [1] * 6
        assert db.read(lambda tx: [value(tx, name) for name in "abc"]).result() == [2, 2, 2]


# --- reads ---------------------------------------------------------------------------------------------------------


def test_a_read_that_swallows_an_error_does_not_harm_the_read_after_it(db: Database) -> None:
    db.write(lambda tx: add(tx, "c", 5)).result()

    def careless(tx: Tx) -> str:
        try:
            tx.all(BROKEN)
        except errors.QueryError:
            return "never mind"
        return "no error"

    _, second = _behind_a_hold(db.read, careless, lambda tx: value(tx, "c"))
    assert second == 5


def test_reads_of_a_server_that_is_gone_share_one_wait(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait takes `connect_s`; a batch of a hundred must not take a hundred of them."""
    [reader] = db.backend.reader.workers
    connector, waits = vars(reader)["_connector"], list[str]()

    def gone(name: str, **_: Any) -> None:
        waits.append(name)
        raise errors.UnavailableError("cannot connect")

    def unplug(_: Tx) -> None:
        vars(reader)["_wire"].close()
        monkeypatch.setattr(connector, "wire", gone)

    outcomes = _behind_a_hold(db.read, unplug, *[lambda tx: value(tx, "c")] * 20)
    assert all(isinstance(outcome, errors.UnavailableError) for outcome in outcomes[1:])
    assert waits.count("holdfast-reader") <= 3


# --- settings and topics -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["bytea_output = 'escape'", "extra_float_digits = 0"])
def test_settings_of_the_database_do_not_change_what_is_read(postgres_url: str, setting: str) -> None:
    [(name,)] = _admin(postgres_url, "SELECT current_database()")
    _admin(postgres_url, f"ALTER DATABASE {name} SET {setting}")
    with closing(open_database(postgres_url, migrations=MIGRATIONS, workers=1)) as db:

        def put(tx: Tx) -> None:
            add(tx, "c")
            tx.execute(ADD_ENTRY, id="e", counter="c", amount=0.1 + 0.2, body=b"abcd", data="{}", at=tx.now)

        db.write(put).result()
        row = db.read(lambda tx: tx.one(GET_ENTRY, id="e")).result()
        assert row is not None
        assert row[2:4] == (0.1 + 0.2, b"abcd")


@pytest.mark.parametrize("topic", ["x" * 9_000, "two\nlines"], ids=["long", "two lines"])
def test_a_topic_of_any_shape_wakes_a_waiter_elsewhere(db: Database, postgres_url: str, topic: str) -> None:
    def announce(tx: Tx) -> None:
        tx.count(SET_COUNTER, name="c", value=1)
        tx.notify(topic)

    with closing(open_database(postgres_url, migrations=MIGRATIONS, workers=1)) as other:
        for _ in range(50):  # the other's ear may open a moment later
            bell = threading.Event()
            assert other.topics.subscribe(topic, other.topics.epoch, bell.set)
            db.write(announce).result()
            if bell.wait(0.1):
                return
            other.topics.unsubscribe(topic, bell.set)
        pytest.fail("never woken")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:se cret@localhost/db",
        "postgresql://u:secret%zz@localhost/db",
        "postgresql://u:secret%00@localhost/db",
        "postgresql://u:secret@[::1/db",
    ],
)
def test_a_url_that_cannot_be_understood_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        open_database(url)
    assert "cret" not in str(caught.value)
