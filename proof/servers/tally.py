"""What came of every fault: counted by place and kind, and what must never happen named with how to repeat it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

HARMS: Final = ("lost", "partial", "twice", "undetected", "untyped", "hung")
"""What must stay 0: acknowledged work that is gone, work that is half there or there twice, damage or failure that
nobody was told of, an error without a type, a caller without an answer."""

_KINDS: Final = ("injected", "acknowledged", "refused")


class Tally:
    """The counts of one run."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Counter[str]] = {}
        self.broken: list[str] = []
        self.skipped: list[str] = []

    def count(self, place: str, fault: str, **found: int) -> None:
        """Add what one fault, or one round of them, came to."""
        self._rows.setdefault((place, fault), Counter()).update(found)

    def blame(self, place: str, fault: str, harm: str, what: str, again: str) -> None:
        """Something that must never happen, and how to see it again."""
        assert harm in HARMS, harm
        self.count(place, fault, **{harm: 1})
        self.broken.append(f"{place}, {fault}: {harm}: {what} (python -m proof servers {again})")

    def take(self, other: Mapping[str, Any]) -> None:
        """Add what another process counted."""
        for place, fault, found in other["rows"]:
            self.count(place, fault, **found)
        self.broken += other["broken"]
        self.skipped += other["skipped"]

    def given(self) -> dict[str, Any]:
        """All of it, to be taken over elsewhere."""
        rows = [(place, fault, dict(found)) for (place, fault), found in self._rows.items()]
        return {"rows": rows, "broken": self.broken, "skipped": self.skipped}

    def counts(self) -> dict[str, int]:
        """The sums."""
        total: Counter[str] = sum(self._rows.values(), Counter())
        return {name: total[name] for name in (*_KINDS, *HARMS)}

    def rows(self) -> Iterable[dict[str, Any]]:
        """One line for each kind of fault at each place."""
        for (place, fault), found in sorted(self._rows.items()):
            yield {"place": place, "fault": fault, **{name: found[name] for name in (*_KINDS, *HARMS)}}
