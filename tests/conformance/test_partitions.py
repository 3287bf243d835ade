"""`db partition`: audit events by months on a real server, while the store is in use; verified as the plain table."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from harness.filling import settled
from harness.servers import Postgres
from holdproof import errors, sync
from holdproof.db import partitioned_schema, sql
from holdproof.model.verdicts import Verdict
from holdproof.testing import FrozenClock
from tests.conformance.test_audit_archives import DAY_S, filled, left

_WHERE = sql("SELECT tableoid::regclass::text, count(*) FROM decision_audit_events GROUP BY 1 ORDER BY 1")


@contextmanager
def admin(url: str) -> Iterator["psycopg.Connection[Any]"]:
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        yield connection


def month(offset: int) -> str:
    return partitioned_schema.month_name(partitioned_schema.months(datetime.now(UTC), offset + 1)[-1])


def record(store: sync.Holdproof, count: int, flow_id: str = "f") -> None:
    if not store.flows.list().items:
        store.agents.register("trader", version="1.0.0")
        store.flows.start("trader", flow_id=flow_id)
    for number in range(count):
        store.audit.record(flow_id, "LOOKED", detail={"n": number})


def sound(store: sync.Holdproof) -> bool:
    settled(store)
    report = store.verify.run(full=True, lock=False)
    assert report.findings == []
    return report.verdict is Verdict.VALID and store.check().ok


def test_a_store_in_use_is_divided_and_loses_nothing(postgres_store: tuple[str, Path]) -> None:
    url, home = postgres_store
    with sync.open(home, url) as store:
        record(store, 20)
        ending = Event()
        written: list[int] = []

        def writes() -> None:
            while not ending.is_set():
                written.append(store.audit.record("f", "DURING").id)

        writer = Thread(target=writes)
        writer.start()
        try:
            first = sync.partition(home, url, months=3)
        finally:
            ending.set()
            writer.join(30)
        assert first.switched_on
        assert {"decision_audit_events_before", "decision_audit_events_rest"} < {*first.partitions}
        again = sync.partition(home, url, months=4)
        assert (again.switched_on, again.created) == (False, [month(4)])
        record(store, 5)
        assert left(store) == 25 + len(written)
        ids = [event.id for event in store.audit.list(limit=1000).items]
        assert ids == sorted({*ids}, reverse=True)
        assert store.audit.get(ids[0]).id == ids[0]
        assert sound(store)
    with sync.open(home, url) as store:
        record(store, 1)
        assert sound(store)


def test_no_event_is_refused_for_want_of_a_month_and_the_month_takes_them_when_it_is_made(
    postgres_store: tuple[str, Path],
) -> None:
    url, home = postgres_store
    sync.partition(home, url, months=1)
    clock = FrozenClock()
    clock.micros = round(datetime.now(UTC).timestamp() * 1_000_000) + 130 * DAY_S * 1_000_000
    with sync.open(home, url, clock=clock) as store:
        record(store, 3)
        assert dict(store.read(lambda tx: tx.all(_WHERE))) == {"decision_audit_events_rest": 3}
        assert sync.partition(home, url, months=6).created
        [(where, count)] = store.read(lambda tx: tx.all(_WHERE))
        assert (where.startswith("decision_audit_events_2"), count) == (True, 3)
        assert sound(store)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE INDEX planted ON kernel.decision_audit_events_before (state)",
        "ALTER TABLE kernel.decision_audit_events_before DROP CONSTRAINT decision_audit_events_severity_check",
        "ALTER TABLE kernel.decision_audit_events ADD COLUMN planted text",
        "DROP INDEX kernel.idx_decision_audit_events_dfid",
        "CREATE RULE planted AS ON UPDATE TO kernel.decision_audit_events_before DO INSTEAD NOTHING",
        "ALTER TABLE kernel.decision_audit_events DETACH PARTITION kernel.decision_audit_events_before",
    ],
)
def test_what_somebody_changes_about_a_divided_table_is_found(postgres_store: tuple[str, Path], change: str) -> None:
    url, home = postgres_store
    with sync.open(home, url) as store:
        record(store, 2)
        settled(store)
    sync.partition(home, url, months=1)
    with admin(url) as connection:
        if "severity_check" in change:
            # Inherited: it can be dropped with the parent's only, or by the catalogue.
            connection.execute("DELETE FROM pg_constraint WHERE conname = 'decision_audit_events_severity_check'")
        else:
            connection.execute(change.encode())
    with sync.open(home, url) as store:
        report = store.verify.run(lock=False)
        assert report.verdict is Verdict.TAMPERED, report.findings


def test_a_divided_store_is_backed_up_and_restored(postgres_store: tuple[str, Path], tmp_path: Path) -> None:
    url, home = postgres_store
    with sync.open(home, url) as store:
        record(store, 4)
    sync.partition(home, url, months=2)
    with sync.open(home, url) as store:
        record(store, 4)
        settled(store)
        store.backup.create(tmp_path / "backup", keys=True)
    sync.restore(tmp_path / "backup", home, url)
    with sync.open(home, url) as store:
        assert left(store) == 8
        record(store, 1)
        assert sound(store)
    copied = sync.copy(url, tmp_path / "copy", home)
    assert copied.verdict == "VALID"


def test_an_archived_month_is_dropped_as_a_whole_unless_something_in_it_stays(
    postgres_store: tuple[str, Path], tmp_path: Path
) -> None:
    url, home = postgres_store
    _divide_at(url, home)
    clock = FrozenClock()
    with sync.open(home, url, clock=clock) as store:
        store.agents.register("trader", version="1.0.0")
        filled(store, clock)
        assert ("decision_audit_events_2026_01", 12) in store.read(lambda tx: tx.all(_WHERE))
        hold = store.retention.hold(subject="Ada", reason="case 1")
        part = store.retention.archive(month="2026-01", to=tmp_path)
        assert (part.count, part.under_hold, part.dropped) == (6, 6, False)
        store.retention.lift(hold.id, reason="closed")
        rest = store.retention.archive(month="2026-01", to=tmp_path)
        assert (rest.count, rest.under_hold, rest.dropped) == (6, 0, True)
        assert "2026_01" not in str(store.read(lambda tx: tx.all(_WHERE)))
        assert left(store) == 2
        assert sound(store)
    with admin(url) as connection:
        assert connection.execute("SELECT to_regclass('kernel.decision_audit_events_2026_01')").fetchone() == (None,)


def test_each_login_has_its_rights_in_a_divided_table_and_policies_hold(
    postgres: Postgres, empty_postgres_url: str, tmp_path: Path
) -> None:
    """The owner divides it; the store's login writes and removes, and drops nothing."""
    database = urlsplit(empty_postgres_url).path.removeprefix("/")
    roles = ("postgres", "holdproof_owner", "holdproof_app", "holdproof_reader")
    server, owner, application, reader = (postgres.url(database).replace("postgres@", f"{login}@") for login in roles)
    sync.roles(tmp_path, server, apply=True)
    sync.migrate(tmp_path, owner)
    sync.roles(tmp_path, server, apply=True)
    with pytest.raises(errors.MissingPrivilegeError, match="owner"):
        sync.partition(tmp_path, application)
    _divide_at(owner, tmp_path)
    clock = FrozenClock()
    for _ in range(2):
        with admin(server) as connection:
            policies = "SELECT count(*) FROM pg_policies WHERE tablename = 'decision_audit_events'"
            assert connection.execute(policies).fetchone() == (2,)
        with sync.open(tmp_path, application, clock=clock, ns="acme") as bound:
            assert bound.audit.list().items == []
        # Again, as after an upgrade: now the partitions have policies too.
        sync.roles(tmp_path, server, apply=True)
    with sync.open(tmp_path, application, clock=clock) as store:
        store.agents.register("trader", version="1.0.0")
        filled(store, clock)
        archived = store.retention.archive(month="2026-01", to=tmp_path / "archive")
        assert (archived.count, archived.dropped, left(store)) == (12, False, 2)
        settled(store)
    # It may neither make a schema to compare with, nor look into the tables of services.
    found = sync.verify(tmp_path, reader, readonly=True).findings
    assert {each.verdict for each in found} == {Verdict.INCOMPLETE}, found
    assert sync.verify(tmp_path, owner, full=True).findings == []


