"""What a run leaves out: only what another test of the same run holds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.default_run import is_thorough

ROOT = Path(__file__).resolve().parents[2]
_HOOK = """
import pytest
from tests import default_run

@pytest.fixture
def postgres(): ...

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    needless = set(default_run.left_out(items))
    items[:] = [item for item in items if item not in needless]
"""
_SUITE = """
import pytest
from tests.rerun import Rerun

class Suite:
    def test_a_rule(self): ...

    @pytest.mark.parametrize("case", ["a", "b"])
    def test_what_is_wrong_is_refused(self, case): ...

    @pytest.mark.parametrize("case", ["a", "b"])
    def test_a_value_comes_back(self, case): ...

class TestSqlite(Suite): ...
class TestMemory(Suite): ...

class TestPostgres(Suite):
    @pytest.fixture(autouse=True)
    def _place(self, postgres): ...

    def test_only_here(self): ...
"""
_ASKS = """
class Suite:
    disk = True

    def files(self): return [] if self.disk else None
    def test_a_rule(self): assert self.files() == []

class TestSqlite(Suite): ...
class TestMemory(Suite): ...
"""
_IN_VAIN = (
    "from test_locks import TestMemory as _Suite\nfrom tests.rerun import Rerun\nclass TestLocks(Rerun, _Suite): ...\n"
)
_ON_SQLITE = {f"TestSqlite::{name}" for name in ("test_a_rule", "test_what_is_wrong_is_refused[a]")} | {
    f"TestSqlite::{name}"
    for name in ("test_what_is_wrong_is_refused[b]", "test_a_value_comes_back[a]", "test_a_value_comes_back[b]")
}
_ON_POSTGRES = {name.replace("Sqlite", "Postgres") for name in _ON_SQLITE} | {"TestPostgres::test_only_here"}
_REFUSED_TWICE = "TestPostgres::test_what_is_wrong_is_refused[b]"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tests" / "conformance"
    folder.mkdir(parents=True)
    (tmp_path / "conftest.py").write_text(_HOOK)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return folder


def collected(tree: Path, *words: str) -> set[str]:
    """The tests that pytest would run, by class and name."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *words,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=tree.parents[1], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    return {line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line}


def test_a_suite_runs_once_on_a_file_and_a_refusal_has_one_case_on_postgresql(tree: Path) -> None:
    (tree / "test_locks.py").write_text(_SUITE)
    assert collected(tree) == _ON_SQLITE | _ON_POSTGRES - {_REFUSED_TWICE}


def test_a_suite_in_vain_stands_for_those_in_memory_and_on_a_file(tree: Path) -> None:
    (tree / "test_locks.py").write_text(_SUITE)
    (tree / "test_rerun.py").write_text(_IN_VAIN)
    in_vain = {name.replace("TestSqlite", "TestLocks") for name in _ON_SQLITE}
    assert collected(tree) == in_vain | _ON_POSTGRES - {_REFUSED_TWICE}


def test_what_asks_where_it_runs_runs_in_each_place(tree: Path) -> None:
    (tree / "test_locks.py").write_text(_ASKS)
    assert collected(tree) == {"TestSqlite::test_a_rule", "TestMemory::test_a_rule"}


def test_what_a_database_does_by_itself_runs_on_all_of_them(tree: Path) -> None:
    (tree / "test_database.py").write_text(_SUITE)
    on_file, server = _ON_SQLITE, _ON_POSTGRES
    assert collected(tree) == on_file | {name.replace("Sqlite", "Memory") for name in on_file} | server


def test_above_the_clients_the_first_test_and_what_has_no_twin_run_on_postgresql(tree: Path) -> None:
    (tree / "test_hooks.py").write_text(_SUITE)
    assert collected(tree) == _ON_SQLITE | {"TestPostgres::test_a_rule", "TestPostgres::test_only_here"}


def test_what_was_asked_for_by_name_runs_whole(tree: Path) -> None:
    (tree / "test_hooks.py").write_text(_SUITE)
    assert collected(tree, "-k", "Postgres") == _ON_POSTGRES


@pytest.mark.parametrize(("value", "thorough"), [("1", True), ("", False)])
def test_a_thorough_run_is_asked_for_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, value: str, thorough: bool
) -> None:
    monkeypatch.setenv("HOLDPROOF_THOROUGH", value)
    assert is_thorough() is thorough
