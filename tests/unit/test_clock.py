"""Time and ids: UUIDv7 that only grow, moments that go to text and back."""

import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.db.clock import Ids, system_clock, system_random
from holdproof.model.times import later, to_micros, to_text
from holdproof.testing import FrozenClock, SeededRandom

_NOW = to_micros("2026-01-01T00:00:00Z")
_LAST_MICROS = to_micros("9999-12-31T23:59:59.999999Z")
_MOMENTS = st.integers(0, _LAST_MICROS)
_VARIANT = uuid.RFC_4122


def _millis(text: str) -> int:
    return uuid.UUID(text).int >> 80


def _seven(text: str) -> bool:
    one = uuid.UUID(text)
    return str(one) == text and one.version == 7 and one.variant == _VARIANT


@given(_MOMENTS, st.integers(0, 2**32))
def test_a_first_id_is_a_valid_uuid_of_its_moment(micros: int, seed: int) -> None:
    made = Ids(SeededRandom(seed)).new(micros)
    assert _seven(made)
    assert _millis(made) == micros // 1000


@given(st.lists(_MOMENTS, min_size=2, max_size=50), st.integers(0, 2**32))
def test_ids_grow_strictly_whatever_the_clock_does(moments: list[int], seed: int) -> None:
    ids = Ids(SeededRandom(seed))
    made = [ids.new(micros) for micros in moments]
    assert made == sorted(set(made))
    assert all(map(_seven, made))
    highest = [max(moments[: at + 1]) // 1000 for at in range(len(moments))]
    assert [_millis(one) for one in made] == highest, "an id never claims an earlier moment than the one before it"


@pytest.mark.parametrize("step_s", [0, -1])
def test_ids_grow_strictly_through_refills_of_the_pool(step_s: int) -> None:
    clock, random = FrozenClock(), SeededRandom(3)
    ids, made = Ids(random), list[str]()
    for _ in range(3_000):  # the pool holds 256 steps
        made.append(ids.new(clock()))
        clock.advance(step_s)
    assert made == sorted(set(made))
    assert all(map(_seven, made))


def _extremes(byte: bytes) -> Callable[[int], bytes]:
    return lambda size: byte * size


@pytest.mark.parametrize("byte", [b"\x00", b"\xff"], ids=["zeros", "ones"])
def test_ids_grow_strictly_even_on_the_worst_randomness(byte: bytes) -> None:
    ids = Ids(_extremes(byte))
    made = [ids.new(_NOW) for _ in range(1_000)]
    assert made == sorted(set(made))
    assert all(map(_seven, made))


def test_an_id_that_has_no_room_left_borrows_the_next_millisecond() -> None:
    ids = Ids(SeededRandom())
    ids.new(_NOW)
    ids._tail = 2**48 - 1
    made = [ids.new(_NOW), ids.new(_NOW), ids.new(_NOW + 5_000)]
    assert [_millis(one) - _NOW // 1000 for one in made] == [1, 1, 5]
    assert all(map(_seven, made))


def test_two_makers_do_not_make_the_same_ids() -> None:
    one, other = Ids(system_random), Ids(system_random)
    assert not {one.new(_NOW) for _ in range(500)} & {other.new(_NOW) for _ in range(500)}


# --- moments ---------------------------------------------------------------------------------------------------------


@given(st.integers(to_micros("0001-01-01T00:00:00Z"), _LAST_MICROS))
def test_a_moment_goes_to_text_and_back(micros: int) -> None:
    text = to_text(micros)
    assert len(text) == 27
    assert text.endswith("Z")
    assert to_micros(text) == micros


@given(_MOMENTS, _MOMENTS)
def test_texts_sort_as_their_moments(one: int, other: int) -> None:
    assert (to_text(one) < to_text(other)) == (one < other)


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00", "2026-01-31", "2026-01-31 12:00:00.5", "noon", ""])
def test_a_time_without_a_zone_or_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"zone|isoformat"):
        to_micros(text)


@pytest.mark.parametrize(
    "text", ["2026-01-31T12:00:00Z", "2026-01-31T14:00:00+02:00", "2026-01-31 12:00:00.000000+00:00"]
)
def test_a_time_in_any_zone_is_the_same_moment(text: str) -> None:
    assert to_text(to_micros(text)) == "2026-01-31T12:00:00.000000Z"


@pytest.mark.parametrize(
    ("seconds", "then"),
    [(0.25, "2026-01-01T00:00:00.250000Z"), (-1, "2025-12-31T23:59:59.000000Z"), (0, "2026-01-01T00:00:00.000000Z")],
)
def test_later_counts_to_the_microsecond(seconds: float, then: str) -> None:
    assert later("2026-01-01T00:00:00Z", seconds) == then


def test_the_system_clock_counts_microseconds_since_1970() -> None:
    assert to_text(system_clock()) > "2024"
    assert system_clock() <= system_clock()
