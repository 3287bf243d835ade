"""Check time tokens again, and the times that entries say against them.

Rules:
- A token that was stamped at T over a head: no entry under that head was written later than T.
- What was logged after the token's own entry was written at T or later. Not what came after the stamped head: while the
  authority is asked, others go on writing.
- Clocks differ: five minutes are no contradiction. An entry further off is MISDATED: the machine's clock was wrong, or
  somebody who holds the log key wrote another time. Neither is an edit of the log, so the store is not locked for it.
- Only tokens that hold are measured with; whose word they are, `not_checked` says.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple

from holdproof.crypto import canonical
from holdproof.db import Work, call, sql
from holdproof.errors import FormatError
from holdproof.evidence import timestamps
from holdproof.evidence.timestamps import StampedSize
from holdproof.model import times
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding
from holdproof.store.context import Context
from holdproof.upkeep import time_stamping
from holdproof.upkeep.verification.findings import EXPLAIN, Findings, read

TOLERANCE_S: Final = 300
_PAGE: Final = 8192
_CLOCK: Final = (
    "compare the clocks of the machines that write with the authority's; to date an entry on purpose needs the log"
    " key: look who wrote it with `holdproof log show`"
)
_LEAVES = sql("SELECT idx, leaf FROM log_leaves WHERE idx >= :first ORDER BY idx LIMIT :limit")


def check(context: Context, findings: Findings, first: int | None) -> Work[None]:
    """Check every time token again, say whose certificates they rest on if the settings do not name them.

    Compare the times in the entries from `first` on with the tokens; in none of them without it.
    """
    trusted = yield from call(lambda: time_stamping.trusted(context))
    unnamed: set[str] = set()
    stamped: list[StampedSize] = []
    after: str | None = ""
    while after is not None:
        page = yield from read(context, partial(timestamps.check, after=after))
        findings.checked["time tokens"] += page.checked
        unnamed |= page.fingerprints - trusted
        stamped += page.stamped
        after = page.after
        for token, why in page.flaws:
            what = f"a time token that does not hold: {why}"
            findings.add(Finding(Verdict.TAMPERED, what, EXPLAIN, table="time_tokens", row=token))
    for fingerprint in sorted(unnamed):
        findings.skip(f"whether a time authority is the right one: the settings do not name certificate {fingerprint}")
    if first is not None and stamped:
        yield from _entries(context, findings, Bounds.of(stamped), first)


def _entries(context: Context, findings: Findings, bounds: "Bounds", first: int) -> Work[None]:
    """Compare the time of each entry with the tokens before and after it."""
    while True:
        rows = yield from read(context, lambda tx, at=first: tx.all(_LEAVES, first=at, limit=_PAGE))  # type: ignore[misc]
        for index, text in rows:
            why = bounds.contradicted(index, _time_of(text))
            if why:
                findings.add(Finding(Verdict.MISDATED, why, _CLOCK, table="log_leaves", row=str(index)))
        if len(rows) < _PAGE:
            return
        first = rows[-1][0] + 1


def _time_of(text: str) -> str | None:
    """Return the time that an entry says; None for one that cannot be read, which the walk reports."""
    try:
        fields = canonical.loads(text.encode())
    except FormatError:
        return None
    at = fields.get("ts") if isinstance(fields, dict) else None
    return at if isinstance(at, str) else None


class Bounds(NamedTuple):
    """What tokens say of entries by index: the latest and the earliest time, as sorted steps."""

    sizes: Sequence[int]
    latest: Sequence[str]
    """Of the entries below each size."""
    owns: Sequence[int]
    earliest: Sequence[str]
    """Of the entries above each token's own."""

    @classmethod
    def of(cls, stamped: Sequence[StampedSize]) -> "Bounds":
        """Return the bounds that these tokens set; a later token never loosens that of an earlier one."""
        by_size = sorted(stamped, key=lambda each: each.size)
        backwards = accumulate((each.at for each in reversed(by_size)), min)
        by_own = sorted((each.own_index, each.at) for each in stamped if each.own_index is not None)
        forwards = accumulate((at for _, at in by_own), max)
        latest = [*backwards][::-1]
        return cls([each.size for each in by_size], latest, [own for own, _ in by_own], [*forwards])

    def contradicted(self, index: int, at: str | None) -> str:
        """Return how an entry's time contradicts a token; empty where it does not."""
        if at is None:
            return ""
        after = bisect_right(self.sizes, index)
        if after < len(self.sizes) and at > times.later(self.latest[after], TOLERANCE_S):
            return f"an entry says {at}, but is under a head that was stamped at {self.latest[after]}"
        before = bisect_left(self.owns, index)
        if before and at < times.later(self.earliest[before - 1], -TOLERANCE_S):
            return f"an entry says {at}, but was logged after a token of {self.earliest[before - 1]}"
        return ""
