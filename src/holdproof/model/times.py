"""Times are text: ISO-8601 UTC with microseconds and `Z`, the same bytes in both databases, in JSON and in hashes."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_text(micros: int) -> str:
    """The text of a moment given in microseconds since 1970."""
    moment = _EPOCH + timedelta(microseconds=micros)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def to_micros(text: str) -> int:
    """Microseconds since 1970 of a moment given as text; raises ValueError on anything without a zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time needs its zone, as in 2026-01-31T12:00:00Z: {text!r}")
    return (moment - _EPOCH) // _MICROSECOND


def utc(text: str) -> str:
    """A moment as others write it, as it is stored here; without a zone it is UTC."""
    moment = datetime.fromisoformat(text)
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return to_text((zoned - _EPOCH) // _MICROSECOND)


@lru_cache(maxsize=256)  # all that is committed together has one moment, and most spans are the usual ones
def later(text: str, seconds: float) -> str:
    """The moment that many seconds after the given one."""
    return to_text(to_micros(text) + round(seconds * 1_000_000))
