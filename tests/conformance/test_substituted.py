"""A whole store made elsewhere, with other keys, laid in the place of one: sound in itself, and not this home's."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from harness.filling import settled, submit
from harness.raw_access import Past
from harness.servers import Postgres
from holdproof import errors, sync
from holdproof.db import open_database, sql
from holdproof.evidence import restores
from holdproof.model.verdicts import Verdict
from tests.databases import fresh_database

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

    def drop_other(self) -> None:
        """Empty the database of `other_url`: a copy needs an empty place."""
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

    def test_a_deleted_kernel_is_not_replaced_by_a_new_store_in_silence(self) -> None:
        make(self.home, self.url)
        self.replace(None)
        for _ in range(2):
            with pytest.raises(errors.StoreGoneError, match="heads of holdproof/"):
                sync.open(self.home, self.url)
            report = sync.verify(self.home, self.url)
            assert report.verdict is Verdict.TAMPERED, report.to_dict()

    def test_a_new_store_beside_the_heads_of_another_is_a_finding_of_verify_and_status(self) -> None:
        """Signed with the very keys of this home, as a new store in the place of a deleted one is."""
        store_id = make(self.home, self.url)
        self.replace(None)
        heads = self.home / "state" / "heads.jsonl"
        lines = heads.read_text()
        heads.unlink()
        make(self.home, self.url)
        heads.write_text(lines + heads.read_text())
        report = sync.verify(self.home, self.url, full=True)
        assert report.verdict is Verdict.TAMPERED, report.to_dict()
        assert any(f"heads of holdproof/{store_id} were kept here" in each.what for each in report.findings)
        with sync.open(self.home, self.url) as store:
            assert any(f"heads of holdproof/{store_id} were kept here" in line for line in store.status().degraded)

    def test_starting_over_is_said_in_the_log_and_keeps_the_former_heads(self) -> None:
        store_id = make(self.home, self.url)
        with pytest.raises(errors.ConflictError, match="very store that is here"):
            sync.start_over(self.home, self.url, reason="for fun")
        self.replace(None)
        done = sync.start_over(self.home, self.url, reason="the test data was deleted on purpose")
        assert done.store_id != store_id
        assert done.former_heads is not None
        assert f"holdproof/{store_id}" in Path(done.former_heads).read_text()
        assert make(self.home, self.url) == done.store_id
        with sync.open(self.home, self.url) as store:
            [entry] = store.read(restores.history)
        assert entry.source == "started over: the test data was deleted on purpose"
        assert entry.abandoned.startswith(f"holdproof/{store_id}\n")
        report = sync.verify(self.home, self.url, full=True)
        assert report.verdict is Verdict.VALID, report.to_dict()

    def test_the_database_of_a_copy_laid_over_the_original_gives_up_no_head(self, tmp_path: Path) -> None:
        make(self.home, self.url)
        copy = tmp_path / "copy"
        if self.other_url is None:
            sync.copy(self.home, copy)
        else:
            self.drop_other()
            sync.copy(self.url or "", self.other_url, self.home, to_home=copy)
        with sync.open(self.home, self.url) as store:
            submit(store, "after the copy", 0.9)
            settled(store)
        assert sync.verify(copy, self.other_url, full=True).verdict is Verdict.VALID
        self.replace(copy)
        for _ in range(2):
            report = sync.verify(self.home, self.url, full=True)
            assert report.verdict is Verdict.ROLLED_BACK, report.to_dict()
            assert any("was not made here" in each.what for each in report.findings)

    def test_a_restore_made_on_another_machine_is_accepted_by_starting_over(self, tmp_path: Path) -> None:
        make(self.home, self.url)
        with sync.open(self.home, self.url) as store:
            store.backup.create(tmp_path / "backup", keys=True)
        other = tmp_path / "other"
        if self.other_url is not None:
            self.drop_other()
        sync.restore(tmp_path / "backup", other, self.other_url)
        with sync.open(self.home, self.url) as store:
            store.objects.put("lost", type="note", content="by the restore")
            settled(store)
        self.replace(other)
        assert sync.verify(self.home, self.url).verdict is Verdict.ROLLED_BACK
        sync.start_over(self.home, self.url, reason="restored on the other machine")
        report = sync.verify(self.home, self.url, full=True)
        assert report.verdict is Verdict.VALID, report.to_dict()

    def test_two_copies_of_one_store_have_logs_of_different_names(self, tmp_path: Path) -> None:
        make(self.home, self.url)
        with sync.open(self.home, self.url) as store:
            store.backup.create(tmp_path / "backup", keys=True)
        origins = {sync.restore(tmp_path / "backup", tmp_path / name).origin for name in ("one", "two")}
        assert len(origins) == 2


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
    def _place(self, tmp_path: Path, postgres: Postgres, postgres_url: str, migrated: str) -> Iterator[None]:
        self.home = tmp_path / "home"
        self.server = postgres
        self.migrated = migrated
        self.url = postgres_url
        self.name = postgres_url.partition("?")[0].rpartition("/")[2]
        # The pool may lend the same database to the next test, so the other one goes with its test.
        with fresh_database(postgres, name=f"{self.name}_forged", template=migrated) as self.other_url:
            yield

    def replace(self, forged: Path | None) -> None:
        self.server.sql(f"DROP DATABASE {self.name} WITH (FORCE)")
        template = self.migrated if forged is None else f"{self.name}_forged"
        self.server.sql(f"CREATE DATABASE {self.name} TEMPLATE {template}")

    def drop_other(self) -> None:
        self.server.sql(f"DROP DATABASE {self.name}_forged WITH (FORCE)")
        self.server.sql(f"CREATE DATABASE {self.name}_forged")
