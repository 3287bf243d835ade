"""Refs: the few names that move, each move a leaf of the log.

Rules:
- A ref moves only from where its mover saw it: by its `rev`, which grows by one with every move.
- Who holds a ref is alone with it until the end of the transaction: SQLite has one writer anyway, on PostgreSQL it is
  an advisory lock. So nobody loses what another wrote meanwhile.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from holdproof import db
from holdproof.crypto import cid as cids
from holdproof.crypto.cid import CID
from holdproof.db import Row, Tx, sql
from holdproof.evidence import leaves, logged_tables
from holdproof.evidence.leaves import Projection
from holdproof.memory.objects.object_history import BEGINNING, HistoryPosition

REFS: Final = Projection("refs", 1, ("name", "cid", "rev", "ns", "updated_at", "entries", "history"))
LOGGED: Final = (logged_tables.describe(REFS, kinds=("state",), key="name"),)


class Ref(NamedTuple):
    """Where a name stands; of a tree also where its history does (object_history.py)."""

    name: str
    cid: CID
    rev: int
    ns: str
    entries: int
    history: str | None
    leaf_id: str
    leaf_ver: int

    @property
    def position(self) -> HistoryPosition:
        """Where the history of the tree stands."""
        return HistoryPosition(self.entries, self.history)


_GET = sql("SELECT name, cid, rev, ns, entries, history, leaf_id, leaf_ver FROM refs WHERE name = :name")
_EVERYONE: Final = "refs"


def get(tx: Tx, name: str) -> Ref | None:
    """Return where a name stands, None where it does not."""
    row = tx.one(_GET, name=name)
    return None if row is None else _ref(row)


def _ref(row: Row) -> Ref:
    name, cid, *rest = row
    return Ref(name, cids.parse_text(cid), *rest)


def hold(tx: Tx, name: str) -> Ref | None:
    """Return the same, and nobody else moves it, or removes anything, before this transaction ends."""
    # Shared with other writers, excluded by garbage collection, which takes it alone.
    db.lock_shared(tx, _EVERYONE)
    db.lock_exclusive(tx, f"ref:{name}")
    return get(tx, name)


def alone(tx: Tx) -> None:
    """From here to the end of the transaction nobody holds any ref."""
    db.lock_exclusive(tx, _EVERYONE)


_ADD = sql(
    "INSERT INTO refs (name, cid, rev, ns, updated_at, entries, history, leaf_id, leaf_ver, leaf_salt)"
    " VALUES (:name, :cid, :rev, :ns, :updated_at, :entries, :history, :leaf_id, :leaf_ver, :leaf_salt)"
)
_MOVE = sql(
    "UPDATE refs SET cid = :cid, rev = :rev, updated_at = :updated_at, entries = :entries, history = :history,"
    " leaf_ver = :leaf_ver, leaf_salt = :leaf_salt"
    " WHERE name = :name AND rev = :rev - 1 AND ns = :ns AND leaf_id = :leaf_id"
)


def move(tx: Tx, name: str, current: Ref | None, cid: CID, *, ns: str, history: HistoryPosition = BEGINNING) -> Ref:
    """Let a name stand for another block, with its leaf; fails if it is not where it was seen."""
    row = {
        "name": name,
        "cid": str(cid),
        "rev": current.rev + 1 if current else 1,
        "ns": ns,
        "updated_at": tx.now,
        "entries": history.entries,
        "history": history.cid,
    }
    if current is None:
        mark = leaves.stamp(tx, "state", REFS, row, ns=ns)
    else:
        mark = leaves.stamp(tx, "state", REFS, row, leaf_id=current.leaf_id, leaf_ver=current.leaf_ver + 1, ns=ns)
    tx.execute(_ADD if current is None else _MOVE, **row, **mark._asdict(), expect=1)
    return Ref(name, cid, int(str(row["rev"])), ns, *history, mark.leaf_id, mark.leaf_ver)


_LIST = sql(
    "SELECT name, cid, rev, ns, entries, history, leaf_id, leaf_ver FROM refs WHERE name > :after"
    " ORDER BY name LIMIT :limit"
)


def page(tx: Tx, after: str = "", limit: int = 200) -> list[Ref]:
    """Return some refs, by name."""
    return [_ref(row) for row in tx.all(_LIST, after=after, limit=limit)]


def every(tx: Tx) -> Iterator[Ref]:
    """Yield every ref, by name."""
    after = ""
    while refs := page(tx, after):
        after = refs[-1].name
        yield from refs
