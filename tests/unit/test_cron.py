"""Cron expressions: beside a walk over every minute, and the mistakes people make in them."""

import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdproof.errors import CronError, InvalidInputError
from holdproof.model.cron import Cron

MINUTE = timedelta(minutes=1)
# Clocks set forward or back: at night, at midnight, by half an hour, over the date line, on a Friday, in winter.
CHANGES = {
    "Europe/Berlin": ("2026-03-29T01:00", "2026-10-25T01:00"),
    "America/New_York": ("2026-03-08T07:00", "2026-11-01T06:00"),
    "America/Havana": ("2026-03-08T05:00", "2026-11-01T05:00"),
    "Australia/Lord_Howe": ("2026-04-04T15:00", "2026-10-03T15:30"),
    "Pacific/Apia": ("2011-12-30T10:00", "2011-04-02T14:00"),
    "Asia/Gaza": ("2026-03-28T00:00", "2026-10-30T23:00"),
    "Africa/Casablanca": ("2026-02-15T02:00", "2026-03-22T02:00"),
    "Asia/Kolkata": ("2026-01-01T00:00",),
    "UTC": ("2028-02-29T00:00",),
}


def parse(expression: str, zone: str) -> Cron:
    """Parse an expression that was drawn; days that never come, as the 31st of April, are no example."""
    try:
        return Cron.parse(expression, zone)
    except CronError as error:
        assume("never fire" not in error.message)
        raise


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# --- the oracle: expands fields its own way, and walks every minute ------------------------------------------------

FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def expand(word: str, least: int, most: int) -> set[int]:
    numbers: set[int] = set()
    for item in word.split(","):
        span, _, step = item.partition("/")
        first, _, last = span.partition("-")
        if first == "*":
            low, high = least, 6 if most == 7 else most
        else:
            low = int(first)
            high = int(last) if last else most if step else low
        numbers |= {n for n in range(low, high + 1) if (n - low) % int(step or 1) == 0}
    return {0 if most == 7 and n == 7 else n for n in numbers}


def walk(expression: str, zone: zoneinfo.ZoneInfo, start: datetime, end: datetime) -> Iterator[datetime]:
    words = expression.split()
    minutes, hours, days, months, weekdays = (expand(word, *field) for word, field in zip(words, FIELDS, strict=True))
    both = words[2].startswith("*") or words[4].startswith("*")

    def matches(wall: datetime) -> bool:
        by_month = wall.day in days
        by_week = wall.isoweekday() % 7 in weekdays
        day = (by_month and by_week) if both else (by_month or by_week)
        return wall.minute in minutes and wall.hour in hours and day and wall.month in months

    every_hour = len(hours) == 24
    instant = start
    while instant < end:
        local = instant.astimezone(zone)
        walls = [local.replace(tzinfo=None, fold=0)]
        if not every_hour:
            if local.fold:
                walls = []
            # What the clocks skipped since the minute before.
            previous = (instant - MINUTE).astimezone(zone).replace(tzinfo=None, fold=0)
            skipped = previous + MINUTE
            while skipped < local.replace(tzinfo=None, fold=0):
                walls.append(skipped)
                skipped += MINUTE
        if any(map(matches, walls)):
            yield instant
        instant += MINUTE


# --- expressions ---------------------------------------------------------------------------------------------------


