"""What only PostgreSQL must do."""

import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import closing
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from harness.servers import Postgres
from holdproof import errors
from holdproof.db import Database, Hooks, Tx, open_database, sql
from holdproof.db.group_commit import GroupWriter
from holdproof.db.postgres.wire import Wire
from holdproof.testing.schema import (
    ADD_COUNTER,
    ADD_ENTRY,
    BROKEN,
    GET_ENTRY,
    MIGRATIONS,
    SET_COUNTER,
    TAKE,
    add,
    enter,
    entries,
    value,
)

_HANG_UP = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = '{}'"
_BUMP = sql("UPDATE counters SET value = value + 1 WHERE name = :name")


@pytest.fixture
def db(empty_postgres_url: str) -> Iterator[Database]:
    with closing(open_database(empty_postgres_url, migrations=MIGRATIONS, workers=1, readers=1)) as database:
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


def test_a_statement_first_used_after_a_refusal_of_a_guard_can_be_used_again(db: Database) -> None:
    def refused(tx: Tx) -> None:
        tx.guard(SET_COUNTER, errors.ConflictError, name="nobody", value=1)
        tx.execute(ADD_COUNTER, name="c", value=1)

    for _ in range(5):  # over all writers
        with pytest.raises(errors.ConflictError):
            db.write(refused).result()
    for number in range(20):
        assert db.write(partial(add, name=f"c{number}")).result() == f"c{number}"


def test_notes_of_a_pipelined_failure_do_not_reach_the_hooks(empty_postgres_url: str) -> None:
    seen: list[str] = []
    hooks = Hooks(after_commit=[lambda notes: seen.extend(notes.get("name", []))])
    with closing(open_database(empty_postgres_url, migrations=MIGRATIONS, workers=1, hooks=hooks)) as db:
        db.write(lambda tx: add(tx, "taken")).result()

        def noted(tx: Tx, name: str) -> None:
            tx.execute(ADD_COUNTER, name=name, value=0, expect=1)
            tx.note("name", name)

        _make_careful(db)
        outcomes = _behind_a_hold(db.write, *(lambda tx, n=n: noted(tx, n) for n in ("a", "taken", "b")))
        assert [type(outcome) for outcome in outcomes] == [type(None), errors.ConstraintError, type(None)]
        assert seen == ["a", "b"]


# --- workers that live long ----------------------------------------------------------------------------------------


def test_a_worker_idle_for_longer_than_marks_are_kept_can_still_commit(db: Database, empty_postgres_url: str) -> None:
    db.write(lambda tx: add(tx, "c")).result()
    _admin(empty_postgres_url, "UPDATE kernel.commit_marks SET at = now() - interval '8 days'")
    open_database(empty_postgres_url, migrations=MIGRATIONS, workers=1).close()  # sweeps
    assert db.write(lambda tx: add(tx, "d")).result() == "d"


def test_a_finished_read_leaves_no_transaction_open(db: Database, empty_postgres_url: str) -> None:
    assert db.read(lambda tx: value(tx, "c")).result() is None
    _admin(empty_postgres_url, "SET lock_timeout = '3s'; ALTER TABLE kernel.counters ADD COLUMN extra TEXT")


def test_a_connection_lost_while_the_clock_is_set_anew_costs_a_group_nothing(
    db: Database, empty_postgres_url: str
) -> None:
    [worker] = db.backend.writer.workers
    assert isinstance(worker, GroupWriter)
    link: Any = worker.connection
    begin = link.begin

    def cut(**options: bool) -> None:
        link.begin, link._clock._measured = begin, -1e9
        _admin(empty_postgres_url, _HANG_UP.format(link._worker))
        begin(**options)

    def arm() -> None:
        link.begin = cut

    assert _behind_a_hold(db.write, lambda tx: add(tx, "a"), lambda tx: add(tx, "b"), before=arm) == ["a", "b"]


# --- deadlocks -----------------------------------------------------------------------------------------------------


