"""Hostile files at the door of imports: no views, no links, no pipes, no value without end."""

import os
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from holdproof import errors
from holdproof.db.sqlite import readonly
from holdproof.db.sqlite.readonly import foreign_rows, foreign_tables
from holdproof.importers import green_agent
from holdproof.importers.kgents import files

_ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS battle_id FROM n WHERE x < 0"


def _file(path: Path, *statements: str) -> Path:
    with closing(apsw.Connection(str(path))) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


@pytest.mark.parametrize("made", [f"CREATE VIEW battles AS {_ENDLESS}", "CREATE VIRTUAL TABLE battles USING fts5(x)"])
def test_a_view_or_a_virtual_table_is_no_table(tmp_path: Path, made: str) -> None:
    path = _file(tmp_path / "x.db", made)
    with pytest.raises(errors.FormatError), foreign_rows(path, "battles") as (_, rows):
        next(rows)
    with foreign_tables(path) as tables:
        assert "battles" not in {name for name, _ in tables}


@pytest.mark.parametrize("expression", ["json_patch(x, y)", "trim(x, y)", "unhex(x, y)"])
def test_a_computed_column_neither_holds_an_import_up_nor_spoils_the_file(tmp_path: Path, expression: str) -> None:
    table = f"CREATE TABLE battles (x TEXT, y TEXT, z TEXT AS ({expression}))"
    path = _file(tmp_path / "x.db", table, "INSERT INTO battles (x, y) VALUES ('{}', '{}')")
    with foreign_rows(path, "battles") as (columns, rows):  # SQLite does not list such a column among those of a table
        assert (columns, [*rows]) == (["x", "y"], [{"x": "{}", "y": "{}"}])


def test_a_value_that_is_too_long_ends_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readonly, "_LONGEST_BYTES", 10_000)
    path = _file(tmp_path / "x.db", "CREATE TABLE battles (x)", "INSERT INTO battles VALUES (zeroblob(100000))")
    with pytest.raises(errors.HoldproofError), foreign_rows(path, "battles") as (_, rows):
        list(rows)


def test_a_row_that_does_not_come_ends_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readonly, "_STEP_S", -1.0)
    monkeypatch.setattr(readonly, "_INSTRUCTIONS", 1)
    path = _file(tmp_path / "x.db", "CREATE TABLE battles (x)", "INSERT INTO battles VALUES (1), (2)")
    with pytest.raises(errors.ReadLimitError), foreign_rows(path, "battles") as (_, rows):
        list(rows)


def _link(path: Path) -> None:
    path.symlink_to(_file(path.with_name("real.db"), "CREATE TABLE battles (battle_id)"))


def _dangling(path: Path) -> None:
    path.symlink_to("/nowhere")


@pytest.mark.parametrize("make", [os.mkfifo, _link, _dangling, os.mkdir])
@pytest.mark.parametrize("name", ["x.db", "x.db-wal"])
def test_links_pipes_and_folders_are_not_read(tmp_path: Path, make: Callable[[Path], None], name: str) -> None:
    path = tmp_path / "x.db"
    if name != "x.db":
        _file(path, "CREATE TABLE battles (battle_id)")
    make(tmp_path / name)
    with pytest.raises(errors.FormatError), foreign_rows(path, "battles"):
        pass


@pytest.mark.parametrize("make", [os.mkfifo, _link, lambda path: path.symlink_to("/dev/zero")])
def test_a_dbom_that_is_a_link_or_a_pipe_is_named_and_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    dboms = tmp_path / "dboms"
    dboms.mkdir()
    make(dboms / "dbom_b-1.json")
    source = _file(tmp_path / "x.db", "CREATE TABLE battles (id, battle_id, timestamp, score, breakdown, raw_result)")
    [bom] = green_agent.load(source, dboms).boms
    assert bom.data == b""
    assert bom.parsed is None


def test_a_table_that_fills_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(green_agent, "_MOST_BYTES", 10_000)
    source = _file(
        tmp_path / "x.db",
        "CREATE TABLE battles (id, battle_id)",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 100)"
        " INSERT INTO battles SELECT x, printf('%200d', x) FROM n",
    )
    with pytest.raises(errors.ReadLimitError):
        green_agent.load(source, None)


def test_folders_nested_deeper_than_python_calls_itself_are_walked_in_order(tmp_path: Path) -> None:
    for name in ("a", "z"):
        (tmp_path / name).write_text(name)
    here = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(600):  # two calls for each folder were more than Python allows
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(os.open("deep", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    finally:
        os.close(here)
    found = [parts for _, parts in files.walk(tmp_path, Counter())]
    assert found == [("a",), (*["d"] * 600, "deep"), ("z",)]
