"""Threads: checkpoints of agent frameworks, and what tasks wrote on top of them.

Rules:
- A checkpoint and all its content are written in one transaction. Channels that the caller says are as in the parent
  (`keep`) are taken from there; of lists only what is new is written (channel_values.py).
- A checkpoint that is put again is replaced; what a task wrote is written once, unless it says `replace`.
- The newest checkpoint of a line, that is of a thread's `checkpoint_ns`, is the one with the largest id.
- Two runs on one line: the run that read it (`claim`) and writes first takes it over. With `on_conflict="error"` the
  other is refused from then on (StaleWriterError); with "fork" its checkpoints are kept beside, and said to be forks.
  Writing on top of an older checkpoint is legal for the run that read the line last.
- A deleted thread leaves a tombstone: what follows a checkpoint that it had, or was written for one, is refused. A
  checkpoint without a parent begins the thread anew.
- Deletions are in the log. Checkpoints are hashed, each with its parent's hash (ADR 23); those that are put to be
  `provable` have an entry with that hash (ADR 40).
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from holdproof import paging, validation
from holdproof.db import USED, Tx, Use, sql
from holdproof.errors import NotFoundError
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.memory.threads import channel_values, line_writers, thread_entries, thread_rows, thread_states
from holdproof.memory.threads.channel_values import Cached, Ref, ThreadBlocks
from holdproof.memory.threads.line_writers import LineState
from holdproof.memory.threads.thread_entries import EntryMark
from holdproof.memory.threads.thread_rows import HELD, ThreadRow
from holdproof.memory.threads.thread_states import CheckpointState, json_text, name
from holdproof.model.page import Page
from holdproof.model.threads import Checkpoint, PendingWrite, SavedCheckpoint


class _Put(NamedTuple):
    """A line, and what is put on top of in it."""

    line: LineState
    parent_h: bytes | None
    tip: str | None
    entry: EntryMark | None


# --- writing -----------------------------------------------------------------------------------------------------

_ADD = sql(
    "INSERT INTO thread_checkpoints (thread, checkpoint_ns, checkpoint_id, parent_id, run_id, epoch, metadata, state,"
    " h, created_at) VALUES (:thread, :checkpoint_ns, :checkpoint_id, :parent_id, :run_id, :epoch, :metadata, :state,"
    " :h, :now) ON CONFLICT (thread, checkpoint_ns, checkpoint_id) DO UPDATE SET parent_id = excluded.parent_id,"
    " run_id = excluded.run_id, epoch = excluded.epoch, metadata = excluded.metadata, state = excluded.state,"
    " h = excluded.h"
)


def put_checkpoint(
    tx: Tx,
    thread_id: str,
    channels: Mapping[str, Any],
    *,
    checkpoint_id: str | None = None,
    parent_id: str | None = None,
    checkpoint_ns: str = "",
    metadata: Mapping[str, Any] | None = None,
    state: bytes = b"",
    keep: Collection[str] = (),
    needs: Collection[str] = (),
    run_id: str | None = None,
    facts: Mapping[str, Any] | None = None,
    status: str = "active",
    claim: str | None = None,
    on_conflict: str = "fork",
    provable: bool = False,
    ns: str = MAIN,
) -> SavedCheckpoint:
    """Write a checkpoint: its channels, the framework's own `state` beside them, and metadata (JSON).

    `keep` names channels that are as in the parent; `needs` those that readers must look for in earlier checkpoints.
    `facts` replaces what the thread is found by. `claim` is the token that `claim()` gave to this run: with
    `on_conflict="error"` a run that another one has overtaken gets StaleWriterError instead of a fork. With `provable`
    thread, id and hash of the checkpoint are an entry of the log.
    """
    line_writers.one_of_conflicts(on_conflict)
    new = name("checkpoint_id", tx.new_id() if checkpoint_id is None else checkpoint_id)
    put = _look(tx, thread_id, name("checkpoint_ns", checkpoint_ns, least=0), (new, parent_id), ns)
    # Who may write is decided under the thread's lock, before anything is stored.
    epoch, stale = line_writers.fence(tx, put.line, claim)
    if stale:
        line_writers.refuse_stale(on_conflict, checkpoint_ns, thread_id=thread_id)
    thread = put.line.thread
    tx.note(USED, Use("written", "threads", ns, thread.n))
    space = ThreadBlocks(tx, thread.n)
    refs = _refs(space, channels, keep, _before(tx, put, parent_id))
    blob = thread_states.encode(CheckpointState(refs, state, tuple(needs), put.parent_h))
    text = json_text(metadata or {}, "metadata")
    h = thread_states.row_hash(checkpoint_ns, (new, parent_id, run_id), text, blob)
    space.flush(ns, len(blob) + len(text.encode()))
    row = {"parent_id": parent_id, "run_id": run_id, "metadata": text, "state": blob, "h": h, "now": tx.now}
    tx.execute(_ADD, thread=thread.n, checkpoint_ns=checkpoint_ns, checkpoint_id=new, epoch=epoch, **row, expect=1)
    thread_states.REFS.keep(h, refs)
    if provable or put.entry is not None:
        line = checkpoint_ns, new
        thread_entries.record(tx, thread.n, thread_id=thread_id, line=line, h=h, earlier=put.entry, ns=ns)
    # What tasks wrote may have come first, and with it that the run waits, or failed, at this very checkpoint.
    thread_rows.touch(tx, thread, ns, thread.status if thread.status_of == new else status, facts, about=new)
    return SavedCheckpoint(new, stale or put.tip not in (None, parent_id, new), h.hex())


def _refs(
    space: ThreadBlocks, channels: Mapping[str, Any], keep: Collection[str], before: Mapping[str, Ref]
) -> dict[str, Ref]:
    refs = {each: channel_values.store(space, value, before.get(each)) for each, value in channels.items()}
    for channel in keep:
        if channel not in before:
            raise NotFoundError("the parent has no such channel to keep: give its value", channel=channel)
        refs[channel] = before[channel]
    return refs


_STATE = sql(
    "SELECT state FROM thread_checkpoints WHERE thread = :thread AND h = :h AND checkpoint_id = :checkpoint_id"
)


def _before(tx: Tx, put: _Put, parent_id: str | None) -> dict[str, Ref]:
    """The references of the parent; those of the last few are remembered by their hash, which says all about them."""
    if put.parent_h is None:
        return {}
    refs = thread_states.REFS.get(put.parent_h)
    if refs is None:
        [(blob,), *_] = tx.all(_STATE, thread=put.line.thread.n, h=put.parent_h, checkpoint_id=parent_id)
        refs = thread_states.decode(blob).refs
    return refs


_LOOK = sql(
    f"SELECT {HELD}, l.epoch, l.writes, l.writer, p.epoch, p.h, (SELECT max(c.checkpoint_id) FROM thread_checkpoints c"  # noqa: S608
    " WHERE c.thread = t.n AND c.checkpoint_ns = :checkpoint_ns), e.id, e.leaf_ver FROM threads t"
    " LEFT JOIN thread_lines l ON l.thread = t.n AND l.checkpoint_ns = :checkpoint_ns"
    " LEFT JOIN thread_checkpoints p ON p.thread = t.n AND p.checkpoint_ns = :checkpoint_ns"
    " AND p.checkpoint_id = CAST(:parent_id AS TEXT)"
    " LEFT JOIN thread_entries e ON e.thread = t.n AND e.checkpoint_ns = :checkpoint_ns AND e.checkpoint_id = :new"
    " WHERE t.ns = :ns AND t.thread_id = :thread_id"
)


def _look(tx: Tx, thread_id: str, checkpoint_ns: str, ids: tuple[str, str | None], ns: str) -> _Put:
    """A line of a thread, which is made where it is not there, or begun anew; nobody else writes it meanwhile."""
    new, parent_id = ids
    thread_rows.lock(tx, thread_id, ns)
    late = None if parent_id is None else name("parent_id", parent_id)
    row = tx.one(_LOOK, ns=ns, thread_id=thread_id, checkpoint_ns=checkpoint_ns, parent_id=late, new=new)
    if row is None:
        thread = thread_rows.writable(tx, None, thread_id, ns, late=late)
        return _Put(LineState(thread, checkpoint_ns, None, None, None, None), None, None, None)
    *columns, epoch, writes, writer, parent_epoch, parent_h, tip, entry_id, entry_version = row
    thread = thread_rows.writable(tx, ThreadRow(*columns), thread_id, ns, late=late, first=new)
    entry = None if entry_id is None else EntryMark(entry_id, entry_version)
    return _Put(LineState(thread, checkpoint_ns, epoch, writes, writer, parent_epoch), parent_h, tip, entry)


# --- reading -----------------------------------------------------------------------------------------------------

# A parent that was pruned is not named: nobody could read it.
_PARENT: Final = (
    "(SELECT p.checkpoint_id FROM thread_checkpoints p WHERE p.thread = c.thread"
    " AND p.checkpoint_ns = c.checkpoint_ns AND p.checkpoint_id = c.parent_id)"
)
_COLUMNS: Final = (
    f"c.n, c.thread, t.thread_id, c.checkpoint_ns, c.checkpoint_id, {_PARENT}, c.metadata, c.state, c.created_at, c.h"
)


class _CheckpointRow(NamedTuple):
    """A row of `thread_checkpoints`, in the order of `_COLUMNS`."""

    n: int
    thread: int
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    metadata: str
    state: bytes
    created_at: str
    h: bytes


_FROM: Final = f"SELECT {_COLUMNS} FROM thread_checkpoints c JOIN threads t ON t.n = c.thread WHERE t.ns = :ns"  # noqa: S608
_GET = sql(
    f"{_FROM} AND t.thread_id = :thread_id AND c.checkpoint_ns = :checkpoint_ns AND c.checkpoint_id = :checkpoint_id"
)
_NEWEST = sql(
    f"{_FROM} AND t.thread_id = :thread_id AND c.checkpoint_ns = :checkpoint_ns ORDER BY c.checkpoint_id DESC LIMIT 1"
)


def get_checkpoint(
    tx: Tx, thread_id: str, *, checkpoint_id: str | None = None, checkpoint_ns: str = "", ns: str = MAIN
) -> Checkpoint:
    """Return a checkpoint with what tasks wrote on top of it: the one with that id, or the newest of its line.

    Raises NotFoundError where there is none.
    """
    checkpoint = find_checkpoint(tx, thread_id, checkpoint_id=checkpoint_id, checkpoint_ns=checkpoint_ns, ns=ns)
    if checkpoint is None:
        what = "no checkpoint" if checkpoint_id is None else f"no checkpoint {checkpoint_id}"
        raise NotFoundError(f"thread {thread_id} has {what}", thread_id=thread_id, checkpoint_id=checkpoint_id)
    return checkpoint


def find_checkpoint(
    tx: Tx,
    thread_id: str,
    *,
    checkpoint_id: str | None = None,
    checkpoint_ns: str = "",
    cached: Cached | None = None,
    ns: str = MAIN,
) -> Checkpoint | None:
    """Return what `get_checkpoint` does, or None where there is none.

    `cached` says which elements of lists the caller has: their bytes are not read, and lack in the lists.
    """
    of = {"ns": ns, "thread_id": thread_id, "checkpoint_ns": checkpoint_ns}
    row = tx.one(_NEWEST, **of) if checkpoint_id is None else tx.one(_GET, **of, checkpoint_id=checkpoint_id)
    return None if row is None else _checkpoint(tx, _CheckpointRow(*row), ns, cached)


_OF_THREAD = sql(
    f"{_FROM} AND t.thread_id = :thread_id"
    " AND (CAST(:checkpoint_ns AS TEXT) IS NULL OR c.checkpoint_ns = :checkpoint_ns)"
    " AND (CAST(:before AS TEXT) IS NULL OR c.checkpoint_id < :before)"
    " AND (c.checkpoint_id < :id OR (c.checkpoint_id = :id AND c.n < :n)) ORDER BY c.checkpoint_id DESC, c.n DESC"
    " LIMIT :limit"
)
_OF_ALL = sql(
    f"{_FROM} AND (CAST(:checkpoint_ns AS TEXT) IS NULL OR c.checkpoint_ns = :checkpoint_ns)"
    " AND (CAST(:before AS TEXT) IS NULL OR c.checkpoint_id < :before) AND c.n < :n ORDER BY c.n DESC LIMIT :limit"
)


def list_checkpoints(
    tx: Tx,
    thread_id: str | None = None,
    *,
    checkpoint_ns: str | None = None,
    before: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
    ns: str = MAIN,
) -> Page[Checkpoint]:
    """List the checkpoints of a thread, or of all threads, the newest first.

    `before` is a checkpoint id: only older ones are listed.
    """
    # No id sorts after the last code point.
    n, last = paging.decode(cursor, validation.LAST, "\U0010ffff")
    params = {"ns": ns, "checkpoint_ns": checkpoint_ns, "before": before, "n": n, "limit": paging.fetch(limit)}
    query = _OF_ALL
    if thread_id is not None:
        query = _OF_THREAD
        params |= {"thread_id": thread_id, "id": last}
    rows = (_CheckpointRow(*row) for row in tx.all(query, **params))
    page = paging.page(rows, limit, lambda row: (row.n, row.checkpoint_id))
    # Decoded only now: the row that shows whether another page follows is not.
    return Page([_checkpoint(tx, row, ns) for row in page.items], page.next_cursor)


def cursor_at(checkpoint_id: str) -> str:
    """Return a cursor of `list_checkpoints` of a thread, whose page begins with that checkpoint."""
    return paging.encode(validation.LAST, checkpoint_id)


_WRITES = sql(
    "SELECT task_id, idx, channel, value, task_path FROM thread_writes WHERE thread = :thread"
    " AND checkpoint_ns = :checkpoint_ns AND checkpoint_id = :checkpoint_id"
)


class _WriteRow(NamedTuple):
    task_id: str
    idx: int
    channel: str
    value: bytes
    task_path: str


def _checkpoint(tx: Tx, row: _CheckpointRow, ns: str, cached: Cached | None = None) -> Checkpoint:
    tx.note(USED, Use("read", "threads", ns, row.thread))
    state = thread_states.decode(row.state)
    space = ThreadBlocks(tx, row.thread)
    key = {"thread": row.thread, "checkpoint_ns": row.checkpoint_ns, "checkpoint_id": row.checkpoint_id}
    write_rows = [_WriteRow(*each) for each in tx.all(_WRITES, **key)]
    # The order in which a step's writes are applied: by the task's path, its id, and number.
    write_rows.sort(key=lambda each: (each.task_path, each.task_id, each.idx))
    pending = [(each, thread_states.decode_ref(each.value)) for each in write_rows]
    # The content of channels and writes is read at once: one query instead of one for each value.
    digests = channel_values.needs(space, state.refs.values(), cached)
    digests |= channel_values.needs(space, (ref for _, ref in pending))
    content = space.read(digests)
    channels = {name: channel_values.value(space, ref, content) for name, ref in state.refs.items()}
    writes = tuple(
        PendingWrite(each.task_id, each.idx, each.channel, channel_values.value(space, ref, content), each.task_path)
        for each, ref in pending
    )
    return Checkpoint(
        row.thread_id,
        row.checkpoint_ns,
        row.checkpoint_id,
        row.parent_id,
        channels,
        json.loads(row.metadata),
        state.own,
        row.created_at,
        writes,
        row.h.hex(),
        ns,
    )