def words(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    bare = st.one_of(st.just("*"), number.map(str), span)
    stepped = st.tuples(bare, st.integers(1, min(most, 12))).map(lambda pair: f"{pair[0]}/{pair[1]}")
    return st.one_of(st.just("*"), st.lists(st.one_of(bare, stepped), min_size=1, max_size=3).map(",".join))


EXPRESSIONS = st.tuples(*(words(*field) for field in FIELDS)).map(" ".join)
PLACES = st.sampled_from([(zone, each) for zone, changes in CHANGES.items() for each in changes])


@given(EXPRESSIONS, PLACES, st.integers(-1_000, 500))
@settings(max_examples=60, deadline=None)
def test_the_instants_are_those_of_a_walk_over_every_minute(
    expression: str, place: tuple[str, str], before: int
) -> None:
    zone, change = place
    start = moment(change) + before * MINUTE
    end = start + timedelta(days=1, hours=3)
    cron = parse(expression, zone)
    assert [*cron.between(start, end)] == [*walk(expression, zoneinfo.ZoneInfo(zone), start, end)]


@given(st.tuples(*(words(*field) for field in FIELDS[2:])).map(" ".join), st.sampled_from(sorted(CHANGES)))
@settings(max_examples=15, deadline=None)
def test_days_far_away_are_those_of_a_walk(days: str, zone: str) -> None:
    start = moment("2027-12-20T00:00")
    end = start + timedelta(days=200)
    for times in ("30 2", "0 *"):
        expression = f"{times} {days}"
        cron = parse(expression, zone)
        instants = [*cron.between(start, end)]
        assert instants == sorted(set(instants))
        # One look at the walk around each of some instants: all of 200 days would take minutes.
        for instant in instants[:: max(1, len(instants) // 3)]:
            first = max(start, instant - timedelta(hours=5))
            last = min(end, instant + timedelta(hours=5))
            expected = [*walk(expression, zoneinfo.ZoneInfo(zone), first, last)]
            assert [each for each in instants if first <= each < last] == expected


@given(EXPRESSIONS, PLACES, st.integers(0, 3 * 86_400_000_000))
@settings(max_examples=60, deadline=None)
def test_the_next_instant_is_later_and_nothing_lies_between(
    expression: str, place: tuple[str, str], micros: int
) -> None:
    zone, change = place
    instant = moment(change) - timedelta(days=1) + timedelta(microseconds=micros)
    cron = parse(expression, zone)
    following = cron.next_after(instant)
    assert following is not None
    assert following > instant
    assert cron.next_after(following - timedelta(microseconds=1)) == following
    assert [*cron.between(instant + timedelta(microseconds=1), following)] == []


# --- clocks --------------------------------------------------------------------------------------------------------


def hours(first: int, end: int, rest: str) -> list[str]:
    return [f"{hour:02}{rest}" for hour in range(first, end)]


def instants(expression: str, zone: str, day: str) -> list[str]:
    """The wall-clock times, with their offsets, at which a schedule fires on a local day."""
    midnight = datetime.fromisoformat(day).replace(tzinfo=zoneinfo.ZoneInfo(zone))
    cron = Cron.parse(expression, zone)
    fires = cron.between(midnight.astimezone(UTC), (midnight + timedelta(days=1)).astimezone(UTC))
    return [each.astimezone(zoneinfo.ZoneInfo(zone)).strftime("%H:%M%z") for each in fires]


@pytest.mark.parametrize(
    ("expression", "zone", "day", "expected"),
    [
        # 02:00 to 03:00 does not exist: the first instant after it, once.
        ("30 2 * * *", "Europe/Berlin", "2026-03-29", ["03:00+0200"]),
        ("0,30 2,3 * * *", "Europe/Berlin", "2026-03-29", ["03:00+0200", "03:30+0200"]),
        ("30 1,2,4 * * *", "Europe/Berlin", "2026-03-29", ["01:30+0100", "03:00+0200", "04:30+0200"]),
        # 02:00 to 03:00 comes twice: the first time only.
        ("30 2 * * *", "Europe/Berlin", "2026-10-25", ["02:30+0200"]),
        # Every hour: elapsed time, nothing in the gap, and both times where an hour comes twice.
        ("30 * 29 3 *", "Europe/Berlin", "2026-03-29", ["00:30+0100", "01:30+0100", *hours(3, 24, ":30+0200")]),
        ("0 * * * *", "America/New_York", "2026-11-01", ["00:00-0400", "01:00-0400", *hours(1, 24, ":00-0500")]),
        # Midnight does not exist.
        ("@daily", "America/Havana", "2026-03-08", ["01:00-0400"]),
        # A day does not exist: its firing comes at the first instant of the next day, beside that day's own.
        ("0 9 * * *", "Pacific/Apia", "2011-12-31", ["00:00+1400", "09:00+1400"]),
        # Half an hour.
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-04", ["02:30+1100"]),
    ],
)  # fmt: skip
def test_clocks_set_forward_and_back(expression: str, zone: str, day: str, expected: list[str]) -> None:
    assert instants(expression, zone, day) == expected


def test_seconds_come_first() -> None:
    cron = Cron.parse("*/20 30 9 * * *", "Asia/Kolkata")
    start = moment("2026-05-01T04:00:00")
    fires = [each.strftime("%H:%M:%S") for each in cron.between(start, start + timedelta(hours=1))]
    assert fires == ["04:00:00", "04:00:20", "04:00:40"]


def test_the_end_of_a_range_is_not_in_it() -> None:
    cron = Cron.parse("0 * * * *")
    noon = moment("2026-05-01T12:00")
    assert [*cron.between(noon, noon + timedelta(hours=1))] == [noon]
    assert [*cron.between(noon, noon)] == []


def test_leap_days_are_found_over_a_century_without_one() -> None:
    cron = Cron.parse("0 0 29 2 *")
    assert cron.next_after(moment("2096-03-01T00:00")) == moment("2104-02-29T00:00")


def test_the_calendar_ends() -> None:
    assert Cron.parse("0 0 1 1 *").next_after(datetime(9999, 12, 31, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    ("word", "same"),
    [
        ("@yearly", "0 0 1 1 *"), ("@annually", "0 0 1 JAN *"), ("@monthly", "0 0 1 * *"), ("@weekly", "0 0 * * SUN"),
        ("@daily", "0 0 * * *"), ("@midnight", "0 0 */1 * *"), ("@HOURLY", "0 * * * *"),
        ("0 0 * * 7", "0 0 * * 0"), ("0 0 * * 5-7", "0 0 * * FRI,sat,Sun"), ("0 0 * * SAT-SUN", "0 0 * * 0,6"),
        ("0 0 1 jan-MAR *", "0 0 1 1,2,3 *"), ("10/20 * * * *", "10,30,50 * * * *"), (" 0  3 * * * ", "0 3 * * *"),
        ("0 3 * * *", "0 0 3 * * *"),
    ],
)  # fmt: skip
def test_the_same_schedule_in_other_words(word: str, same: str) -> None:
    start = moment("2026-02-25T00:00")
    end = start + timedelta(days=800)
    assert [*islice(Cron.parse(word).between(start, end), 50)] == [*islice(Cron.parse(same).between(start, end), 50)]


@pytest.mark.parametrize(
    ("expression", "position", "message"),
    [
        ("0 25 * * *", 3, "the hour '25' is not from 0 to 23"),
        ("60 * * * *", 1, "the minute '60'"),
        ("0 0 0 * *", 5, "the day of the month '0'"),
        ("0 0 1 foo *", 7, "the month 'foo' is not from 1 to 12, or JAN"),
        ("0 0 * * 1,8", 11, "the day of the week '8'"),
        ("0 0 * * 1-9", 11, "the day of the week '9'"),
        ("0 22-2 * * *", 3, "runs backwards: write 22-23,0-2"),
        ("*/0 * * * *", 3, "a step of the minute is from 1 to 59"),
        ("0 */99999999999 * * *", 5, "a step of the hour"),
        ("0,,1 * * * *", 3, "the minute ''"),
        ("1-2-3 * * * *", 4, "is not a number, a range, a list or a step"),
        ("*-3 * * * *", 2, "write * alone"),
        ("0 0 L * *", 5, "L, W, # and ? of other crons"),
        ("0 0 * * 5#2", 10, "L, W, # and ? of other crons"),
        ("0 0 ? * 1", 5, "L, W, # and ? of other crons"),
        ("0 3 * *", 8, "4 fields"),
        ("0 0 3 * * * 2026", 13, "7 fields"),
        ("", 1, "0 fields"),
        ("@reboot", 1, "@reboot is not one of @yearly"),
        ("@daily 3", 8, "nothing follows @daily"),
        ("0 0 30 2 *", 5, "never fire"),
        ("0 0 31 4,6 *", 5, "never fire"),
    ],
)
def test_a_mistake_is_named_with_its_position(expression: str, position: int, message: str) -> None:
    with pytest.raises(CronError) as caught:
        Cron.parse(expression)
    assert caught.value.fields["position"] == position
    assert message in caught.value.message


@pytest.mark.parametrize(
    "zone", ["Berlin", "", "../etc/passwd", "/etc/localtime", "Europe", "right/Europe/Berlin", "localtime", "a\0b"]
)
def test_what_is_no_time_zone_everywhere_is_refused(zone: str) -> None:
    with pytest.raises(InvalidInputError, match="there is no time zone") as caught:
        Cron.parse("0 3 * * *", zone)
    assert caught.value.fields["field"] == "timezone"


@pytest.mark.parametrize("text", ["0 3 * * *\n", "0\t3 * * *", "* " * 400, "0 3 * * \0"])
def test_what_is_no_line_of_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="cron must be a text"):
        Cron.parse(text)
