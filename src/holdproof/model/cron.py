"""Cron expressions: the instants at which a schedule fires.

    Cron.parse("0 3 * * MON-FRI", "Europe/Berlin").next_after(datetime.now(UTC))

Fields: minute, hour, day of the month, month, day of the week; with six, seconds come first. Each is `*`, a number, a
range `a-b`, any of them with a step `/n` (`a/n` runs from a to the end), or a list of these with commas. Months and
days of the week have names (`JAN`, `MON`, in any case); Sunday is 0 and 7. `@yearly`, `@monthly`, `@weekly`, `@daily`
and `@hourly` stand for the usual ones.

Rules:
- As in crontab(5): a day must match both day fields if one of them begins with `*`, and one of the two otherwise.
- A schedule that names every hour fires at every instant whose wall-clock time matches: twice where clocks are set
  back, so that "every quarter of an hour" stays one.
- Any other fires once for each wall-clock time that matches: the first time where clocks are set back; and for times
  that are skipped where clocks are set forward once, at the first instant after them.
- The time zone data are those of the machine.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdproof.errors import CronError, InvalidInputError

_MONTHS: Final = {
    "JAN": 1,
    "FEB": 2,
    "MAR": 3,
    "APR": 4,
    "MAY": 5,
    "JUN": 6,
    "JUL": 7,
    "AUG": 8,
    "SEP": 9,
    "OCT": 10,
    "NOV": 11,
    "DEC": 12,
}
_WEEKDAYS: Final = {"SUN": 0, "MON": 1, "TUE": 2, "WED": 3, "THU": 4, "FRI": 5, "SAT": 6}


class _Field(NamedTuple):
    """A field of an expression: what it is called, its least and greatest number, and its names."""

    label: str
    least: int
    most: int
    names: Mapping[str, int]


_SECOND: Final = _Field("second", 0, 59, {})
_FIELDS: Final = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of the month", 1, 31, {}),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _WEEKDAYS),
)
_WORDS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LONGEST: Final = 500
_ITEM: Final = re.compile(r"(?P<first>\*|[0-9]+|[A-Za-z]+)(?:-(?P<last>[0-9]+|[A-Za-z]+))?(?:/(?P<step>[0-9]+))?")
_EXTENSIONS: Final = frozenset("LW#?")
_ONE: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
# The 29th of February falls on a given day of the week every 28 years, or after 40 where a century is no leap year.
_YEARS: Final = 100
# Between two looks at a zone's offset: no zone ever changed it twice within that time.
_LOOK: Final = timedelta(hours=3)
# More than any change of an offset, which were 24 hours where a zone crossed the date line.
_FAR: Final = timedelta(days=3)


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a time zone."""

    text: str
    timezone: str
    zone: tzinfo
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    """Whether one of the two day fields is enough."""

    @staticmethod
    def parse(text: str, timezone: str = "UTC") -> "Cron":
        """Return the schedule that a cron expression describes; CronError with the position of the first mistake."""
        return _parse(text, timezone)

    # --- instants ---

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first instant after another, in UTC; None where there is none within a century."""
        try:
            return self._next_elapsed(instant) if len(self.hours) == 24 else self._next_fixed(instant)
        except OverflowError:  # the end of the calendar
            return None

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Yield the instants from `start` on and before `end`, in UTC."""
        # Instants are whole seconds: none lies between this moment and `start`.
        instant = self.next_after(start - timedelta(microseconds=1))
        while instant is not None and instant < end:
            yield instant
            instant = self.next_after(instant)

    def _next_fixed(self, instant: datetime) -> datetime | None:
        """Return the next instant where each wall-clock time counts once."""
        wall = self._wall_from(_following(self._local(instant)))
        while wall is not None:
            candidate = self._instant(wall)
            # The second pass over an hour that is repeated meets times whose instants were in the first.
            if candidate > instant:
                return candidate
            wall = self._wall_from(wall + _ONE)
        return None

    def _next_elapsed(self, instant: datetime) -> datetime | None:
        """Return the next instant whose wall-clock time matches, in either pass over an hour that is repeated."""
        earliest = _following(instant.astimezone(UTC))
        while True:
            local = self._local(earliest)
            wall = self._wall_from(local)
            if wall is None:
                return None
            # Right if the offset stays what it is until then.
            candidate = earliest + (wall - local)
            if candidate - earliest > 2 * _FAR:
                # Whatever happens to the clocks, nothing matches before that.
                earliest = candidate - _FAR
                continue
            change = self._change(earliest, candidate)
            if change is None:
                return candidate
            earliest = change

    def _local(self, instant: datetime) -> datetime:
        return instant.astimezone(self.zone).replace(tzinfo=None, fold=0)

    def _instant(self, wall: datetime) -> datetime:
        """Return the first instant that has a wall-clock time; where it is skipped, the first instant after the gap."""
        before = wall.replace(tzinfo=self.zone).astimezone(UTC)
        if self._local(before) == wall:
            return before
        # In a gap `fold` chooses the offset: with 1 the one after it, which gives an instant before the gap.
        change = self._change(wall.replace(tzinfo=self.zone, fold=1).astimezone(UTC), before)
        assert change is not None, "a gap is a change of the offset"
        return change

    def _change(self, start: datetime, end: datetime) -> datetime | None:
        """Return the first instant after `start`, up to `end`, at which the zone's offset changes."""
        if self.zone is UTC:
            return None
        while start < end:
            look = min(start + _LOOK, end)
            if self._offset(look) != (offset := self._offset(start)):
                return self._bisect(start, look, offset)
            start = look
        return None

    def _bisect(self, start: datetime, end: datetime, offset: timedelta | None) -> datetime:
        """Return the first second in a range at which the offset is not `offset` any more."""
        while end - start > _ONE:
            middle = start + timedelta(seconds=(end - start) // _ONE // 2)
            if self._offset(middle) == offset:
                start = middle
            else:
                end = middle
        return end

    def _offset(self, instant: datetime) -> timedelta | None:
        return instant.astimezone(self.zone).utcoffset()

    # --- wall-clock times ---

    def _wall_from(self, wall: datetime) -> datetime | None:
        """Return the first wall-clock time that matches, from `wall` on."""
        day = wall.date()
        moment = self._time_from(wall.time()) if self._matches(day) else None
        if moment is None:
            following = self._day_from(day + _DAY)
            if following is None:
                return None
            day = following
            moment = time(self.hours[0], self.minutes[0], self.seconds[0])
        return datetime.combine(day, moment)

    def _day_from(self, day: date) -> date | None:
        """Return the first day that matches, from `day` on."""
        last = day.year + _YEARS
        while day.year <= last:
            if day.month not in self.months:
                # The 28th and four days are always in the next month.
                day = (day.replace(day=28) + 4 * _DAY).replace(day=1)
            elif self._matches(day):
                return day
            else:
                day += _DAY
        return None

    def _matches(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_month = day.day in self.days
        by_week = day.isoweekday() % 7 in self.weekdays
        return by_month or by_week if self.either_day else by_month and by_week

    def _time_from(self, least: time) -> time | None:
        """Return the first time of a day that matches, from `least` on; None where none is left on that day."""
        hour = _at_least(self.hours, least.hour)
        if hour is None:
            return None
        if hour > least.hour:
            return time(hour, self.minutes[0], self.seconds[0])
        minute = _at_least(self.minutes, least.minute)
        if minute == least.minute:
            second = _at_least(self.seconds, least.second)
            if second is not None:
                return time(hour, minute, second)
            minute = _at_least(self.minutes, least.minute + 1)
        if minute is not None:
            return time(hour, minute, self.seconds[0])
        following = _at_least(self.hours, hour + 1)
        return None if following is None else time(following, self.minutes[0], self.seconds[0])


def _at_least(numbers: tuple[int, ...], least: int) -> int | None:
    index = bisect_left(numbers, least)
    return numbers[index] if index < len(numbers) else None


def _following(moment: datetime) -> datetime:
    """Return the first whole second after a moment."""
    return moment.replace(microsecond=0) + _ONE


# --- parsing -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _parse(text: str, timezone: str) -> Cron:
    if not text.isprintable() or len(text) > _LONGEST:
        raise InvalidInputError(f"cron must be a text of at most {_LONGEST} characters", field="cron")
    zone = find_zone(timezone)
    words = [(match.start(), match.group()) for match in re.finditer(r"[^ ]+", text)]
    if words and words[0][1].startswith("@"):
        fields = _word(text, words)
    elif len(words) not in (5, 6):
        raise _error(
            text,
            len(text) if len(words) < 5 else words[6][0],
            f"{len(words)} fields: cron has 5 (minute, hour, day of the month, month, day of the week), or 6 with"
            " seconds first",
        )
    else:
        kinds = _FIELDS if len(words) == 5 else (_SECOND, *_FIELDS)
        fields = [_numbers(text, start, word, kind) for kind, (start, word) in zip(kinds, words, strict=True)]
    *seconds, minutes, hours, days, months, weekdays = fields
    cron = Cron(
        text=text,
        timezone=timezone,
        zone=zone,
        seconds=tuple(sorted(seconds[0].numbers)) if seconds else (0,),
        minutes=tuple(sorted(minutes.numbers)),
        hours=tuple(sorted(hours.numbers)),
        days=days.numbers,
        months=months.numbers,
        weekdays=frozenset(each % 7 for each in weekdays.numbers),
        either_day=not days.starred and not weekdays.starred,
    )
    # From a leap year on: a day that a century has not seen never comes.
    if cron._day_from(date(2000, 1, 1)) is None:
        raise _error(text, days.start, "no month that is named has that day: the schedule would never fire")
    return cron


def find_zone(name: str) -> tzinfo:
    """Return a time zone by its IANA name; InvalidInputError where this machine has no such zone."""
    if name == "UTC":  # known without time zone data too
        return UTC
    # Of `right/` zones minutes have 61 seconds now and then, and `localtime` is another zone on every machine.
    if not name.startswith(("right/", "posix/", "localtime", "posixrules")):
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise InvalidInputError(
        f"there is no time zone {str(name)[:100]!r} on this machine: use an IANA name such as Europe/Berlin; where"
        " the system has no time zone data, `pip install tzdata`",
        field="timezone",
        value=str(name)[:100],
    )


class _Numbers(NamedTuple):
    """A field, parsed: its numbers, whether it begins with `*`, and where it stands."""

    numbers: frozenset[int]
    starred: bool
    start: int


def _word(text: str, words: list[tuple[int, str]]) -> list[_Numbers]:
    """Return the fields that `@daily` and its like stand for."""
    start, word = words[0]
    expression = _WORDS.get(word.lower())
    if expression is None:
        raise _error(text, start, f"{word} is not one of {', '.join(_WORDS)}")
    if len(words) > 1:
        raise _error(text, words[1][0], f"nothing follows {word}")
    return [_numbers(text, start, each, kind) for kind, each in zip(_FIELDS, expression.split(), strict=True)]


def _numbers(text: str, start: int, word: str, kind: _Field) -> _Numbers:
    numbers: set[int] = set()
    position = start
    for item in word.split(","):
        numbers.update(_item(text, position, item, kind))
        position += len(item) + 1
    return _Numbers(frozenset(numbers), word.startswith("*"), start)


def _item(text: str, start: int, item: str, kind: _Field) -> range:
    """Return the numbers of one item of a list."""
    match = _ITEM.match(item)
    if match is None or match.end() < len(item):
        end = 0 if match is None else match.end()
        message = f"the {kind.label} {item!r} is not a number, a range, a list or a step{_hint(item)}"
        raise _error(text, start + end, message)
    if match["first"] == "*":
        if match["last"] is not None:
            raise _error(text, start + 1, f"the {kind.label} {item!r} is a range from *: write * alone")
        # Sunday is both 0 and 7: `*` counts it once, so that its steps are those of a week.
        first = kind.least
        last = min(kind.most, 6) if kind.names is _WEEKDAYS else kind.most
    else:
        first = _number(text, start, match["first"], kind)
        last = first if match["step"] is None else kind.most
        if match["last"] is not None:
            last = _number(text, start + match.start("last"), match["last"], kind)
            # SAT-SUN: after another day the Sunday is the one at the end of the week.
            if kind.names is _WEEKDAYS and last == 0 < first:
                last = 7
    if first > last:
        message = f"the range {item!r} runs backwards: write {first}-{kind.most},{kind.least}-{last}"
        raise _error(text, start, message)
    step = 1
    if match["step"] is not None:
        # Not more digits than any field has numbers: a number of a thousand digits is slow to read.
        step = int(match["step"]) if len(match["step"]) <= 2 else 0
        if not 1 <= step <= kind.most:
            raise _error(text, start + match.start("step"), f"a step of the {kind.label} is from 1 to {kind.most}")
    return range(first, last + 1, step)


def _hint(item: str) -> str:
    """Return what to add where somebody wrote what only other crons understand: L, W, # and ?."""
    letters = {each for each in item.upper() if not each.isdigit()}
    return " (L, W, # and ? of other crons are not known here)" if letters and letters <= _EXTENSIONS else ""


def _number(text: str, position: int, word: str, kind: _Field) -> int:
    number = kind.names.get(word.upper(), -1)
    if word.isdigit() and len(word) <= 2:
        number = int(word)
    if not kind.least <= number <= kind.most:
        names = f", or {' '.join(kind.names)}" if kind.names else ""
        message = f"the {kind.label} {word[:20]!r} is not from {kind.least} to {kind.most}{names}{_hint(word)}"
        raise _error(text, position, message)
    return number


def _error(text: str, position: int, what: str) -> CronError:
    """Return the error about a mistake at an index of the text; people count characters from 1."""
    return CronError(
        f"cron {text!r}, character {position + 1}: {what}", field="cron", value=text[:100], position=position + 1
    )
