"""Rows of threads: found, begun, or begun anew, under the thread's lock; and the index that they are.

Rules:
- Whoever has a row here is the only one that writes the thread until the transaction ends.
- A deleted thread is a tombstone. What follows a checkpoint of its earlier life is refused; a checkpoint without a
  parent begins it anew. What a task wrote may come before its checkpoint does: it is kept, and revives nothing.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from holdproof.db import Tx, lock_exclusive, sql
from holdproof.errors import InvalidInputError, ThreadDeletedError
from holdproof.memory.threads.thread_states import json_text, name

STATUSES: Final = frozenset({"active", "interrupted", "error", "idle"})


class ThreadRow(NamedTuple):
    """A thread that nobody else writes before the transaction ends; of a tombstone `deleted_at` is set."""

    n: int
    facts: str
    deleted_at: str | None
    dead_id: str
    status: str
    status_of: str


HELD: Final = "t.n, t.facts, t.deleted_at, t.dead_id, t.status, t.status_of"
"""The columns of a `ThreadRow`, of a table `t`."""
_FIND = sql(f"SELECT {HELD} FROM threads t WHERE t.ns = :ns AND t.thread_id = :thread_id")  # noqa: S608
_NEW = sql(
    "INSERT INTO threads (ns, thread_id, status, facts, created_at, updated_at)"
    " VALUES (:ns, :thread_id, 'active', '{}', :now, :now) RETURNING n"
)
_REVIVE = sql(
    "UPDATE threads SET deleted_at = NULL, status = 'active', created_at = :now, updated_at = :now WHERE n = :n"
    " AND deleted_at IS NOT NULL"
)
_STRAY_WRITES = sql("DELETE FROM thread_writes WHERE thread = :n AND checkpoint_id < :first")


def writable(
    tx: Tx, thread_row: ThreadRow | None, thread_id: str, ns: str, *, late: str | None, first: str | None = None
) -> ThreadRow:
    """Return a thread in which a checkpoint may be put, made or begun anew where it is not there.

    `late` is the checkpoint it is put upon: one of an earlier life is refused. `first` is the one that begins a life.
    """
    if thread_row is None:
        return _made(tx, thread_id, ns)
    # Put upon a checkpoint of an earlier life: the run has not heard of the deletion yet.
    _refuse_late(thread_row, thread_id, late)
    if thread_row.deleted_at is None:
        return thread_row
    if late is not None:
        raise _deleted(thread_id, late)
    tx.execute(_REVIVE, n=thread_row.n, now=tx.now, expect=1)
    # What a run of the earlier life wrote for checkpoints that then were refused: ids grow with time.
    tx.execute(_STRAY_WRITES, n=thread_row.n, first="" if first is None else first)
    return thread_row


def writable_ahead(tx: Tx, thread_id: str, checkpoint_id: str, ns: str) -> ThreadRow:
    """Return a thread for what a task wrote, whose checkpoint may be on its way; a tombstone stays one."""
    thread_row = find(tx, thread_id, ns)
    if thread_row is None:
        return _made(tx, thread_id, ns)
    _refuse_late(thread_row, thread_id, checkpoint_id)
    return thread_row


def _made(tx: Tx, thread_id: str, ns: str) -> ThreadRow:
    [(n,)] = tx.all(_NEW, ns=ns, thread_id=thread_id, now=tx.now)
    return ThreadRow(n, "{}", None, "", "active", "")


def _refuse_late(thread_row: ThreadRow, thread_id: str, late: str | None) -> None:
    if late is not None and late <= thread_row.dead_id:
        raise _deleted(thread_id, late)


def _deleted(thread_id: str, late: str) -> ThreadDeletedError:
    return ThreadDeletedError("the thread was deleted meanwhile", thread_id=thread_id, checkpoint_id=late)


def begin(tx: Tx, thread_id: str, ns: str) -> ThreadRow:
    """Return a thread, made or brought back to life where it is not there."""
    return writable(tx, find(tx, thread_id, ns), thread_id, ns, late=None)


def lock(tx: Tx, thread_id: str, ns: str) -> None:
    """Let nobody else write a thread, or begin one of that name, before this transaction ends."""
    lock_exclusive(tx, f"thread:{name('ns', ns)}:{name('thread_id', thread_id)}")


def find(tx: Tx, thread_id: str, ns: str) -> ThreadRow | None:
    """Return a thread or its tombstone, and nobody else writes it before this transaction ends."""
    lock(tx, thread_id, ns)
    row = tx.one(_FIND, ns=ns, thread_id=thread_id)
    return None if row is None else ThreadRow(*row)


_TOUCH = sql("UPDATE threads SET updated_at = :now, status = :status, status_of = :about WHERE n = :n")
_TELL = sql("UPDATE threads SET facts = :facts WHERE n = :n")
_UNFACT = sql("DELETE FROM thread_facts WHERE thread = :n")
_FACT = sql("INSERT INTO thread_facts (ns, key, value, thread) VALUES (:ns, :key, :value, :n)")


def touch(
    tx: Tx, thread: ThreadRow, ns: str, status: str | None, facts: Mapping[str, Any] | None, *, about: str = ""
) -> None:
    """Bring the index up to date."""
    if status is not None:
        tx.execute(_TOUCH, n=thread.n, now=tx.now, status=one_of_statuses(status), about=about, expect=1)
    if facts is None or (text := json_text(facts, "facts")) == thread.facts:
        return
    tx.execute(_TELL, n=thread.n, facts=text, expect=1)
    tx.execute(_UNFACT, n=thread.n)
    tx.many(
        _FACT, [{"ns": ns, "n": thread.n, "key": key, "value": json_text(facts[key], "facts")} for key in sorted(facts)]
    )


def one_of_statuses(status: str) -> str:
    """Return what a thread can be; InvalidInputError for another word."""
    if status not in STATUSES:
        raise InvalidInputError(f"a status is one of {', '.join(sorted(STATUSES))}", status=str(status))
    return status
