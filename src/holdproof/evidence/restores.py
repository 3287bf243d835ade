"""Restores in the log: after a restore the same tree continues under a new origin.

Rules:
- Origins are `holdproof/<store id>`, then `holdproof/<store id>/<n>-<8 random hex digits>` with n = 1, 2, 3 …: no
  origin ever shows two histories, so a head of the abandoned one cannot be mistaken for a fork of this one. The random
  part keeps two copies of one backup apart, which both are restore number n.
- The first leaf under a new origin is of type `restore`; its row cites the last trusted head (the one restored to) and
  the newest head known of what was given up.
- Heads of an earlier origin count up to the size at which the log left it; later ones belong to the abandoned history.
- A row counts only if it agrees with its own entry and with the head it trusts: the entry is the first one after that
  head, and the tree had that head's root. Otherwise anybody could give up the heads that were kept.
- Heads of the abandoned history are given up only where the home that kept them made the restore, or a later one: its
  head file says so (heads.py). The database of a copy, which was restored elsewhere, gives up nothing here.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from holdproof.crypto import checkpoint
from holdproof.db import Tx, sql
from holdproof.errors import FormatError, InvalidInputError, NotFoundError
from holdproof.evidence import leaves, logged_tables, tree
from holdproof.evidence.leaves import Projection
from holdproof.lazy import lazy_module

if TYPE_CHECKING:
    from holdproof.model import backup
else:
    backup = lazy_module("holdproof.model.backup")

RESTORES: Final = Projection(
    "restores", 1, ("n", "origin", "previous", "size", "trusted", "abandoned", "source", "restored_at")
)
LOGGED: Final = (logged_tables.describe(RESTORES, kinds=("restore",), key="n", first=-1),)

_TOKEN_BYTES: Final = 4
_NEWEST = sql("SELECT coalesce(max(n), 0) FROM restores")
_MOVE = sql("UPDATE log_state SET origin = :origin WHERE id = 1")
_ADD = sql(
    "INSERT INTO restores (n, origin, previous, size, trusted, abandoned, source, restored_at, leaf_id, leaf_ver,"
    " leaf_salt) VALUES (:n, :origin, :previous, :size, :trusted, :abandoned, :source, :restored_at, :leaf_id,"
    " :leaf_ver, :leaf_salt)"
)


def record(tx: Tx, store_id: str, *, abandoned: str, source: str, above: int = 0) -> "backup.RestoreRecord":
    """Move the log to its next origin, with a number above the given one; the first write to a restored database."""
    before = tree.state(tx)
    [(newest,)] = tx.all(_NEWEST)
    # Above every number ever used, also in the abandoned history: an origin must never name two histories.
    n = max(newest, above, generation(before.origin)[1], generation(_origin(abandoned))[1]) + 1
    restore = backup.RestoreRecord(
        n=n,
        origin=f"holdproof/{store_id}/{n}-{tx.random(_TOKEN_BYTES).hex()}",
        previous=before.origin,
        size=before.size,
        trusted=before.head,
        abandoned=abandoned,
        source=source,
        restored_at=tx.now,
    )
    # Before the leaf is stamped: the head that signs it must have the new origin.
    tx.execute(_MOVE, origin=restore.origin, expect=1)
    row = {column: getattr(restore, column) for column in RESTORES.columns}
    mark = leaves.stamp(tx, "restore", RESTORES, row)
    tx.execute(_ADD, **row, **mark._asdict(), expect=1)
    return restore


_ALL = sql("SELECT n, origin, previous, size, trusted, abandoned, source, restored_at FROM restores ORDER BY n")


def history(tx: Tx) -> "list[backup.RestoreRecord]":
    """Return every restore, oldest first."""
    return [backup.RestoreRecord(*row) for row in tx.all(_ALL)]


_ENTRIES = sql("SELECT r.n, l.idx FROM restores r LEFT JOIN log_leaves l ON l.id = r.leaf_id AND l.ver = 1")


def disagreeing(tx: Tx) -> "list[backup.RestoreRecord]":
    """Return the restores that do not agree with their own entry or with the head they trust."""
    records = history(tx)
    if not records:
        return []
    indexes: dict[int, int | None] = dict(tx.all(_ENTRIES))
    return [each for each in records if not _agrees(tx, each, indexes[each.n])]


def _agrees(tx: Tx, restore: "backup.RestoreRecord", index: int | None) -> bool:
    # On PostgreSQL the entry is in the tree before the record is committed, so it always has an index.
    if index != restore.size:
        return False
    try:
        trusted = checkpoint.parse(restore.trusted.encode()).checkpoint
        root = tree.root_at(tx, restore.size)
    except (FormatError, InvalidInputError, NotFoundError):
        return False
    return (trusted.origin, trusted.size, trusted.root) == (restore.previous, restore.size, root)


class Reach(NamedTuple):
    """What a log says of the heads of its origins."""

    sizes: dict[str, int | None]
    """Up to which size the heads of each origin count: where the log left it, None for the current one."""
    left_by: dict[str, int]
    """The number of the restore by which the log left each earlier origin."""
    made_here: int
    """The number of the newest restore that this home made; 0 if it made none."""

    def gives_up(self, origin: str) -> bool:
        """Whether this home itself gave up the heads of an origin that are not in the log."""
        left_by = self.left_by.get(origin)
        # An origin that this log never had was abandoned before one of its restores, if its number is smaller.
        return generation(origin)[1] < self.made_here if left_by is None else left_by <= self.made_here


def reach(tx: Tx, restored_here: Collection[str] = ()) -> Reach:
    """Return how far the heads of each origin count; `restored_here` are the origins that this home restored to."""
    forged = {each.n for each in disagreeing(tx)}
    records = history(tx)
    # A forged restore gives up nothing: all heads of the origin before count.
    sizes: dict[str, int | None] = {each.previous: None if each.n in forged else each.size for each in records}
    sizes[tree.state(tx).origin] = None
    own = [each.n for each in records if each.n not in forged and each.origin in restored_here]
    return Reach(sizes, {each.previous: each.n for each in records}, max(own, default=0))


def _origin(head: str) -> str:
    return checkpoint.parse(head.encode()).checkpoint.origin if head else ""


def generation(origin: str) -> tuple[str, int]:
    """Split an origin into the store's name and how many restores came before."""
    *store, last = origin.split("/")
    number, _, token = last.partition("-")
    is_restored = len(store) > 1 and number.isdecimal() and len(token) in (0, 2 * _TOKEN_BYTES)
    return ("/".join(store), int(number)) if is_restored else (origin, 0)
