"""Heads that somebody outside attested: rows of a table for each way, all read, chosen and due alike.

Rules:
- Every such row is under the log, so that each attestation lets the log grow by one entry. Those entries are no reason
  for a next one, of whichever table.
- The head of a row is one of this log that a log key signed; a row of another is a flaw.
"""

from dataclasses import dataclass, field
from typing import Final

from holdproof import paging
from holdproof.crypto import checkpoint
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.db import Query, Row, Tx, sql
from holdproof.errors import NotFoundError, ProofError
from holdproof.evidence import log, tree
from holdproof.model import times

FIRST: Final = ""
_LAST: Final = "~"
BATCH: Final = 100
_TABLES: Final = ("time_tokens", "head_anchors")


@dataclass(frozen=True)
class AttestedHeads:
    """The queries of one table, which has at least `id`, `origin`, `size`, `head`, `created_at` and `leaf_id`."""

    table: str
    columns: tuple[str, ...]
    what: str
    """What a row is called in errors."""
    resource: str
    """The resource whose `list` lists them."""
    _page: Query = field(init=False)
    _one: Query = field(init=False)
    _covering: Query = field(init=False)
    _after: Query = field(init=False)
    _newest: Query = field(init=False)
    _own: Query = field(init=False)

    def __post_init__(self) -> None:
        select = f"SELECT {', '.join(self.columns)} FROM {self.table}"  # noqa: S608 (constants)
        # The smallest head that covers a leaf: the earliest one that is known outside.
        covering = "origin = :origin AND size > :index AND size <= :size ORDER BY size, id LIMIT 1"
        queries = {
            "_page": f"{select} WHERE id < :before ORDER BY id DESC LIMIT :limit",
            "_one": f"{select} WHERE id = :id",
            "_covering": f"{select} WHERE {covering}",
            "_after": f"{select} WHERE id > :after ORDER BY id LIMIT :limit",
            "_newest": f"SELECT size, created_at FROM {self.table} WHERE origin = :origin AND created_at <= :now"  # noqa: S608
            " ORDER BY id DESC LIMIT 1",
            "_own": f"SELECT l.idx FROM {self.table} t JOIN log_leaves l ON l.id = t.leaf_id AND l.ver = 1"  # noqa: S608
            " WHERE t.id = :id",
        }
        for name, query in queries.items():
            object.__setattr__(self, name, sql(query))

    def newest_first(self, tx: Tx, cursor: str | None, limit: int) -> list[Row]:
        """Return a page of rows and one more if there is one, newest first."""
        (before,) = paging.decode(cursor, _LAST)
        return tx.all(self._page, before=before, limit=paging.fetch(limit))

    def one(self, tx: Tx, id: str) -> Row:
        """Return a row; NotFoundError if there is none."""
        row = tx.one(self._one, id=id)
        if row is None:
            raise NotFoundError(
                f"there is no {self.what} {id}; `holdproof {self.resource} list` lists them",
                id=id,
            )
        return row

    def covering(self, tx: Tx, index: int, head: SignedCheckpoint) -> Row | None:
        """Return the row of the earliest head that a leaf is under and that this head continues."""
        about = head.checkpoint
        return tx.one(self._covering, origin=about.origin, index=index, size=about.size)

    def oldest_first(self, tx: Tx, after: str) -> list[Row]:
        """Return a page of rows after this id, in their order, for a check of all."""
        return tx.all(self._after, after=after, limit=BATCH)

    def own_index(self, tx: Tx, id: str) -> int | None:
        """Return the index of a row's own entry; None while that is pending."""
        return next((index for (index,) in tx.all(self._own, id=id)), None)

    def due(self, tx: Tx, every_s: float) -> bool:
        """Whether one is due: the newest is older than that, and more was logged since than such rows.

        One from the future, made under a wrong clock, does not delay the next.
        """
        now = tree.state(tx)
        row = tx.one(self._newest, origin=now.origin, now=tx.now)
        if not now.head or row is None:
            return bool(now.head)
        size, created_at = row
        if tx.now < times.later(created_at, every_s):
            return False
        attested = sum(_count(tx, query, now.origin, size) for query in _SINCE)
        return bool(now.size - size > attested)


_SINCE: Final = tuple(
    sql(f"SELECT count(*) FROM {table} WHERE origin = :origin AND size >= :size")  # noqa: S608 (constants)
    for table in _TABLES
)


def _count(tx: Tx, query: Query, origin: str, size: int) -> int:
    row = tx.one(query, origin=origin, size=size)
    assert row is not None, "an aggregate always has a row"
    (count,) = row
    return int(count)


def parse_head(tx: Tx, text: str) -> SignedCheckpoint:
    """Return a head from its note; ProofError or FormatError unless a log key signed it and this log continues it."""
    head = checkpoint.parse(text.encode())
    about = head.checkpoint
    keys = log.verifiers(tx, size=about.size, origin=about.origin)
    checkpoint.verify(head, origin=about.origin, log_keys=keys)
    verdict = log.continuity(tx, head)
    if not verdict.sound:
        raise ProofError(f"its head is none of this log: {verdict}")
    return head


def check_head(tx: Tx, text: str, origin: str, size: int) -> None:
    """Check the head of a row; ProofError or FormatError where it is none of this log, or is not the one it says."""
    about = parse_head(tx, text).checkpoint
    if (about.origin, about.size) != (origin, size):
        raise ProofError("it says another origin or size than its head")
