"""Who looks at what: remembered by this server for the time that a page would take to ask again."""

import time
from typing import Final

_LASTS_S: Final = 45.0
_MOST_PLACES: Final = 1000


class Presence:
    """The people who look at the same page."""

    def __init__(self) -> None:
        self._looks: dict[str, dict[str, float]] = {}

    def look(self, place: str, who: str) -> list[str]:
        """Note that somebody looks at a place; return who else does, by name."""
        now = time.monotonic()
        # The oldest place is dropped: what is remembered stays small, however many pages there are.
        if place not in self._looks and len(self._looks) >= _MOST_PLACES:
            del self._looks[next(iter(self._looks))]
        looks = {name: at for name, at in self._looks.get(place, {}).items() if now - at < _LASTS_S}
        looks[who] = now
        self._looks[place] = looks
        return sorted(name for name in looks if name != who)
