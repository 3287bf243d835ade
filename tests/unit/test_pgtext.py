"""PostgreSQL's text formats: parameters out, rows in, the same tuples as on SQLite."""

import enum
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("psycopg", reason="the postgres extra is not installed")

from holdproof.db.postgres.text import dump, loader
from holdproof.errors import InvalidInputError
from holdproof.model.times import to_micros, to_text

BOOL, BYTEA, INT8, TEXT, FLOAT8, TIMESTAMPTZ, NUMERIC, JSONB = 16, 17, 20, 25, 701, 1184, 1700, 3802


class _Colour(str, enum.Enum):  # noqa: UP042 (such enums print as `_Colour.RED`)
    RED = "red"


class _Level(enum.IntEnum):
    HIGH = 3


class _Ratio(float):
    def __repr__(self) -> str:
        return "a ratio"


@pytest.mark.parametrize(
    ("value", "dumped"),
    [
        (None, (None, 0)),
        ("é中", ("é中".encode(), 0)),
        ("", (b"", 0)),
        (-7, (b"-7", 0)),
        (2**62, (b"4611686018427387904", 0)),
        (0.1, (b"0.1", 0)),
        (math.inf, (b"inf", 0)),
        (True, (b"1", 0)),
        (False, (b"0", 0)),
        (b"\x00\xff", (b"\x00\xff", 1)),
        (bytearray(b"ab"), (b"ab", 1)),
        (memoryview(b"ab"), (b"ab", 1)),
        (_Colour.RED, (b"red", 0)),
        (_Level.HIGH, (b"3", 0)),
        (_Ratio(0.5), (b"0.5", 0)),
    ],
)
def test_a_parameter_becomes_bytes_and_their_format(value: Any, dumped: tuple[bytes | None, int]) -> None:
    assert dump("x", value) == dumped


@pytest.mark.parametrize("value", ["a\0b", "\0"], ids=repr)
def test_a_nul_character_is_refused_by_name(value: str) -> None:
    with pytest.raises(InvalidInputError, match="body") as caught:
        dump("body", value)
    assert caught.value.fields == {"parameter": "body"}


@pytest.mark.parametrize("value", [object(), [1], {"a": 1}, 1j], ids=["object", "list", "dict", "complex"])
def test_a_value_no_column_takes_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidInputError, match="body"):
        dump("body", value)


def test_a_text_that_is_no_unicode_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="body"):
        dump("body", "\ud800")


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_text_goes_out_and_comes_back(value: str) -> None:
    data, form = dump("x", value)
    assert data is not None
    assert (loader(TEXT)(data), loader(JSONB)(data), form) == (value, value, 0)


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_go_out_and_come_back(value: int) -> None:
    data, _ = dump("x", value)
    assert data is not None
    assert (loader(INT8)(data), loader(NUMERIC)(data)) == (value, value)


@given(st.floats(allow_nan=False))
def test_floats_go_out_and_come_back(value: float) -> None:
    data, _ = dump("x", value)
    assert data is not None
    back = loader(FLOAT8)(data)
    assert back == value
    assert type(back) is float


@given(st.binary())
def test_blobs_come_back_from_hex(value: bytes) -> None:
    assert loader(BYTEA)(b"\\x" + value.hex().encode()) == value


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"12", 12), (b"-12", -12), (b"1.50", 1.5), (b"-0.25", -0.25), (b"1" * 30, int("1" * 30))],
)
def test_whole_numerics_are_ints_and_others_floats(data: bytes, value: float) -> None:
    back = loader(NUMERIC)(data)
    assert back == value
    assert type(back) is type(value)


def test_a_numeric_that_is_no_number_is_a_float() -> None:
    assert math.isnan(loader(NUMERIC)(b"NaN"))


def test_truth_is_one_or_zero() -> None:
    assert [loader(BOOL)(data) for data in (b"t", b"f")] == [1, 0]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"2026-01-31 12:00:00+00", "2026-01-31T12:00:00.000000Z"),
        (b"2026-01-31 12:00:00.5+00", "2026-01-31T12:00:00.500000Z"),
        (b"2026-01-31 12:00:00.000001+00", "2026-01-31T12:00:00.000001Z"),
        (b"0001-01-01 00:00:00+00", "0001-01-01T00:00:00.000000Z"),
    ],
)
def test_times_are_our_text(data: bytes, text: str) -> None:
    assert loader(TIMESTAMPTZ)(data) == text


@given(st.integers(0, to_micros("9999-12-31T23:59:59.999999Z")))
def test_any_time_the_server_prints_is_the_text_we_gave_it(micros: int) -> None:
    ours = to_text(micros)
    printed = ours[:-1].replace("T", " ").rstrip("0").rstrip(".") if "." in ours else ours
    theirs = printed if len(printed) > 19 else ours[:19].replace("T", " ")
    assert loader(TIMESTAMPTZ)(theirs.encode() + b"+00") == ours


def test_a_type_without_a_reader_of_its_own_is_text() -> None:
    assert loader(999_999)(b"anything") == "anything"
