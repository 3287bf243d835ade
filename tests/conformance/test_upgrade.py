"""An upgrade while the version before works on the store: nothing is lost, and who starts too old is told so."""

import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from harness import stored_stores
from harness.filling import settled
from holdproof import errors, sync
from holdproof.db import Database, Migration, Query, Tx, migrate, open_database, sql
from holdproof.db.sql import sql_postgres, sql_sqlite
from holdproof.evidence import tree
from holdproof.model.verdicts import Verdict
from tests.store_locations import StoreLocation, everything, submit

_NEXT = Migration(
    "9999_next",
    "CREATE TABLE of_the_next_version (id TEXT PRIMARY KEY, at @time NOT NULL);"
    "ALTER TABLE agent_registry ADD COLUMN of_the_next_version TEXT;",
)
"""A migration as the next version would bring it: it adds, and removes nothing that the version before uses."""
_TABLES_OF_SERVER = sql_postgres("SELECT tablename FROM pg_tables WHERE schemaname = 'kernel'")
# Without what the full-text search keeps for itself.
_TABLES_OF_FILE = sql_sqlite("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB '*fts*'")
_shipped = migrate.shipped
STORED = sorted((Path(__file__).resolve().parents[1] / "stored").glob("*.tar.xz"))


def _name(value: Path | str) -> str:
    return value.name.partition(".")[0] if isinstance(value, Path) else value


def shipped_next(space: str) -> list[Migration]:
    return [*_shipped(space), *([_NEXT] if space == "kernel" else [])]


@pytest.fixture(params=["sqlite", "postgres", *STORED], ids=_name)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    """A new store, or one that an earlier version left."""
    if isinstance(request.param, Path):
        return _stored(request.param, request, tmp_path)
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    location = StoreLocation(tmp_path / "home", url)
    with location.open() as store:
        store.agents.register("trader", version="1.0.0")
    return location


@pytest.fixture(params=STORED, ids=_name)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    """A store that an earlier version left."""
    return _stored(request.param, request, tmp_path)


def _stored(archive: Path, request: pytest.FixtureRequest, folder: Path) -> StoreLocation:
    url = request.getfixturevalue("empty_postgres_url") if "postgres" in archive.name else None
    return StoreLocation(stored_stores.unpack(archive, folder, url), url)


def test_a_store_of_each_earlier_version_opens_with_every_row_and_verifies_in_full(stored: StoreLocation) -> None:
    target = stored.url or stored.home / "kernel.db"
    with closing(open_database(target, migrate=False)) as database:
        head = database.read(tree.state).result()
        before = _counts(database)
    assert len(before) > 60
    with stored.open() as store:
        assert store.read(tree.state).size >= head.size
        after = _counts(store.database)
    # An opening may write: a migration's own entry, an access. Nothing of what was there goes.
    assert {table: after.get(table, 0) for table in before if after.get(table, 0) < before[table]} == {}
    with stored.open() as store:
        assert not migrate.pending(store.database, migrate.shipped("kernel"))
        assert {"b0", "after"} <= {name for name, _ in everything(store)}
        assert store.objects.get("long").content == "x" * 600_000
        assert store.blobs.get("report") == b"quarterly" * 1000
        submit(store, "of this version")
        settled(store)
    report = sync.verify(stored.home, stored.url, full=True)
    assert report.verdict is Verdict.VALID, report.to_dict()


def test_the_newest_stored_store_is_not_older_than_the_last_release() -> None:
    numbers = {each.name.partition("-")[0] for each in STORED}
    databases = {(number, kind) for number in numbers for kind in ("sqlite", "postgres")}
    assert {each.name for each in STORED} == {f"{number}-{kind}.tar.xz" for number, kind in databases}
    assert max(numbers) >= "0043", "python -m harness.stored_stores tests/stored"


def _counts(database: Database) -> dict[str, int]:
    """How many rows each table of flows, evidence and memory has."""

    def count(tx: Tx) -> dict[str, int]:
        names = tx.all(_TABLES_OF_SERVER if database.dialect == "postgres" else _TABLES_OF_FILE)
        return {str(name): tx.all(_rows(str(name)))[0][0] for (name,) in names}

    return database.read(count).result()


def _rows(table: str) -> Query:
    return sql(f"SELECT count(*) FROM {table}")


def test_the_version_before_goes_on_while_the_next_migrates_and_cannot_start_again(
    place: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    failures: list[BaseException] = []
    upgraded = threading.Event()

    def write(store: sync.Holdproof, caller: int) -> None:
        after = 0
        for number in range(10_000):
            after += upgraded.is_set()
            if after > 5:
                return
            try:
                submit(store, f"{caller}-{number}")
                store.evaluations.list(limit=5)
            except errors.HoldproofError as error:
                failures.append(error)
                return
            written.append(f"{caller}-{number}")

    with place.open() as store:
        earlier = {name for name, _ in everything(store)}
        threads = [threading.Thread(target=write, args=(store, caller)) for caller in range(4)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 60
        while len(written) < 20 and not failures:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with closing(open_database(place.url or place.home / "kernel.db", migrate=False)) as next_version:
            assert migrate.migrate(next_version, shipped_next("kernel")) == [_NEXT.name]
        upgraded.set()
        for thread in threads:
            thread.join(120)
        assert failures == []
        settled(store)
    for readonly in (False, True):
        with pytest.raises(errors.NewerStoreError, match=_NEXT.name) as caught:
            place.open(readonly=readonly)
        assert "upgrade" in caught.value.remedy.lower()
    monkeypatch.setattr(migrate, "shipped", shipped_next)
    with place.open() as store:
        settled(store)
        assert {name for name, _ in everything(store)} == {*written} | earlier
    report = sync.verify(place.home, place.url, full=True)
    assert report.verdict is Verdict.VALID, report.to_dict()
