"""Every table under the log, every column of it: what is edited, deleted or added there past Holdproof is found.

The attacks of the specification, one by one, are in test_tamper.py. Here nothing is left out because nobody thought of
it.
"""

from pathlib import Path

import psycopg
import pytest

from harness.filling import dispute, fill
from harness.raw_access import attack, behind, copy
from holdproof import errors, sync
from holdproof.model.verify import Report
from holdproof.upkeep import kernel_tables

TABLES = tuple(kernel_tables.LOGGED.values())
ATTACKED = tuple(table for table in TABLES if table.table != "schema_migrations")
NAMES = {table.table for table in ATTACKED}
WIDEST = max(len(table.columns) for table in ATTACKED)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("everything") / "home"
    for number in range(2):  # each restore is a row of its own
        with sync.open(home) as store:
            if number == 0:
                fill(store)
                dispute(store)
            store.backup.create(home.parent / f"backup{number}", keys=True)
        sync.restore(home.parent / f"backup{number}", home)
    report = sync.verify(home, full=True, lock=False)
    assert report.findings == [], report.to_dict()
    assert all(report.checked[table.table] >= 2 for table in TABLES), report.checked
    return home


def named(report: Report) -> set[str]:
    """The tables that findings grave enough to lock speak of."""
    return {finding.table for finding in report.findings if finding.verdict.locks}


@pytest.mark.parametrize("number", range(WIDEST))
def test_an_edit_of_any_column_of_any_table_is_found(template: Path, tmp_path: Path, number: int) -> None:
    home = copy(template, tmp_path / "home")
    attacked = [table for table in ATTACKED if number < len(table.columns)]
    with behind(home) as connection:
        for table in attacked:
            name, column = table.table, table.columns[number]
            other = (
                f"CASE typeof({column}) WHEN 'text' THEN {column} || 'x' WHEN 'null' THEN 'x' ELSE {column} + 1000 END"
            )
            connection.execute(f"UPDATE {name} SET {column} = {other} WHERE rowid = (SELECT max(rowid) FROM {name})")
    assert {table.table for table in attacked} <= named(sync.verify(home, lock=False))


def test_a_deleted_row_of_any_table_is_found(template: Path, tmp_path: Path) -> None:
    home = copy(template, tmp_path / "home")
    attack(home, *(f"DELETE FROM {name} WHERE rowid = (SELECT max(rowid) FROM {name})" for name in NAMES))
    assert named(sync.verify(home, lock=False)) >= NAMES


def test_rows_of_any_table_that_were_swapped_are_found(template: Path, tmp_path: Path) -> None:
    """The first and the last one change places: each has the leaf and the salt of the other."""
    home = copy(template, tmp_path / "home")
    with behind(home) as connection:
        for name in NAMES:
            places = connection.execute(f"SELECT min(rowid), max(rowid) FROM {name}").fetchall()[0]
            marks = [
                connection.execute(f"SELECT leaf_id, leaf_ver, leaf_salt FROM {name} WHERE rowid = ?", (place,)).get
                for place in places
            ]
            for place, mark in zip(places, reversed(marks), strict=True):
                connection.execute(
                    f"UPDATE {name} SET leaf_id = ?, leaf_ver = ?, leaf_salt = ? WHERE rowid = ?", (*mark, place)
                )
    assert named(sync.verify(home, lock=False)) >= NAMES


MIGRATIONS = {
    "name": "UPDATE schema_migrations SET name = name || 'x' WHERE name LIKE '0007%'",
    "hash": "UPDATE schema_migrations SET sha256 = 'x' || sha256 WHERE name LIKE '0007%'",
    "deleted": "DELETE FROM schema_migrations WHERE name LIKE '0007%'",
}


@pytest.mark.parametrize("name", MIGRATIONS)
def test_a_migration_that_is_not_ours_is_refused_or_found(template: Path, tmp_path: Path, name: str) -> None:
    """Such a store is not even opened, by this version or any other."""
    home = copy(template, tmp_path / "home")
    attack(home, MIGRATIONS[name])
    try:
        report = sync.verify(home, lock=False)
    except (errors.NewerStoreError, errors.MigrationError):
        return
    assert report.verdict.locks


# --- PostgreSQL --------------------------------------------------------------------------------------------------

_OTHER = {
    "json": "CAST('{{\"x\": 1}}' AS JSON)",
    "text": "coalesce({0}, '') || 'x'",
    "bigint": "coalesce({0}, 0) + 1000",
    "integer": "coalesce({0}, 0) + 1000",
    "double precision": "coalesce({0}, 0) + 1",
    "timestamp with time zone": "coalesce({0}, now()) + interval '1 second'",
}
_TYPES = (
    "SELECT data_type FROM information_schema.columns"
    " WHERE table_schema = 'kernel' AND table_name = %s AND column_name = %s"
)


@pytest.mark.parametrize("what", ["edited", "deleted"])
def test_a_row_of_any_table_on_a_server_is_found(tmp_path: Path, postgres_url: str, what: str) -> None:
    home = tmp_path / "home"
    with sync.open(home, postgres_url) as store:
        fill(store)
    assert sync.verify(home, postgres_url, full=True, lock=False).findings == []
    attacked = NAMES - {"restores", "witness_disputes"}  # no row of theirs comes from filling a store
    with psycopg.connect(postgres_url, autocommit=True, options="-c search_path=kernel") as connection:
        connection.execute("SET session_replication_role = replica")  # no foreign key stands in the way
        for table in (each for each in ATTACKED if each.table in attacked):
            chosen = f"WHERE ctid = (SELECT max(ctid) FROM {table.table})"
            if what == "deleted":
                connection.execute(f"DELETE FROM {table.table} {chosen}".encode())
                continue
            column = table.columns[-2]
            [(kind,)] = connection.execute(_TYPES, (table.table, column)).fetchall()
            connection.execute(f"UPDATE {table.table} SET {column} = {_OTHER[kind].format(column)} {chosen}".encode())
    assert attacked <= named(sync.verify(home, postgres_url, lock=False))
