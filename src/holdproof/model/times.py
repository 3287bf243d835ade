"""Times are text: ISO-8601 UTC with microseconds and `Z`, the same bytes in both databases, in JSON and in hashes."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from holdproof.errors import InvalidInputError

BEGINNING: Final = "0001-01-01T00:00:00.000000Z"
"""Before everything: where a listing has no lower bound."""
END: Final = "9999-12-31T23:59:59.999999Z"
"""After everything: where a listing has no upper bound, and the deadline of what has none."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_text(micros: int) -> str:
    """Return a moment, given in microseconds since 1970, as text."""
    moment = _EPOCH + timedelta(microseconds=micros)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def to_micros(text: str) -> int:
    """Return a moment, given as text, in microseconds since 1970; ValueError where the text has no time zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time needs its zone, as in 2026-01-31T12:00:00Z: {text!r}")
    # Whole numbers: a float of seconds has no exact microseconds any more.
    return (moment - _EPOCH) // _MICROSECOND


def utc(text: str) -> str:
    """Convert a moment written by another program to our format; one without a time zone is UTC."""
    moment = datetime.fromisoformat(text)
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return to_text((zoned - _EPOCH) // _MICROSECOND)


# All operations of one commit share a moment, and most of them add one of a few usual spans: nearly every call hits.
@lru_cache(maxsize=256)
def later(text: str, seconds: float) -> str:
    """Return the moment that many seconds after another; negative seconds give an earlier one."""
    return to_text(to_micros(text) + round(seconds * 1_000_000))


def month_bounds(month: str) -> tuple[str, str]:
    """Return the first moment of a month (`2026-01`), and that of the next; InvalidInputError for any other text."""
    try:
        # Only this form: it is part of names and is compared with others.
        first = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
        if first.strftime("%Y-%m") != month:
            raise ValueError("another form")
        following = (first + timedelta(days=32)).replace(day=1)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInputError(f"a month is written as 2026-01, not {month!r}", field="month") from error
    return to_text((first - _EPOCH) // _MICROSECOND), to_text((following - _EPOCH) // _MICROSECOND)
