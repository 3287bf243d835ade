"""Entries of checkpoints in the log: thread, line, id and content root of each that was put to be provable.

Rules:
- The root is the checkpoint's `h`: SHA-256 over its ids, metadata and state, which names the content by hash, and the
  parent's `h`. So an entry commits to the checkpoint and to all that led to it.
- A checkpoint that is put again has a new version of its entry; one that was ever logged is logged each time.
- An entry goes with its checkpoint. The pruning that takes both names its handle, so that nothing goes unseen.
- A checkpoint without an entry is legal: whoever puts it decides. A copy of a thread has none.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from holdproof.db import Tx, sql
from holdproof.evidence import leaves, logged_tables
from holdproof.evidence.leaves import Projection
from holdproof.memory.objects.object_checks import CheckedPage, ObjectFlaw
from holdproof.model.coverage import Cover, columns

TABLE: Final = "thread_entries"
ENTRIES: Final = Projection(TABLE, 1, ("id", "thread_id", "checkpoint_ns", "checkpoint_id", "h", "logged_at", "ns"))
LOGGED: Final = (
    logged_tables.describe(
        ENTRIES,
        kinds=("state",),
        key="id",
        further=columns("thread", Cover.REBUILT, "the thread of that name, which is compared"),
    ),
)
_PAGE: Final = 100


class EntryMark(NamedTuple):
    """The entry that a checkpoint has already, and its version."""

    id: str
    version: int


_ADD = sql(
    "INSERT INTO thread_entries (id, thread, thread_id, checkpoint_ns, checkpoint_id, h, logged_at, ns, leaf_id,"
    " leaf_ver, leaf_salt) VALUES (:id, :thread, :thread_id, :checkpoint_ns, :checkpoint_id, :h, :logged_at, :ns,"
    " :leaf_id, :leaf_ver, :leaf_salt) ON CONFLICT (id) DO UPDATE SET h = excluded.h, logged_at = excluded.logged_at,"
    " leaf_ver = excluded.leaf_ver, leaf_salt = excluded.leaf_salt"
)


def record(
    tx: Tx, thread: int, *, thread_id: str, line: tuple[str, str], h: bytes, earlier: EntryMark | None, ns: str
) -> None:
    """Log a checkpoint of a line, in the transaction that writes it; a new version where it has an entry already."""
    checkpoint_ns, checkpoint_id = line
    row = {"id": tx.new_id() if earlier is None else earlier.id, "thread_id": thread_id, "h": h.hex(), "ns": ns}
    row |= {"checkpoint_ns": checkpoint_ns, "checkpoint_id": checkpoint_id, "logged_at": tx.now}
    version = 1 if earlier is None else earlier.version + 1
    mark = leaves.stamp(tx, "state", ENTRIES, row, leaf_id=row["id"], leaf_ver=version, ns=ns)
    tx.execute(_ADD, **row, **mark._asdict(), thread=thread, expect=1)


_OF_THREAD = sql("SELECT id, checkpoint_ns, checkpoint_id FROM thread_entries WHERE thread = :thread")
_DROP_ALL = sql("DELETE FROM thread_entries WHERE thread = :thread")
_DROP = sql("DELETE FROM thread_entries WHERE id = :id")


def drop(tx: Tx, thread: int, checkpoints: Iterable[tuple[str, str]] | None = None) -> list[str]:
    """Remove the entries of some checkpoints of a thread, or of all; return their handles, for the pruning."""
    rows = tx.all(_OF_THREAD, thread=thread)
    if checkpoints is None:
        tx.execute(_DROP_ALL, thread=thread)
        return [id for id, _, _ in rows]
    places = {*checkpoints}
    handles = [id for id, checkpoint_ns, checkpoint_id in rows if (checkpoint_ns, checkpoint_id) in places]
    tx.many(_DROP, [{"id": id} for id in handles])
    return handles


_COMPARED = sql(
    "SELECT e.id, e.h, c.h, e.thread_id = t.thread_id AND e.ns = t.ns FROM thread_entries e"
    " LEFT JOIN threads t ON t.n = e.thread LEFT JOIN thread_checkpoints c ON c.thread = e.thread"
    " AND c.checkpoint_ns = e.checkpoint_ns AND c.checkpoint_id = e.checkpoint_id"
    " WHERE e.id > :after ORDER BY e.id LIMIT :limit"
)


def check_page(tx: Tx, after: str | None) -> CheckedPage:
    """One page of entries: each has its checkpoint, with the hash that was logged."""
    rows = tx.all(_COMPARED, after=after or "", limit=_PAGE)
    flaws = []
    for id, logged, h, same in rows:
        if h is None or not same:
            flaws.append(ObjectFlaw(TABLE, id, "a checkpoint that was logged is gone, or was given another name"))
        elif not isinstance(h, bytes) or h.hex() != logged:
            flaws.append(ObjectFlaw(TABLE, id, "a checkpoint is not the one that was logged: it was exchanged"))
    return CheckedPage(len(rows), flaws, rows[-1][0] if len(rows) == _PAGE else None)


_NEWEST = sql(
    "SELECT id FROM thread_entries WHERE ns = :ns AND thread_id = :thread_id AND checkpoint_id = :checkpoint_id"
    " ORDER BY checkpoint_ns LIMIT 1"
)


def find(tx: Tx, thread_id: str, checkpoint_id: str, *, ns: str) -> str | None:
    """Return the key of a checkpoint's entry, or None where it has none."""
    keys = [str(id) for (id,) in tx.all(_NEWEST, ns=ns, thread_id=thread_id, checkpoint_id=checkpoint_id)]
    return next(iter(keys), None)
