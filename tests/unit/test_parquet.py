"""Parquet files that we write, read by DuckDB."""

from pathlib import Path
from typing import Any

import duckdb
import pytest

from holdproof.content import parquet
from holdproof.content.parquet import ParquetColumn

COLUMNS = [
    ParquetColumn("number", "number", optional=False),
    ParquetColumn("at", "moment", optional=False),
    ParquetColumn("note", "text", optional=True),
    ParquetColumn("text", "text", optional=False),
]


def read(tmp_path: Path, groups: list[list[list[Any]]]) -> list[tuple[Any, ...]]:
    path = tmp_path / "t.parquet"
    path.write_bytes(b"".join(parquet.write(COLUMNS, groups)))
    rows: list[tuple[Any, ...]] = (
        duckdb.connect().execute(f"SELECT number, note, text, epoch_us(\"at\") FROM '{path}'").fetchall()
    )
    return rows


@pytest.mark.parametrize("counts", [[0], [1], [3, 0, 200], [1000, 1, 999]])
def test_duckdb_reads_what_was_written(tmp_path: Path, counts: list[int]) -> None:
    rows = [
        [each, "2026-01-01T00:00:00.000001Z", None if each % 3 else f"é{each}", "x" * each]
        for each in range(sum(counts))
    ]
    groups = [[rows.pop(0) for _ in range(count)] for count in counts]
    wanted = [(row[0], row[2], row[3], 1_767_225_600_000_001) for group in groups for row in group]
    assert read(tmp_path, groups) == wanted


def test_a_column_of_nothing_and_a_text_that_is_no_utf_8_are_read(tmp_path: Path) -> None:
    [row] = read(tmp_path, [[[2**63 - 1, "1969-12-31T23:59:59.000000Z", None, "\ud800"]]])
    assert row == (2**63 - 1, None, "\\ud800", -1_000_000)


def test_the_same_rows_give_the_same_bytes() -> None:
    rows = [[1, "2026-01-01T00:00:00.000001Z", None, "x"]]
    assert [*parquet.write(COLUMNS, [rows])] == [*parquet.write(COLUMNS, [rows])]
