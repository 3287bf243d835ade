"""Timestamp identifiers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import tid
from holdproof.errors import FormatError, InvalidInputError

MICROS = st.integers(0, tid.MAX_MICROS)
CLOCKS = st.integers(0, tid.MAX_CLOCK)


@pytest.mark.parametrize("text", ["3jzfcijpj2z2a", "7777777777777", "3zzzzzzzzzzzz", "2222222222222"])  # atproto.com
def test_the_published_examples_are_read_and_written_alike(text: str) -> None:
    assert tid.encode(*tid.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "3jzfcijpj2z21",
        "0000000000000",
        "3JZFCIJPJ2Z2A",
        "3jzfcijpj2z2aa",
        "3jzfcijpj2z2",
        "222",
        "3jzf-cij-pj2z-2a",
        "zzzzzzzzzzzzz",  # the highest bit
        "kjzfcijpj2z2a",
        "",
        "3jzfcijpj2z2a\n",
    ],
)
def test_the_published_counterexamples_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        tid.parse(text)


def test_a_known_moment_has_a_known_text() -> None:
    assert tid.encode(1_700_000_000_000_000, 0) == "3ke6kg3wk2222"
    assert tid.parse("3ke6kg3wk2222") == (1_700_000_000_000_000, 0)


@given(MICROS, CLOCKS)
def test_moment_and_clock_survive(micros: int, clock: int) -> None:
    text = tid.encode(micros, clock)
    assert len(text) == 13
    assert tid.parse(text) == (micros, clock)


@given(MICROS, CLOCKS, MICROS, CLOCKS)
def test_the_order_of_texts_is_the_order_of_moments(a: int, a_clock: int, b: int, b_clock: int) -> None:
    assert (tid.encode(a, a_clock) < tid.encode(b, b_clock)) == ((a, a_clock) < (b, b_clock))


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=20), CLOCKS)
def test_the_next_one_is_always_later_even_if_the_clock_steps_back(moments: list[int], clock: int) -> None:
    last: str | None = None
    for micros in moments:
        following = tid.after(last, micros, clock)
        assert last is None or following > last
        assert tid.parse(following)[0] >= micros
        last = following


def test_a_clock_that_runs_keeps_its_moments() -> None:
    assert tid.after(tid.encode(5), 9) == tid.encode(9)
    assert tid.after(tid.encode(9), 5) == tid.encode(10)
    assert tid.after(None, 5, 3) == tid.encode(5, 3)


@pytest.mark.parametrize(("micros", "clock"), [(-1, 0), (2**53, 0), (0, -1), (0, 1024)])
def test_numbers_out_of_range_are_refused(micros: int, clock: int) -> None:
    with pytest.raises(InvalidInputError):
        tid.encode(micros, clock)


def test_the_last_moment_has_the_last_text() -> None:
    assert tid.encode(2**53 - 1, 1023) == "bzzzzzzzzzzzz"
    assert tid.parse("bzzzzzzzzzzzz") == (2**53 - 1, 1023)


def test_after_the_last_moment_there_is_none() -> None:
    with pytest.raises(InvalidInputError):
        tid.after(tid.encode(tid.MAX_MICROS), 0)
