"""Disputes: a witness that says the log is rolled back or forked leaves a trace in the log itself.

Rules:
- Each dispute is a row with its entry. The same answer of the same witness about the same history is recorded once.
- A dispute is open until the witness cosigns a later head of the same log, a restore gives the log another origin, or
  the witness is removed with a reason; it stays settled if the witness is added again.
- While one is open, `status`, the level of the log and `verify` say so. It does not lock the store: a witness is
  somebody else, and whoever runs one must not be able to stop a log; unless it was added as one that may.
"""

from typing import Final, NamedTuple

from holdproof.db import Tx, sql
from holdproof.evidence import leaves, logged_tables, tree
from holdproof.evidence.leaves import Projection

DISPUTES: Final = Projection("witness_disputes", 1, ("id", "url", "verdict", "what", "origin", "size", "disputed_at"))
LOGGED: Final = (logged_tables.describe(DISPUTES, kinds=("audit",), key="id"),)


class Dispute(NamedTuple):
    """A witness that contradicts the log: which verdict it gave, in which words, and when."""

    url: str
    verdict: str
    what: str
    disputed_at: str
    locks: int = 0
    """Whether the witness was added as one whose word locks the store."""

    def __str__(self) -> str:
        return f"{self.verdict}: the witness {self.url} {self.what} (since {self.disputed_at})"


# The last word of a witness counts: a cosignature after the dispute settles it.
_OPEN = sql(
    "SELECT d.url, d.verdict, d.what, d.disputed_at, coalesce(w.locks, 0) FROM witness_disputes d"
    " LEFT JOIN log_witnesses w ON w.url = d.url WHERE d.origin = :origin"
    " AND (w.removed_at IS NULL OR w.removed_at < d.disputed_at)"
    " AND (w.added_at IS NULL OR w.added_at <= d.disputed_at) AND NOT EXISTS"
    " (SELECT 1 FROM log_cosignatures c WHERE c.url = d.url AND c.origin = d.origin"
    " AND c.cosigned_at > d.disputed_at AND c.size > d.size) ORDER BY d.disputed_at, d.url"
)


def open_disputes(tx: Tx) -> list[Dispute]:
    """Return the disputes that nothing has settled, the oldest first."""
    return [Dispute(*row) for row in tx.all(_OPEN, origin=tree.state(tx).origin)]


_ADD = sql(
    "INSERT INTO witness_disputes (id, url, verdict, what, origin, size, disputed_at, leaf_id, leaf_ver, leaf_salt)"
    " VALUES (:id, :url, :verdict, :what, :origin, :size, :disputed_at, :leaf_id, :leaf_ver, :leaf_salt)"
)


def record(tx: Tx, url: str, verdict: str, what: str) -> None:
    """Record what a witness said of the newest head, with its entry; an open dispute of the same kind is enough."""
    if any((each.url, each.verdict) == (url, verdict) for each in open_disputes(tx)):
        return
    now = tree.state(tx)
    row: dict[str, str | int] = {"id": tx.new_id(), "url": url, "verdict": verdict, "what": what}
    row |= {"origin": now.origin, "size": now.size, "disputed_at": tx.now}
    mark = leaves.stamp(tx, "audit", DISPUTES, row)
    tx.execute(_ADD, **row, **mark._asdict(), expect=1)
