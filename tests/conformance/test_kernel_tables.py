"""Every table and column of the kernel schema is accounted for, on both databases, and the documents say the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdproof import Tx, sql, sync
from holdproof.model.coverage import Cover, Coverage
from holdproof.upkeep import kernel_tables
from tests.conformance.decisions import OnPostgres, OnSqlite, OnStore

# The text search of SQLite has shadow tables of its own: they are `object_search`.
_NAMES = sql(
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    " AND name NOT LIKE 'object_search!_%' ESCAPE '!'",
    postgres="SELECT CAST(tablename AS TEXT) FROM pg_tables WHERE schemaname = current_schema()",
)


_COLUMNS = sql(
    "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'"
    " AND m.name NOT LIKE 'sqlite_%' AND m.name NOT LIKE 'object_search!_%' ESCAPE '!'",
    postgres="SELECT CAST(table_name AS TEXT), CAST(column_name AS TEXT) FROM information_schema.columns"
    " WHERE table_schema = current_schema()",
)
ONE_ONLY = {"commit_marks", "log_pending", "object_search"}
"""Tables that only one of the databases has."""


def _columns(tx: Tx) -> dict[str, set[str]]:
    tables: dict[str, set[str]] = {}
    for table, column in tx.all(_COLUMNS):
        tables.setdefault(table, set()).add(column)
    return tables


def _tables(tx: Tx) -> set[str]:
    return {name for (name,) in tx.all(_NAMES)}


class KernelTables(OnStore):
    def test_every_table_is_under_the_log_or_named_as_outside_it(self, store: sync.Holdproof) -> None:
        tables = store.read(_tables)
        assert tables - kernel_tables.LOGGED.keys() - kernel_tables.OUTSIDE == set()
        assert kernel_tables.LOGGED.keys() <= tables
        assert kernel_tables.LOGGED.keys() & kernel_tables.OUTSIDE == set()

    def test_every_column_is_covered_or_declared_as_not_covered(self, store: sync.Holdproof) -> None:
        declared = {table: {*columns} for table, columns in kernel_tables.COVERAGE.items()}
        schema = store.read(_columns)
        assert schema == {table: columns for table, columns in declared.items() if table in schema}
        assert declared.keys() - schema.keys() <= ONE_ONLY

    def test_verify_prints_what_is_not_covered(self, store: sync.Holdproof) -> None:
        report = store.verify.run(lock=False)
        assert report.not_covered == report.to_dict()["not_covered"] == [*kernel_tables.NOT_COVERED]
        # Among them what a reader would not expect: inputs of functions, results of repeated calls, conversations.
        text = "\n".join(report.not_covered)
        for name in ("idempotency_cache", "transcripts", "threads", "lock_fences", "membrane.db"):
            assert name in text

    def test_every_table_with_a_leaf_is_under_the_log(self, store: sync.Holdproof) -> None:
        columns = sql(
            "SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE c.name = 'leaf_salt'",
            postgres="SELECT CAST(table_name AS TEXT) FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND column_name = 'leaf_salt'",
        )
        assert {name for (name,) in store.read(lambda tx: tx.all(columns))} == kernel_tables.LOGGED.keys()


class TestSqliteTables(OnSqlite, KernelTables):
    def test_only_tables_that_one_database_needs_are_missing_on_the_other(self, store: sync.Holdproof) -> None:
        assert kernel_tables.OUTSIDE - store.read(_tables) == ONE_ONLY - {"object_search"}


class TestPostgresTables(OnPostgres, KernelTables):
    pass


def test_the_lists_are_complete_in_a_process_that_imported_nothing_else() -> None:
    script = "from holdproof.upkeep import kernel_tables as k; print(*k.LOGGED)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [*kernel_tables.LOGGED]


# --- documents -----------------------------------------------------------------------------------------------------

_DOCS = Path(__file__).parents[2] / "docs"
_WORDS = {
    Cover.ENTRY: "log",
    Cover.REBUILT: "rebuilt and compared",
    Cover.HASHED: "hash only",
    Cover.NONE: "**not covered**",
}


def _coverage_table() -> list[str]:
    """The table of docs/format.md: for each table its columns, by what covers them."""
    lines = ["| table | columns | covered by |", "|---|---|---|"]
    for table, columns in sorted(kernel_tables.COVERAGE.items()):
        groups: dict[Coverage, list[str]] = {}
        for column, coverage in columns.items():
            if column not in ("leaf_id", "leaf_ver", "leaf_salt"):
                groups.setdefault(coverage, []).append(f"`{column}`")
        for coverage, names in groups.items():
            lines.append(f"| `{table}` | {', '.join(names)} | {_WORDS[coverage.cover]}: {coverage.by} |")
    return lines


@pytest.mark.parametrize(
    ("name", "mark", "lines"),
    [
        ("format.md", "covered columns", _coverage_table()),
        ("threat-model.md", "not covered", [f"- {line}" for line in kernel_tables.NOT_COVERED]),
    ],
)
def test_the_documents_list_what_the_declarations_say(name: str, mark: str, lines: list[str]) -> None:
    path = _DOCS / name
    begin = f"<!-- {mark}: made by tests/conformance/test_kernel_tables.py -->\n"
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    _, end, after = rest.partition(f"<!-- end of {mark} -->")
    assert end, f"{name} has lost the marks of its list"
    made = before + begin + "\n" + "\n".join(lines) + f"\n\n{end}{after}"
    if os.environ.get("HOLDPROOF_UPDATE_DOCS"):
        path.write_text(made, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == made, "run again with HOLDPROOF_UPDATE_DOCS=1"
