"""What only SQLite files must do."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import errors
from holdfast.db import Database, Tx, open_database
from holdfast.testing.schema import GET_COUNTER, MIGRATIONS, TAKE, add, value

_FOREIGN = """
import apsw, os, sys
connection = apsw.Connection(sys.argv[1])
connection.pragma("journal_mode", "wal")
connection.execute("CREATE TABLE theirs (n)")
connection.execute("INSERT INTO theirs VALUES (1)")
os._exit(0)  # as in a crash: the rows are in the log only
"""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with closing(open_database(tmp_path / "kernel.db", migrations=MIGRATIONS)) as database:
        yield database


def _bytes(folder: Path) -> dict[str, str]:
    files = (file for file in folder.iterdir() if not file.name.endswith("-shm"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_a_foreign_database_with_a_live_log_is_left_byte_for_byte(tmp_path: Path) -> None:
    file = tmp_path / "theirs.db"
    subprocess.run([sys.executable, "-c", _FOREIGN, str(file)], check=True)
    before = _bytes(tmp_path)
    assert "theirs.db-wal" in before
    with pytest.raises(errors.ForeignFileError):
        open_database(file)
    assert _bytes(tmp_path) == before


def test_every_folder_made_is_for_the_owner_only(tmp_path: Path) -> None:
    open_database(tmp_path / "a" / "b" / "kernel.db", migrations=MIGRATIONS).close()
    assert [f"{folder.stat().st_mode & 0o777:o}" for folder in (tmp_path / "a", tmp_path / "a" / "b")] == ["700", "700"]


def test_a_statement_with_returning_needs_no_reader_of_its_rows(db: Database) -> None:
    def spend(tx: Tx) -> int:
        add(tx, "c", 9)
        tx.execute(TAKE, name="c", expect=1)
        tx.execute(TAKE, name="c")
        return tx.count(TAKE, name="c")

    assert db.write(spend).result() == 1
    assert db.read(lambda tx: value(tx, "c")).result() == 6


@pytest.mark.parametrize("bad", [object(), 2**63, "\ud800"], ids=["object", "too large", "surrogate"])
def test_a_value_no_column_takes_is_a_typed_error(db: Database, bad: Any) -> None:
    with pytest.raises(errors.InvalidInputError):
        db.write(lambda tx: tx.all(GET_COUNTER, name=bad)).result()
