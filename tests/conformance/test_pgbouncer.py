"""A real PgBouncer before the server, in session and in transaction mode: a store works as it does without."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from harness.filling import running, settled, submit
from harness.servers import PgBouncer, Postgres
from holdproof import errors, sync
from holdproof.db import Database, open_database, sql
from holdproof.db.postgres import liveness
from holdproof.db.postgres.wire import Wire
from holdproof.model.verdicts import Verdict
from holdproof.testing.schema import MIGRATIONS, add, value

_BUMP = sql("UPDATE counters SET value = value + 1 WHERE name = :name")
_LEFT = (
    "SELECT count(*) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid"
    " WHERE a.datname = current_database() AND l.locktype = 'advisory'"
)


@pytest.fixture(scope="module", params=["session", "transaction"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def pooler(mode: str, postgres: Postgres) -> Iterator[PgBouncer]:
    """A pooler with fewer sessions than a store has connections, where it can share them."""
    pooler = PgBouncer(postgres, mode, size=4 if mode == "transaction" else 40)
    yield pooler
    pooler.stop()


@pytest.fixture
def database(postgres_url: str) -> str:
    return urlsplit(postgres_url).path.removeprefix("/")


@pytest.fixture
def direct_url(database: str, postgres: Postgres) -> str:
    return postgres.url(database)


def _counters(url: str, **options: Any) -> "closing[Database]":
    return closing(open_database(url, migrations=MIGRATIONS, **options))


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> dict[Wire, list[str]]:
    """What is sent to the server, in order and by connection, and its waits."""
    sent: dict[Wire, list[str]] = {}
    send, queue, wait = Wire.send, Wire._queue, Wire.sync

    def recording_send(self: Wire, query: Any, *more: Any, **named: Any) -> None:
        send(self, query, *more, **named)
        sent.setdefault(self, []).append(query.postgres)

    def recording_queue(self: Wire, statement: str) -> None:
        queue(self, statement)
        sent.setdefault(self, []).append(statement)

    def recording_wait(self: Wire) -> Any:
        sent.setdefault(self, []).append("wait")
        return wait(self)

    monkeypatch.setattr(Wire, "send", recording_send)
    monkeypatch.setattr(Wire, "_queue", recording_queue)
    monkeypatch.setattr(Wire, "sync", recording_wait)
    return sent


def _transaction(statements: dict[Wire, list[str]], begin: str) -> list[str]:
    """What was sent in the last transaction that began like this."""
    [sent] = [sent for sent in statements.values() if any(each.startswith(begin) for each in sent)]
    start = max(number for number, each in enumerate(sent) if each.startswith(begin))
    return sent[start:]


# --- it is recognised, and costs no wait -----------------------------------------------------------------------------


@pytest.mark.parametrize("ignored", ["extra_float_digits", "extra_float_digits,options"], ids=["refuses", "ignores"])
def test_a_pooler_is_recognised_whether_it_refuses_the_settings_of_connections_or_drops_them(
    ignored: str, mode: str, postgres: Postgres, database: str
) -> None:
    pooler = PgBouncer(postgres, mode, ignored=ignored)
    try:
        with _counters(pooler.url(database), space="probe") as db:
            assert db.backend.facts()["pooled"] is True
            assert db.backend.notifies is False
            db.write(lambda tx: add(tx, "c")).result()
            db.backend.compact()
            assert db.read(lambda tx: value(tx, "c")).result() == 0
    finally:
        pooler.stop()


def test_a_transaction_brings_its_settings_in_the_same_exchange_and_a_session_sends_none(
    pooler: PgBouncer, database: str, direct_url: str, statements: dict[Wire, list[str]]
) -> None:
    def sent(url: str, name: str) -> list[list[str]]:
        statements.clear()
        with _counters(url, space="probe", workers=1, readers=1) as db:
            db.write(lambda tx: add(tx, name)).result()
            db.write(lambda tx: tx.execute(_BUMP, name=name)).result()
            assert db.read(lambda tx: value(tx, name)).result() == 1
        return [
            _transaction(statements, f"BEGIN ISOLATION LEVEL {level}") for level in ("READ COMMITTED", "REPEATABLE")
        ]

    direct = sent(direct_url, "direct")
    pooled = sent(pooler.url(database), "pooled")
    for ours, theirs in zip(direct, pooled, strict=True):
        assert not any("set_config" in each for each in ours)
        assert "set_config('search_path', 'probe,pg_temp', true)" in theirs[1]
        assert [theirs[0], *theirs[2:]] == ours, "one statement more, and no wait"
    # The write, its mark and the commit; the waits are those for all statements and for the commit.
    write, _ = direct
    assert (len(write), write.count("wait")) == (6, 2), write


# --- what a store does ---------------------------------------------------------------------------------------------


def test_decisions_flows_queues_and_services_work_and_verify(pooler: PgBouncer, database: str, tmp_path: Path) -> None:
    with sync.open(tmp_path, pooler.url(database)) as store:
        store.agents.register("trader", version="1.0.0")
        flow_id = running(store)
        store.flows.transition(flow_id, "COMPLETED")
        submit(store, "scored", 0.5, subject="Ada")
        store.queues.create("q", concurrency=2)

        @store.flow(name="pay", agent="trader")
        def pay(flow: Any, cents: int) -> Any:
            return flow.step("pay", lambda: cents)

        handles = [pay.enqueue(cents, queue="q") for cents in range(6)]
        with store.worker(queues=["q"]):
            assert [handle.result(timeout_s=60) for handle in handles] == [*range(6)]
        store.blobs.put("large", bytes(100_000))
        assert store.blobs.get("large") == bytes(100_000)
        store.relational.execute("CREATE TABLE carts (item TEXT)")
        store.relational.execute("INSERT INTO carts VALUES ('pear')")
        settled(store)
        report = store.verify.run(full=True)
        assert (report.verdict, report.findings) == (Verdict.VALID, []), report.to_dict()


def test_racing_callers_of_two_processes_lose_no_addition(pooler: PgBouncer, database: str) -> None:
    url = pooler.url(database)
    with _counters(url, space="probe") as first, _counters(url, space="probe") as second:
        first.write(lambda tx: add(tx, "c", 0)).result()
        futures = [db.write(lambda tx: tx.execute(_BUMP, name="c")) for _ in range(40) for db in (first, second)]
        for future in futures:
            future.result(60)
        assert first.read(lambda tx: value(tx, "c")).result() == 80


def test_sql_of_applications_leaves_no_setting_and_no_lock_in_a_session_that_others_use(
    pooler: PgBouncer, database: str, postgres: Postgres, tmp_path: Path
) -> None:
    with sync.open(tmp_path, pooler.url(database)) as store:
        rows = store.relational.fetch_all(
            "SELECT set_config('work_mem', '1MB', false) AS x, pg_advisory_lock(7)::text AS y"
        )
        assert [row["x"] for row in rows] == ["1MB"]
        # A failed statement rolls its setting back, but not its lock.
        with pytest.raises(errors.QueryError):
            store.relational.fetch_all("SELECT pg_advisory_lock(8), 1 / (SELECT 0)")
        assert postgres.value(_LEFT, database) == 0
        for _ in range(8):
            [row] = store.relational.fetch_all("SELECT current_setting('work_mem') AS memory, current_user AS login")
            assert row["memory"] != "1MB"
            assert row["login"].startswith("holdproof_membrane")


def test_a_pooler_that_logs_in_as_somebody_else_does_not_run_sql_of_applications(
    mode: str, postgres: Postgres, database: str, tmp_path: Path
) -> None:
    pooler = PgBouncer(postgres, mode, forced_user="postgres")
    try:
        with (
            sync.open(tmp_path, pooler.url(database)) as store,
            pytest.raises(errors.ConfigError, match=r"logs in as postgres.*auth_query"),
        ):
            store.relational.fetch_all("SELECT 1")
    finally:
        pooler.stop()


# --- a direct connection for what needs a session ------------------------------------------------------------------


def test_with_a_direct_url_commits_of_another_process_wake_waiters(
    pooler: PgBouncer, database: str, direct_url: str
) -> None:
    with (
        _counters(pooler.url(database), space="probe", direct_url=direct_url) as waiting,
        _counters(pooler.url(database), space="probe") as working,
    ):
        assert waiting.backend.notifies is True
        woken = threading.Event()
        assert waiting.topics.subscribe("topic", waiting.topics.epoch, woken.set)
        # The listener may still be connecting: who waits looks by itself until then.
        for _ in range(200):
            working.write(lambda tx: tx.notify("topic")).result()
            if woken.wait(0.1):
                return
        raise AssertionError("no notification arrived")


def test_a_direct_url_of_another_database_is_refused(pooler: PgBouncer, database: str, postgres: Postgres) -> None:
    with pytest.raises(errors.ConfigError, match="names another database"):
        open_database(pooler.url(database), direct_url=postgres.url())


def test_a_direct_url_that_names_the_pooler_again_is_refused(pooler: PgBouncer, database: str) -> None:
    url = pooler.url(database)
    with pytest.raises(errors.ConfigError, match="names a pooler as well"):
        open_database(url, direct_url=url)


def test_a_backup_needs_the_direct_url_and_has_everything_with_it(
    pooler: PgBouncer, database: str, direct_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    with sync.open(home, pooler.url(database)) as store:
        submit(store, "scored", 0.5)
        with pytest.raises(errors.ConfigError, match="HOLDPROOF_DIRECT_URL"):
            store.backup.create(tmp_path / "refused")
    monkeypatch.setenv("HOLDPROOF_DIRECT_URL", direct_url)
    with sync.open(home, pooler.url(database)) as store:
        store.backup.create(tmp_path / "backup")
        store.backup.check(tmp_path / "backup")


# --- a silent server is asked whether it works ----------------------------------------------------------------------

_WAITS = "SELECT count(*) FROM pg_stat_activity WHERE pid = {} AND wait_event_type = 'Lock'"


def test_a_statement_that_works_is_found_by_every_probe_through_the_pooler(
    pooler: PgBouncer, database: str, direct_url: str, postgres: Postgres
) -> None:
    """A pooler lends the session of the last probe to the next one: nothing that the first left may disturb it."""
    with (
        psycopg.connect(direct_url, autocommit=True) as holding,
        psycopg.connect(direct_url, autocommit=True, application_name="worker-1f") as working,
    ):
        holding.execute("SELECT pg_advisory_lock(11)")
        pid = working.info.backend_pid
        thread = threading.Thread(target=working.execute, args=("SELECT pg_advisory_lock(11)",))
        thread.start()
        try:
            while not postgres.value(_WAITS.format(pid), database):
                thread.join(0.01)
            url = pooler.url(database)
            by_name = [liveness.transaction_is_active(url, "worker-1f") for _ in range(3)]
            by_process = [liveness.backend_is_active(url, pid) for _ in range(3)]
        finally:
            holding.execute("SELECT pg_advisory_unlock(11)")
            thread.join()
        assert (by_name, by_process) == ([True] * 3, [True] * 3)
        assert not liveness.transaction_is_active(url, "worker-1f"), "the session is idle"


# --- what fails ----------------------------------------------------------------------------------------------------


def _adding(url: str, meanwhile: Callable[[], None]) -> tuple[int, int]:
    """Add from four callers while something happens; how many additions were acknowledged, and what is stored."""
    acknowledged: list[int] = []
    stopping = threading.Event()

    def work(db: Database) -> None:
        while not stopping.is_set():
            with suppress(errors.UnavailableError):
                db.write(lambda tx: tx.execute(_BUMP, name="c")).result(90)
                acknowledged.append(1)

    with _counters(url, space="probe") as db:
        db.write(lambda tx: add(tx, "c", 0)).result()
        threads = [threading.Thread(target=work, args=(db,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 20:
            stopping.wait(0.01)
        meanwhile()
        enough = len(acknowledged) + 20
        while len(acknowledged) < enough:
            stopping.wait(0.01)
        stopping.set()
        for thread in threads:
            thread.join(100)
        return len(acknowledged), int(db.read(lambda tx: value(tx, "c")).result() or 0)


def test_a_pooler_that_is_killed_and_started_again_loses_and_doubles_nothing(
    mode: str, postgres: Postgres, database: str
) -> None:
    pooler = PgBouncer(postgres, mode)

    def restart() -> None:
        pooler.kill()
        pooler.start()

    try:
        acknowledged, stored = _adding(pooler.url(database), restart)
    finally:
        pooler.stop()
    assert stored == acknowledged


def test_a_server_that_crashes_behind_the_pooler_loses_and_doubles_nothing(mode: str) -> None:
    server = Postgres(syncs=False)
    try:
        pooler = PgBouncer(server, mode)
        try:
            acknowledged, stored = _adding(pooler.url("postgres"), server.kill)
        finally:
            pooler.stop()
    finally:
        server.stop()
    assert stored == acknowledged


def test_a_server_that_is_down_behind_the_pooler_is_an_unavailable_database(mode: str) -> None:
    server = Postgres(syncs=False)
    try:
        pooler = PgBouncer(server, mode)
        try:
            server.crash()
            with pytest.raises(errors.UnavailableError):
                open_database(f"{pooler.url('postgres')}?connect_timeout=2", connect_s=0.1)
        finally:
            pooler.stop()
    finally:
        server.stop()
