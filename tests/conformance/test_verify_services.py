"""Verify looks at what services store: what was changed there is found, and the kernel goes on."""

import os
from pathlib import Path

import psycopg
import pytest

from harness.filling import settled
from harness.raw_access import behind
from holdproof import sync
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Report
from tests.conformance.store_backends import StoreInMemory, StoreOnPostgres, StoreOnSqlite
from tests.store_locations import submit

LARGE = bytes(range(256)) * 1000


class Services(StoreOnSqlite):
    gone = Verdict.TAMPERED
    """What a body that is not there is called."""

    def fill(self) -> None:
        with self.open() as store:
            submit(store, "b")
            store.blobs.put("small", b"small")
            store.blobs.put("large", LARGE)
            settled(store)

    def attack(self, statement: str) -> None:
        with behind(self.home, "membrane.db") as connection:
            connection.execute(statement)

    def verify(self) -> Report:
        return sync.verify(self.home, self.url, lock=True)

    @property
    def file(self) -> Path:
        [path] = [path for path in (self.home / "blobs").rglob("*") if path.is_file()]
        return path

    def test_sound_blobs_are_counted(self) -> None:
        self.fill()
        report = self.verify()
        assert (report.verdict, report.checked["blobs"]) == (Verdict.VALID, 2)

    @pytest.mark.parametrize("at", [0, 100_000, 255_999])
    def test_a_flipped_byte_of_a_blob_is_found_and_named_and_locks_nothing(self, at: int) -> None:
        self.fill()
        whole = self.file.read_bytes()
        self.file.chmod(0o600)
        self.file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        report = self.verify()
        [finding] = report.findings
        assert (report.verdict, report.locked, finding.row) == (Verdict.TAMPERED, None, "large")
        assert finding.file == str(self.file)
        with self.open() as store:
            submit(store, "c")

    def test_a_blob_that_is_gone_is_found(self) -> None:
        self.fill()
        self.file.unlink()
        assert [(each.verdict, each.row) for each in self.verify().findings] == [(self.gone, "large")]

    def test_a_blob_whose_row_names_an_address_that_is_none_is_found(self) -> None:
        self.fill()
        self.attack("UPDATE blobs SET address = address || 'x' WHERE key = 'large'")
        findings = self.verify().findings
        assert {(each.verdict, each.row) for each in findings if each.row} == {(Verdict.TAMPERED, "large")}

    def test_tampering_with_the_kernel_locks_however_much_is_wrong_outside(self) -> None:
        self.fill()
        self.file.unlink()
        with self.open() as store:
            store.database.write(lambda tx: tx.script("UPDATE battles SET score = 1"), ungated=True).result()
        report = self.verify()
        assert {each.outside for each in report.findings} == {True, False}
        assert report.locked is not None


class TestOnSqlite(Services):
    def test_what_nobody_has_used_is_not_made(self) -> None:
        with self.open() as store:
            submit(store, "b")
            assert store.verify.run().ok
        assert not (self.home / "membrane.db").exists()
        assert not (self.home / "telemetry.db").exists()

    @pytest.mark.parametrize("name", ["membrane.db", "telemetry.db"])
    def test_a_damaged_page_of_a_file_of_services_is_found(self, name: str) -> None:
        self.fill()
        with self.open() as store:
            store.telemetry.append([])
            store.storage.status()
        with (self.home / name).open("r+b") as file:
            file.seek(3 * 4096 + 2000)
            file.write(os.urandom(64))
        report = self.verify()
        assert (report.verdict, report.locked) == (Verdict.FOREIGN_WRITER, None)
        assert str(self.home / name) in {each.file for each in report.findings}


class TestOnPostgres(Services, StoreOnPostgres):
    gone = Verdict.MISSING_HERE  # another machine may have it

    def fill(self) -> None:
        """Name the folder: by default bodies lie in the database."""
        (self.home / "config").mkdir(parents=True)
        settings = f"providers:\n  blob: {{type: filesystem, path: {self.home / 'blobs'}}}\n"
        (self.home / "config" / "config.yaml").write_text(settings)
        super().fill()

    def attack(self, statement: str) -> None:
        with psycopg.connect(str(self.url), autocommit=True, options="-c search_path=membrane") as server:
            server.execute("SET session_replication_role = replica")
            server.execute(statement.encode())


class TestInMemory(StoreInMemory):
    def test_nothing_is_looked_at(self) -> None:
        with self.open() as store:
            store.blobs.put("small", b"small")
            assert store.verify.run().ok
