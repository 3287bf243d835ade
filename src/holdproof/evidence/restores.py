"""Restores in the log: after a restore the same tree continues under a new origin.

Rules:
- Origins are `holdproof/<store id>`, then `holdproof/<store id>/<n>` with n = 1, 2, 3 …: no origin ever shows two
  histories, so a head of the abandoned one cannot be mistaken for a fork of this one.
- The first leaf under a new origin is of type `restore`; its row cites the last trusted head (the one restored to) and
  the newest head known of what was given up.
- Heads of an earlier origin count up to the size at which the log left it; later ones belong to the abandoned history.
- A row counts only if it agrees with its own entry and with the head it trusts: the entry is the first one after that
  head, and the tree had that head's root. Otherwise anybody could give up the heads that were kept.
"""

from typing import Final

from holdproof.crypto import checkpoint
from holdproof.db import Tx, sql
from holdproof.errors import FormatError, InvalidInputError, NotFoundError
from holdproof.evidence import leaves, logged_tables, tree
from holdproof.evidence.leaves import Projection
from holdproof.model.backup import RestoreRecord

RESTORES: Final = Projection(
    "restores", 1, ("n", "origin", "previous", "size", "trusted", "abandoned", "source", "restored_at")
)
LOGGED: Final = (logged_tables.describe(RESTORES, kinds=("restore",), key="n", first=-1),)

_NEWEST = sql("SELECT coalesce(max(n), 0) FROM restores")
_MOVE = sql("UPDATE log_state SET origin = :origin WHERE id = 1")
_ADD = sql(
    "INSERT INTO restores (n, origin, previous, size, trusted, abandoned, source, restored_at, leaf_id, leaf_ver,"
    " leaf_salt) VALUES (:n, :origin, :previous, :size, :trusted, :abandoned, :source, :restored_at, :leaf_id,"
    " :leaf_ver, :leaf_salt)"
)


def record(tx: Tx, store_id: str, *, abandoned: str, source: str) -> RestoreRecord:
    """Move the log to its next origin; must be the first write to a restored database."""
    before = tree.state(tx)
    [(newest,)] = tx.all(_NEWEST)
    # Above every number ever used, also in the abandoned history: an origin must never name two histories.
    n = max(newest, _number(before.origin), _number(_origin(abandoned))) + 1
    restore = RestoreRecord(
        n=n,
        origin=f"holdproof/{store_id}/{n}",
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


def history(tx: Tx) -> list[RestoreRecord]:
    """Return every restore, oldest first."""
    return [RestoreRecord(*row) for row in tx.all(_ALL)]


_ENTRIES = sql("SELECT r.n, l.idx FROM restores r LEFT JOIN log_leaves l ON l.id = r.leaf_id AND l.ver = 1")


def disagreeing(tx: Tx) -> list[RestoreRecord]:
    """Return the restores that do not agree with their own entry or with the head they trust."""
    records = history(tx)
    if not records:
        return []
    indexes: dict[int, int | None] = dict(tx.all(_ENTRIES))
    return [each for each in records if not _agrees(tx, each, indexes[each.n])]


def _agrees(tx: Tx, restore: RestoreRecord, index: int | None) -> bool:
    # On PostgreSQL the entry is in the tree before the record is committed, so it always has an index.
    if index != restore.size:
        return False
    try:
        trusted = checkpoint.parse(restore.trusted.encode()).checkpoint
        root = tree.root_at(tx, restore.size)
    except (FormatError, InvalidInputError, NotFoundError):
        return False
    return (trusted.origin, trusted.size, trusted.root) == (restore.previous, restore.size, root)


def reach(tx: Tx) -> dict[str, int | None]:
    """Return up to which size the heads of each origin count: where the log left it, None for the current one."""
    forged = {each.n for each in disagreeing(tx)}
    # A forged restore gives up nothing: all heads of the origin before count.
    sizes: dict[str, int | None] = {each.previous: None if each.n in forged else each.size for each in history(tx)}
    sizes[tree.state(tx).origin] = None
    return sizes


def _origin(head: str) -> str:
    return checkpoint.parse(head.encode()).checkpoint.origin if head else ""


def _number(origin: str) -> int:
    # `holdproof/<store id>` has two parts and is the first origin, number 0.
    number = origin.split("/")[2:3]
    return int(*number) if number and number[0].isdigit() else 0
