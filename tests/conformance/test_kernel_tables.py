"""The tables of the kernel schema are all accounted for, on both databases."""

import subprocess
import sys

from holdproof import Tx, sql, sync
from holdproof.upkeep import kernel_tables
from tests.conformance.decisions import OnPostgres, OnSqlite, OnStore

# The text search of SQLite has shadow tables of its own, made from `object_text`.
_NAMES = sql(
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    " AND name NOT LIKE 'object_search%'",
    postgres="SELECT CAST(tablename AS TEXT) FROM pg_tables WHERE schemaname = current_schema()",
)


def _tables(tx: Tx) -> set[str]:
    return {name for (name,) in tx.all(_NAMES)}


class KernelTables(OnStore):
    def test_every_table_is_under_the_log_or_named_as_outside_it(self, store: sync.Holdproof) -> None:
        tables = store.read(_tables)
        assert tables - kernel_tables.LOGGED.keys() - kernel_tables.OUTSIDE == set()
        assert kernel_tables.LOGGED.keys() <= tables
        assert kernel_tables.LOGGED.keys() & kernel_tables.OUTSIDE == set()

    def test_every_table_with_a_leaf_is_under_the_log(self, store: sync.Holdproof) -> None:
        columns = sql(
            "SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE c.name = 'leaf_salt'",
            postgres="SELECT CAST(table_name AS TEXT) FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND column_name = 'leaf_salt'",
        )
        assert {name for (name,) in store.read(lambda tx: tx.all(columns))} == kernel_tables.LOGGED.keys()


class TestSqliteTables(OnSqlite, KernelTables):
    def test_only_tables_that_one_database_needs_are_missing_on_the_other(self, store: sync.Holdproof) -> None:
        assert kernel_tables.OUTSIDE - store.read(_tables) == {"commit_marks", "log_pending"}


class TestPostgresTables(OnPostgres, KernelTables):
    pass


def test_the_lists_are_complete_in_a_process_that_imported_nothing_else() -> None:
    script = "from holdproof.upkeep import kernel_tables as k; print(*k.LOGGED)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [*kernel_tables.LOGGED]
