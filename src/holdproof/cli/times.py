"""Times as people read them beside what they are for: `3 h ago`, `in 5 min`."""

from datetime import UTC, datetime
from typing import Final

from holdproof.db.clock import system_clock
from holdproof.model.times import to_micros

_SPANS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_SECOND: Final = 1_000_000


def now() -> datetime:
    """Return the present, by the clock of this machine."""
    return datetime.fromtimestamp(system_clock() / _SECOND, UTC)


def relative(at: str, present: datetime) -> str:
    """Return a moment seen from the present; a text that is no moment of ours as it is."""
    try:
        seconds = to_micros(at) / _SECOND - present.timestamp()
    except ValueError:
        return at
    size = abs(seconds)
    span = next((f"{int(size // length)} {name}" for length, name in _SPANS if size >= length), "")
    if not span:
        return "now"
    return f"in {span}" if seconds > 0 else f"{span} ago"