def _divide_at(url: str, home: Path) -> None:
    """Divide the table, with months of the past, in which the clocks of tests stand."""
    sync.partition(home, url, months=1)
    with admin(url) as connection:
        connection.execute(
            "ALTER TABLE kernel.decision_audit_events DETACH PARTITION kernel.decision_audit_events_before"
        )
        connection.execute("DROP TABLE kernel.decision_audit_events_before")
        for number in (1, 2, 3):
            connection.execute(
                f"CREATE TABLE kernel.decision_audit_events_2026_0{number} PARTITION OF kernel.decision_audit_events"
                f" FOR VALUES FROM ('2026-0{number}-01Z') TO ('2026-0{number + 1}-01Z')".encode()
            )


def test_doctor_warns_before_the_months_end(postgres_store: tuple[str, Path]) -> None:
    url, home = postgres_store

    def level() -> list[str]:
        return [each.level for each in sync.doctor(home, url).checks if each.about == "partitions"]

    assert level() == []
    sync.partition(home, url, months=1)
    assert level() == ["ok"]
    with admin(url) as connection:
        connection.execute(f"DROP TABLE kernel.{month(1)}".encode())
    assert level() == ["warning"]
    assert sync.partition(home, url, months=1).created == [month(1)]
    assert level() == ["ok"]


def test_sqlite_says_that_it_has_none(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInputError, match="retention archive"):
        sync.partition(tmp_path)
