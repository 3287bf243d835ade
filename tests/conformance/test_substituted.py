"""A whole store made elsewhere, with other keys, laid in the place of one: sound in itself, and not this home's."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from harness.filling import settled, submit
from harness.raw_access import Past
from harness.servers import Postgres
from holdproof import sync
from holdproof.db import open_database, sql
from holdproof.model.verdicts import Verdict

_NAME = sql("INSERT INTO store_facts (key, value, updated_at) VALUES ('store_id', :value, :now)")


def make(home: Path, url: str | None, store_id: str | None = None) -> str:
    """Make a store with one decision, under the id of another if that is given; return its id."""
    if store_id is not None:
        home.mkdir()
        with closing(open_database(url or home / "kernel.db")) as database:
            database.write(lambda tx: tx.execute(_NAME, value=store_id, now=tx.now, expect=1)).result()
    with sync.open(home, url) as store:
        submit(store, "decided", 0.1)
        settled(store)
        return store.status().store_id


class Suite:
    """What must be found on either database."""

    home: Path
    url: str | None
    other_url: str | None

    def replace(self, forged: Path | None) -> None:
        """Put the forged database in the place of the store's own; none leaves nothing there."""
        raise NotImplementedError

    def test_a_store_of_another_name_in_its_place_is_found(self, tmp_path: Path) -> None:
        make(self.home, self.url)
        make(tmp_path / "forged", self.other_url)
        self.replace(tmp_path / "forged")
        for _ in range(2):  # looking at it must not make it familiar
            report = sync.verify(self.home, self.url, full=True, lock=False)
            assert report.verdict is Verdict.TAMPERED, report.to_dict()
            assert any("another store was put in place" in each.what for each in report.findings)
        assert sync.verify(self.home, self.url, lock=True).locked

    def test_a_store_under_its_own_name_that_gave_up_the_kept_heads_is_found(self, tmp_path: Path) -> None:
        store_id = make(self.home, self.url)
        forged = tmp_path / "forged"
        assert make(forged, self.other_url, store_id) == store_id
        with sync.open(forged, self.other_url) as store:
            store.backup.create(tmp_path / "backup", keys=True)
        sync.restore(tmp_path / "backup", forged, self.other_url)
        self.replace(forged)
        for _ in range(3):  # nor may the home's own key introduce itself and sign for it
            report = sync.verify(self.home, self.url, full=True, lock=False)
            assert report.verdict.locks, report.to_dict()
            assert any("nothing in this home vouches for" in each.what for each in report.findings)

    def test_a_restore_that_was_made_up_gives_up_no_head(self) -> None:
        """The row names a size below every kept head; nothing but its own word says so."""
        store_id = make(self.home, self.url)
        past = Past(self.home, self.url)
        [(head,)] = past.ask("SELECT head FROM log_state")
        origin = f"holdproof/{store_id}"
        columns = "n, origin, previous, size, trusted, abandoned, source, restored_at, leaf_id, leaf_ver, leaf_salt"
        row = (1, f"{origin}/1", origin, 1, head, head, "raw copy", "2026-01-01T00:00:00.000000Z", "x", 1, bytes(16))
        past.ask(f"INSERT INTO restores ({columns}) VALUES ({', '.join('?' * len(row))})", *row)
        report = sync.verify(self.home, self.url, lock=False)
        assert any(each.table == "restores" and "made up" in each.what for each in report.findings)

    def test_a_new_store_of_the_same_home_is_sound(self) -> None:
        make(self.home, self.url)
        self.replace(None)
        make(self.home, self.url)
        report = sync.verify(self.home, self.url, full=True, lock=False)
        assert [each for each in report.findings if each.table == "log"] == []


class TestSqlite(Suite):
    url = None
    other_url = None

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.home = tmp_path / "home"

    def replace(self, forged: Path | None) -> None:
        (self.home / "kernel.db").unlink()
        if forged is not None:
            shutil.copy(forged / "kernel.db", self.home / "kernel.db")


class TestPostgres(Suite):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path, postgres: Postgres, postgres_url: str, migrated: str) -> None:
        self.home = tmp_path / "home"
        self.server = postgres
        self.migrated = migrated
        self.url = postgres_url
        self.name = postgres_url.partition("?")[0].rpartition("/")[2]
        postgres.sql(f"CREATE DATABASE {self.name}_forged TEMPLATE {migrated}")
        self.other_url = postgres.url(f"{self.name}_forged")

    def replace(self, forged: Path | None) -> None:
        self.server.sql(f"DROP DATABASE {self.name} WITH (FORCE)")
        template = self.migrated if forged is None else f"{self.name}_forged"
        self.server.sql(f"CREATE DATABASE {self.name} TEMPLATE {template}")
