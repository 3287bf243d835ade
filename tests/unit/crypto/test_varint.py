"""Varints: one number, one encoding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import varint
from holdproof.errors import FormatError, InvalidInputError


@pytest.mark.parametrize(  # the table of multiformats/unsigned-varint
    ("number", "text"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (255, "ff01"), (300, "ac02"), (16384, "808001")],
)
def test_the_published_examples_hold(number: int, text: str) -> None:
    assert varint.encode(number).hex() == text
    assert varint.decode(bytes.fromhex(text)) == (number, len(text) // 2)


@given(st.integers(0, varint.MAX), st.binary(max_size=3), st.binary(max_size=3))
def test_every_number_survives_between_other_bytes(number: int, before: bytes, after: bytes) -> None:
    data = varint.encode(number)
    assert len(data) <= varint.MAX_BYTES
    assert varint.decode(before + data + after, len(before)) == (number, len(before) + len(data))


@given(st.binary(max_size=12))
def test_an_accepted_varint_is_the_only_one_for_its_number(data: bytes) -> None:
    try:
        number, end = varint.decode(data)
    except FormatError:
        return
    assert varint.encode(number) == data[:end]


@pytest.mark.parametrize("text", ["", "80", "8000", "ff00", "80808000", "ffffffffffffffffff01", "80" * 9])
def test_padded_cut_and_long_ones_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        varint.decode(bytes.fromhex(text))


def test_the_largest_number_takes_nine_bytes() -> None:
    assert varint.encode(2**63 - 1).hex() == "ffffffffffffffff7f"
    assert varint.decode(bytes.fromhex("ffffffffffffffff7f")) == (2**63 - 1, 9)


@pytest.mark.parametrize("number", [-1, 2**63])
def test_a_number_out_of_range_is_refused(number: int) -> None:
    with pytest.raises(InvalidInputError):
        varint.encode(number)