def test_groups_that_lock_rows_in_opposite_order_all_finish(empty_postgres_url: str) -> None:
    """Each operation touches one row; only the groups they share deadlock."""
    with closing(open_database(empty_postgres_url, migrations=MIGRATIONS, workers=2)) as db:
        db.write(lambda tx: [add(tx, "a"), add(tx, "b"), add(tx, "c")]).result()
        barrier = threading.Barrier(2)

        def bump(name: str, *, meet: bool = False) -> Callable[[Tx], int]:
            met: list[bool] = []

            def run(tx: Tx) -> int:
                touched = tx.count(_BUMP, name=name)
                if meet and not met:
                    met.append(True)
                    barrier.wait(60)
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
    assert waits.count("holdproof-reader") <= 3


# --- settings and topics -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["bytea_output = 'escape'", "extra_float_digits = 0"])
def test_settings_of_the_database_do_not_change_what_is_read(empty_postgres_url: str, setting: str) -> None:
    [(name,)] = _admin(empty_postgres_url, "SELECT current_database()")
    _admin(empty_postgres_url, f"ALTER DATABASE {name} SET {setting}")
    with closing(open_database(empty_postgres_url, migrations=MIGRATIONS, workers=1)) as db:

        def put(tx: Tx) -> None:
            add(tx, "c")
            tx.execute(ADD_ENTRY, id="e", counter="c", amount=0.1 + 0.2, body=b"abcd", data="{}", at=tx.now)

        db.write(put).result()
        row = db.read(lambda tx: tx.one(GET_ENTRY, id="e")).result()
        assert row is not None
        assert row[2:4] == (0.1 + 0.2, b"abcd")


@pytest.mark.parametrize("topic", ["x" * 9_000, "two\nlines"], ids=["long", "two lines"])
def test_a_topic_of_any_shape_wakes_a_waiter_elsewhere(db: Database, empty_postgres_url: str, topic: str) -> None:
    def announce(tx: Tx) -> None:
        tx.count(SET_COUNTER, name="c", value=1)
        tx.notify(topic)

    with closing(open_database(empty_postgres_url, migrations=MIGRATIONS, workers=1)) as other:
        for _ in range(50):  # the other's ear may open a moment later
            bell = threading.Event()
            assert other.topics.subscribe(topic, other.topics.epoch, bell.set)
            db.write(announce).result()
            if bell.wait(0.1):
                return
            other.topics.unsubscribe(topic, bell.set)
        pytest.fail("never woken")


def test_a_closed_database_leaves_nobody_listening(empty_postgres_url: str) -> None:
    def listeners() -> set[int | None]:
        return {each.ident for each in threading.enumerate() if each.name == "holdproof-listener"}

    before = listeners()
    with closing(open_database(empty_postgres_url, migrations=MIGRATIONS, workers=1, readers=1)):
        assert len(listeners() - before) == 1
    assert not listeners() - before


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


