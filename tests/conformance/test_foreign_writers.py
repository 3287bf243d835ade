"""Other SQLite programs beside a store: they fold its write-ahead log without our page checksums."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.filling import populate, submit
from holdproof import errors, sync
from holdproof.db.sqlite import LITESTREAM, foreign_pages
from holdproof.model.verdicts import Verdict

_STOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
for statement in sys.argv[2:]:
    connection.execute(statement).fetchall()
connection.commit()
connection.close()
"""
_KILLED = """
import os, sys
from harness.filling import populate
from holdproof import sync
populate(sync.open(sys.argv[1]), 4)
os._exit(9)
"""


def stock(database: Path, *statements: str) -> None:
    """Run statements with the SQLite of the standard library; a process of its own, since locks are per process."""
    subprocess.run([sys.executable, "-c", _STOCK, str(database), *statements], check=True)


@pytest.fixture
def folded(tmp_path: Path) -> Path:
    """A store whose process was killed, and whose write-ahead log one SELECT of another program folded."""
    home = tmp_path / "home"
    ended = subprocess.run([sys.executable, "-c", _KILLED, str(home)], check=False, cwd=Path.cwd())
    assert ended.returncode == 9
    assert (home / "kernel.db-wal").stat().st_size
    stock(home / "kernel.db", "SELECT count(*) FROM battles")
    assert not (home / "kernel.db-wal").exists()
    return home


def test_a_store_folded_by_another_program_is_foreign_writer_and_not_locked(folded: Path) -> None:
    with pytest.raises(errors.CorruptError, match="another SQLite program"):
        sync.open(folded)
    report = sync.verify(folded, full=True)
    assert report.verdict is Verdict.FOREIGN_WRITER
    assert report.verdict.exit_code == 13
    assert [each.verdict for each in report.findings] == [Verdict.FOREIGN_WRITER]
    assert report.locked is None
    assert not (folded / "state" / "lockdown.json").exists()


def test_reseal_gives_back_a_store_that_opens_and_verifies(folded: Path) -> None:
    resealed = sync.reseal(folded)
    assert resealed.pages["kernel.db"] > 1
    assert foreign_pages(folded / "kernel.db") == []
    with sync.open(folded) as store:
        submit(store, "after", 0.5)
    report = sync.verify(folded, full=True)
    assert (report.verdict, report.findings) == (Verdict.VALID, [])
    assert sync.reseal(folded).pages["kernel.db"] == 0


def test_reseal_refuses_content_that_is_not_what_the_log_says(folded: Path) -> None:
    stock(folded / "kernel.db", "UPDATE battles SET score = 0.99 WHERE battle_id = 'b1'")
    assert sync.verify(folded, full=True, lock=False).verdict is Verdict.TAMPERED
    with pytest.raises(errors.CorruptError, match="nothing was resealed"):
        sync.reseal(folded)
    assert foreign_pages(folded / "kernel.db")


def test_reseal_refuses_a_store_in_use_and_one_on_a_server(tmp_path: Path) -> None:
    with sync.open(tmp_path), pytest.raises(errors.BusyError):
        sync.reseal(tmp_path)
    with pytest.raises(errors.InvalidInputError):
        sync.reseal(tmp_path, "postgresql://nobody@localhost/none")


def test_a_store_replicated_by_litestream_is_written_verified_and_backed_up(tmp_path: Path) -> None:
    """As Litestream does: its tables, and checkpoints of its own while the store is in use."""
    home = tmp_path / "home"
    database = home / "kernel.db"
    with sync.open(home) as store:
        populate(store, 4)
        stock(database, *LITESTREAM.values())
        for number in range(4):
            submit(store, f"beside{number}", 0.5)
            stock(database, "PRAGMA wal_checkpoint(PASSIVE)")
            assert len(store.evaluations.list(limit=100).items) == 8 + number
        report = store.verify.run(full=True)
        assert (report.verdict, report.findings) == (Verdict.VALID, [])
        assert any("Litestream" in each for each in report.not_checked)
        store.backup.create(tmp_path / "backup", keys=True)
    report = sync.verify(home, full=True)
    assert (report.verdict, report.findings) == (Verdict.VALID, [])
    sync.restore(tmp_path / "backup", tmp_path / "other")
    assert sync.verify(tmp_path / "other", full=True).verdict is Verdict.VALID


def test_a_table_that_only_sounds_like_litestreams_is_tampering(tmp_path: Path) -> None:
    sync.open(tmp_path).close()
    stock(tmp_path / "kernel.db", "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER, more TEXT)")
    assert sync.verify(tmp_path, lock=False).verdict is Verdict.TAMPERED


def test_looking_at_a_store_drops_none_of_its_locks(tmp_path: Path) -> None:
    """Closing any descriptor of a file drops the locks of the whole process on it."""
    with sync.open(tmp_path) as store:
        submit(store, "first", 0.5)
        inode = os.stat(tmp_path / "kernel.db").st_ino

        def locks() -> list[str]:
            lines = Path("/proc/locks").read_text().splitlines()
            return sorted(line.split(": ", 1)[1] for line in lines if f":{inode} " in line)

        before = locks()
        store.status()
        store.check()
        store.verify.run()
        assert before
        assert locks() == before
