"""Parquet files that we write, read by DuckDB and by ourselves."""

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.content import parquet, parquet_reader
from holdproof.content.parquet import ParquetColumn
from holdproof.errors import FormatError
from holdproof.model.times import to_text

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


def read_back(data: bytes) -> list[tuple[Any, ...]]:
    return [row for group in parquet_reader.read(io.BytesIO(data), COLUMNS) for row in group]


ROWS: Any = st.lists(
    st.tuples(
        st.integers(0, 2**63 - 1),
        st.integers(-(10**16), 10**17).map(to_text),
        st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        st.text(st.characters(exclude_categories=["Cs"])),
    ),
    max_size=20,
)


@given(st.lists(ROWS, max_size=3))
def test_the_reader_gives_back_what_was_written(groups: list[list[tuple[Any, ...]]]) -> None:
    data = b"".join(parquet.write(COLUMNS, groups))
    assert read_back(data) == [row for group in groups for row in group]


@given(ROWS, st.data())
def test_the_reader_refuses_damaged_bytes_or_reads_rows_and_does_nothing_else(
    rows: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    whole = bytearray(b"".join(parquet.write(COLUMNS, [rows])))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    for damaged in (bytes(whole), bytes(whole[:cut])):
        with suppress(FormatError):
            read_back(damaged)


def test_the_reader_refuses_other_columns() -> None:
    data = b"".join(parquet.write(COLUMNS[:2], [[[1, "2026-01-01T00:00:00.000001Z"]]]))
    with pytest.raises(FormatError, match="other columns"):
        read_back(data)