# --- a server that restarts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_in_the_middle_costs_no_caller_anything(
    postgres: Postgres, empty_postgres_url: str, mode: str
) -> None:
    """Every name is added once only, so a commit that was believed lost and was not would be a conflict."""
    over, added, seen, failures = threading.Event(), list[str](), list[int](), list[BaseException]()

    def write(db: Database, number: int) -> None:
        count = 0
        while not over.is_set():
            count += 1
            added.append(db.write(lambda tx: add(tx, f"w{number}-{count}")).result(90))  # noqa: B023 (awaited here)

    def read(db: Database) -> None:
        while not over.is_set():
            seen.append(db.read(entries).result(90))

    def safely(work: Callable[..., None], *args: Any) -> None:
        try:
            work(*args)
        except BaseException as error:
            failures.append(error)

    with closing(open_database(empty_postgres_url, migrations=MIGRATIONS, workers=2, readers=2)) as db:
        threads = [threading.Thread(target=safely, args=(write, db, n)) for n in range(4)]
        threads += [threading.Thread(target=safely, args=(read, db)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(2):
            marks = len(added), len(seen)
            postgres.restart(mode)
            while not failures and (len(added) < marks[0] + 20 or len(seen) < marks[1] + 20):
                over.wait(0.01)
        over.set()
        for thread in threads:
            thread.join(90)
        assert [_everything_said(failure) for failure in failures] == []
        kept = db.read(lambda tx: [name for name in added if value(tx, name) == 0]).result()
        assert kept == added


# --- a connection that is cut during the commit ----------------------------------------------------------------------


class Cutter:
    """Cuts a worker's connection at its next COMMIT, before it is sent or after it has been carried out."""

    def __init__(self, db: Database, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        [worker] = db.backend.writer.workers
        assert isinstance(worker, GroupWriter)
        self.connection: Any = worker.connection
        self._url, self._when, self.cuts = url, "", 0
        text, cutter = Wire.text, self

        def patched(wire: Wire, statement: str) -> None:
            if statement != "COMMIT" or wire is not cutter.connection._wire or not cutter._when:
                return text(wire, statement)
            when, cutter._when, cutter.cuts = cutter._when, "", cutter.cuts + 1
            return cutter._before(wire, text) if when == "before" else cutter._after(wire, text)

        monkeypatch.setattr(Wire, "text", patched)

    def arm(self, when: str) -> None:
        self._when = when

    def _before(self, wire: Wire, text: Callable[[Wire, str], None]) -> None:
        _admin(self._url, f"SELECT pg_terminate_backend({vars(wire)['_pg'].backend_pid}, 5000)")
        text(wire, "COMMIT")

    def _after(self, wire: Wire, text: Callable[[Wire, str], None]) -> None:
        pg = vars(wire)["_pg"]
        [before] = self._marks()
        text(wire, "COMMIT")
        pg.pipeline_sync()
        pg.flush()
        while self._marks() == [before]:
            pass  # the server is still at it
        pg.finish()

    def _marks(self) -> list[Any]:
        return _admin(self._url, f"SELECT mark FROM kernel.commit_marks WHERE worker = '{self.connection._worker}'")


@pytest.fixture
def cutter(db: Database, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Cutter:
    return Cutter(db, empty_postgres_url, monkeypatch)


@pytest.mark.parametrize(("when", "runs"), [("before", 2), ("after", 1)])
@pytest.mark.parametrize("company", [1, 3])
def test_a_connection_cut_during_the_commit_is_answered_rightly_and_done_once(
    db: Database, cutter: Cutter, company: int, when: str, runs: int
) -> None:
    db.write(lambda tx: add(tx, "c")).result()
    ran: list[int] = []

    def job(tx: Tx) -> str:
        if not ran:
            cutter.arm(when)
        ran.append(1)
        return enter(tx, "c")

    answers = _behind_a_hold(db.write, *[job] * company)
    assert cutter.cuts == 1
    assert len({answer for answer in answers if isinstance(answer, str)}) == company
    assert (
        db.read(lambda tx: [tx.one(GET_ENTRY, id=answer) is not None for answer in answers]).result()
        == [True] * company
    )
    assert db.read(entries).result() == company
    assert len(ran) == runs * company


@pytest.mark.parametrize("company", [1, 3])
def test_a_commit_whose_fate_cannot_be_learned_is_unknown_and_not_repeated(
    db: Database, cutter: Cutter, company: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.write(lambda tx: add(tx, "c")).result()

    def gone(*_: Any, **__: Any) -> None:
        raise errors.UnavailableError("no server")

    def job(tx: Tx) -> str:
        cutter.arm("after")
        monkeypatch.setattr(cutter.connection._connector, "wire", gone)
        return enter(tx, "c")

    outcomes = _behind_a_hold(db.write, *[job] * company)
    assert [type(outcome) for outcome in outcomes] == [errors.OutcomeUnknownError] * company
    monkeypatch.undo()
    assert db.read(entries).result() == company, "it had been carried out, once"
    assert db.write(lambda tx: enter(tx, "c")).result(30)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_whose_fate_is_asked_for_in_vain_at_first_is_asked_for_again(
    db: Database, cutter: Cutter, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """As in a restart: the first new connection is accepted, and lost again before it can answer."""
    db.write(lambda tx: add(tx, "c")).result()
    connect, lost = cutter.connection._connector.wire, list[str]()

    def lost_again(name: str, **options: Any) -> Wire:
        wire: Wire = connect(name, **options)
        if name == cutter.connection._worker and not lost:
            lost.append(name)
            vars(wire)["_pg"].finish()
        return wire

    def job(tx: Tx) -> str:
        if not lost:
            cutter.arm(when)
            monkeypatch.setattr(cutter.connection._connector, "wire", lost_again)
        return enter(tx, "c")

    outcome = db.write(job)
    assert outcome.exception(30) is None
    assert lost
    assert db.read(entries).result() == 1


# --- collisions ----------------------------------------------------------------------------------------------------


def test_a_deadlock_between_two_operations_of_many_rows_ends_with_both_done(empty_postgres_url: str) -> None:
    with closing(open_database(empty_postgres_url, migrations=MIGRATIONS, workers=2)) as db:
        db.write(lambda tx: [add(tx, "a"), add(tx, "b")]).result()
        barrier, met = threading.Barrier(2), set[str]()

        def both(first: str, second: str) -> Callable[[Tx], str]:
            def run(tx: Tx) -> str:
                tx.count(_BUMP, name=first)
                if first not in met:
                    met.add(first)
                    barrier.wait(60)
                tx.count(_BUMP, name=second)
                return first

            return run

        assert _behind_a_hold(db.write, both("a", "b"), both("b", "a"), holds=2) == ["a", "b"]
        assert db.read(lambda tx: (value(tx, "a"), value(tx, "b"))).result() == (2, 2)


def _flaky(name: str) -> Callable[[Tx], str]:
    """Collides in company, succeeds alone."""
    runs: list[int] = []

    def run(tx: Tx) -> str:
        runs.append(1)
        if len(runs) == 1:
            raise errors.SerializationError("deadlock detected")
        return add(tx, name)

    return run


def _adding(name: str) -> Callable[[Tx], str]:
    return lambda tx: add(tx, name)


@pytest.mark.parametrize("collide", [True, False], ids=["shrinking", "growing"])
def test_a_large_batch_after_collisions_is_carried_out_to_the_last_operation(db: Database, collide: bool) -> None:
    for number in range(2):
        _behind_a_hold(db.write, _flaky(f"before-{number}"), _adding(f"beside-{number}"))
    names = [f"c{number:03}" for number in range(120)]
    first = _flaky(names[0]) if collide else _adding(names[0])
    assert _behind_a_hold(db.write, first, *map(_adding, names[1:])) == names
    assert db.read(lambda tx: [name for name in names if value(tx, name) == 0]).result() == names


# --- a server that cannot be reached ---------------------------------------------------------------------------------


def _everything_said(error: BaseException | None) -> str:
    """The words of an error and of all that led to it."""
    if error is None:
        return ""
    return f"{error!r} {error} {vars(error)} {_everything_said(error.__cause__ or error.__context__)}"


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_server_that_is_not_there_is_a_typed_error_without_the_password() -> None:
    with pytest.raises(errors.UnavailableError) as caught:
        open_database(f"postgresql://me:topsecret@127.0.0.1:{_closed_port()}/db", migrations=MIGRATIONS)
    assert "topsecret" not in _everything_said(caught.value)


def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(errors.UnavailableError) as caught:
            open_database(f"postgresql://me:topsecret@127.0.0.1:{port}/db?connect_timeout=2", migrations=MIGRATIONS)
    assert "topsecret" not in _everything_said(caught.value)


def test_a_database_that_is_not_there_is_a_typed_error(postgres: Postgres) -> None:
    with pytest.raises(errors.UnavailableError, match="nowhere"):
        open_database(postgres.url("nowhere"), migrations=MIGRATIONS)


def test_a_server_lost_while_the_store_is_open_is_a_typed_error_until_it_is_back(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_database(empty_postgres_url, migrations=MIGRATIONS, workers=1, readers=1, connect_s=0.1)) as db:
        assert db.read(entries).result() == 0
        connector = vars(db.backend)["_connector"]
        away = {**connector._base, "host": "127.0.0.1", "port": str(_closed_port())}
        with monkeypatch.context() as patched:
            patched.setattr(connector, "_base", away)
            _admin(empty_postgres_url, _HANG_UP.format("holdproof-reader"))
            _admin(empty_postgres_url, _HANG_UP.format("%").replace("= '%'", "LIKE 'holdproof-%-%-%'"))
            assert isinstance(db.write(lambda tx: add(tx, "lost")).exception(30), errors.UnavailableError)
            assert isinstance(db.read(entries).exception(30), errors.UnavailableError)
        assert db.write(lambda tx: add(tx, "kept")).result(30) == "kept"
        assert db.read(lambda tx: (value(tx, "lost"), value(tx, "kept"))).result() == (None, 0)


# --- whose schema it is ----------------------------------------------------------------------------------------------

_OBJECTS = "SELECT relname, relkind FROM pg_class c WHERE c.relnamespace = 'kernel'::regnamespace ORDER BY 1"


@pytest.mark.parametrize(
    "theirs",
    ["CREATE TABLE kernel.theirs (n int)", "CREATE VIEW kernel.theirs AS SELECT 1 AS n"],
    ids=["table", "view"],
)
def test_a_schema_that_somebody_else_filled_is_refused_untouched(empty_postgres_url: str, theirs: str) -> None:
    _admin(empty_postgres_url, f"CREATE SCHEMA kernel; {theirs}")
    before = _admin(empty_postgres_url, _OBJECTS)
    for applying in (True, False):
        with pytest.raises(errors.ForeignFileError, match="kernel"):
            open_database(empty_postgres_url, migrations=MIGRATIONS, migrate=applying)
    assert _admin(empty_postgres_url, _OBJECTS) == before


@pytest.fixture
def login(postgres: Postgres) -> Iterator[str]:
    """A login with no rights of its own."""
    name = f"u{uuid.uuid4().hex[:12]}"
    postgres.sql(f"CREATE ROLE {name} LOGIN")
    yield name
    postgres.sql(f"DROP ROLE {name}")


def _as(login: str, url: str, statement: str) -> list[Any]:
    return _admin(make_conninfo(url, user=login), statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM kernel.counters",
        "SELECT * FROM kernel.commit_marks",
        "INSERT INTO kernel.counters VALUES ('forged', 1)",
        "CREATE TABLE kernel.mine (n int)",
    ],
)
def test_a_login_of_the_membrane_alone_can_do_nothing_in_the_kernel(
    db: Database, postgres: Postgres, empty_postgres_url: str, login: str, statement: str
) -> None:
    with closing(open_database(empty_postgres_url, space="membrane", migrations=MIGRATIONS, workers=1)) as membrane:
        postgres.sql(f"GRANT holdproof_membrane TO {login}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            _as(login, empty_postgres_url, statement)
        membrane.write(lambda tx: add(tx, "theirs")).result()
        assert _as(login, empty_postgres_url, "SELECT name FROM membrane.counters") == [("theirs",)]
    assert db.read(lambda tx: value(tx, "forged")).result() is None


# --- values ----------------------------------------------------------------------------------------------------------


def test_a_nul_character_is_an_input_error_and_harms_no_neighbour(db: Database) -> None:
    def half(tx: Tx) -> None:
        add(tx, "half")
        add(tx, "a\0b")

    outcomes = _behind_a_hold(db.write, _adding("before"), half, _adding("after"))
    assert [type(outcome) for outcome in outcomes] == [str, errors.InvalidInputError, str]
    assert db.read(lambda tx: [value(tx, name) for name in ("before", "half", "after")]).result() == [0, None, 0]


def test_a_nul_character_in_a_read_is_an_input_error_and_harms_no_neighbour(db: Database) -> None:
    db.write(lambda tx: add(tx, "c", 5)).result()
    outcomes = _behind_a_hold(db.read, lambda tx: value(tx, "\0"), lambda tx: value(tx, "c"))
    assert isinstance(outcomes[0], errors.InvalidInputError)
    assert outcomes[1] == 5


def test_many_runs_a_statement_with_returning_for_every_row(db: Database) -> None:
    db.write(lambda tx: [add(tx, name, 5) for name in "abc"]).result()
    db.write(lambda tx: tx.many(TAKE, [{"name": name} for name in "abc"])).result()
    assert db.read(lambda tx: [value(tx, name) for name in "abc"]).result() == [4, 4, 4]
