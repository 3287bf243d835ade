"""Leaves: what a row commits to is canonical JSON, byte for byte."""

from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import canonical
from holdproof.errors import InvalidInputError
from holdproof.evidence.leaves import Projection

VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
COLUMNS = ("z", "id", "a_b", "A", "a", "amount", "leaf")


@given(row=st.fixed_dictionaries(dict.fromkeys(COLUMNS, VALUES)))
def test_the_content_of_a_row_is_what_canonical_json_gives(row: dict[str, Any]) -> None:
    made = Projection("table", 1, COLUMNS)
    expected = canonical.dumps(row)
    assert made.content(row) == expected
    assert made.commit(b"salt", row) == sha256(b"salt" + expected).hexdigest()


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**53, -(2**53), "\ud800", object(), {1: 2}, b"".join, b"a"]
)
def test_what_canonical_json_cannot_carry_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInputError):
        Projection("table", 1, ("a",)).content({"a": value})


def test_a_projection_names_its_columns_once_and_not_the_others() -> None:
    made = Projection("table", 2, ("b", "a"))
    assert made.name == "table/2"
    assert made.content({"a": 1, "b": 2, "c": 3}) == b'{"a":1,"b":2}'
    with pytest.raises(KeyError):
        made.content({"a": 1})
    with pytest.raises(AssertionError):
        Projection("table", 1, ("a", "a"))


def test_projections_are_values() -> None:
    assert Projection("t", 1, ("a", "b")) == Projection("t", 1, ("a", "b"))
    assert Projection("t", 1, ("a", "b")) != Projection("t", 1, ("b", "a"))
    assert len({Projection("t", 1, ("a",)), Projection("t", 1, ("a",))}) == 1
