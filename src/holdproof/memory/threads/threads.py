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
- Deletions are in the log; checkpoints are not, they are hashed, each with its parent's hash (ADR 23).
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdproof import paging, validation
from holdproof.db import Tx, lock_exclusive, sql
from holdproof.errors import InvalidInputError, NotFoundError, StaleWriterError, ThreadDeletedError
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.memory.threads import channel_values, thread_states
from holdproof.memory.threads.channel_values import LruCache, Ref, ThreadBlocks
from holdproof.memory.threads.thread_states import CheckpointState, json_text, name
from holdproof.model.page import Page
from holdproof.model.threads import Checkpoint, PendingWrite, SavedCheckpoint

_CLAIM: Final = re.compile(r"([0-9]{1,18})\.([0-9a-f]+)\.(.*)", re.DOTALL)
_CONFLICTS: Final = frozenset({"error", "fork"})
STATUSES: Final = frozenset({"active", "interrupted", "error", "idle"})


class ThreadRow(NamedTuple):
    """A thread that nobody else writes before the transaction ends; of a tombstone `deleted_at` is set."""

    n: int
    facts: str
    deleted_at: str | None
    dead_id: str
    status: str
    status_of: str


class _WriterState(NamedTuple):
    """A line as its next writer finds it; `epoch` is None where nobody has written it yet."""

    thread: ThreadRow
    checkpoint_ns: str
    epoch: int | None
    writer: str | None
    parent_epoch: int | None
    parent_h: bytes | None
    tip: str | None


_STATES: Final[LruCache[dict[str, Ref]]] = LruCache(512)

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
    ns: str = MAIN,
) -> SavedCheckpoint:
    """Write a checkpoint: its channels, the framework's own `state` beside them, and metadata (JSON).

    `keep` names channels that are as in the parent; `needs` those that readers must look for in earlier checkpoints.
    `facts` replaces what the thread is found by. `claim` is the token that `claim()` gave to this run: with
    `on_conflict="error"` a run that another one has overtaken gets StaleWriterError instead of a fork.
    """
    if on_conflict not in _CONFLICTS:
        raise InvalidInputError("on_conflict is error or fork", on_conflict=str(on_conflict))
    new = name("checkpoint_id", tx.new_id() if checkpoint_id is None else checkpoint_id)
    line = _look(tx, thread_id, name("checkpoint_ns", checkpoint_ns, least=0), parent_id, ns)
    # Who may write is decided under the thread's lock, before anything is stored.
    epoch, stale = _fence(tx, line, claim)
    if stale and on_conflict == "error":
        raise StaleWriterError("another run writes this thread now", thread_id=thread_id, checkpoint_ns=checkpoint_ns)
    thread = line.thread
    space = ThreadBlocks(tx, thread.n)
    refs = _refs(space, channels, keep, _before(tx, line, parent_id))
    blob = thread_states.encode(CheckpointState(refs, state, tuple(needs), line.parent_h))
    text = json_text(metadata or {}, "metadata")
    h = thread_states.row_hash(checkpoint_ns, (new, parent_id, run_id), text, blob)
    space.flush()
    row = {"parent_id": parent_id, "run_id": run_id, "metadata": text, "state": blob, "h": h, "now": tx.now}
    tx.execute(_ADD, thread=thread.n, checkpoint_ns=checkpoint_ns, checkpoint_id=new, epoch=epoch, **row, expect=1)
    _STATES.keep(h, refs)
    # What tasks wrote may have come first, and with it that the run waits, or failed, at this very checkpoint.
    touch(tx, thread, ns, thread.status if thread.status_of == new else status, facts, about=new)
    return SavedCheckpoint(new, stale or line.tip not in (None, parent_id, new), h.hex())


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


def _before(tx: Tx, line: _WriterState, parent_id: str | None) -> dict[str, Ref]:
    """The references of the parent; those of the last few are remembered by their hash, which says all about them."""
    if line.parent_h is None:
        return {}
    refs = _STATES.get(line.parent_h)
    if refs is None:
        [(blob,), *_] = tx.all(_STATE, thread=line.thread.n, h=line.parent_h, checkpoint_id=parent_id)
        refs = thread_states.decode(blob).refs
    return refs


# --- who writes --------------------------------------------------------------------------------------------------

_BEGIN = sql(
    "INSERT INTO thread_lines (thread, checkpoint_ns, epoch, writer) VALUES (:thread, :checkpoint_ns, 1, :writer)"
)
_TAKE = sql(
    "UPDATE thread_lines SET epoch = epoch + 1, writer = :writer WHERE thread = :thread"
    " AND checkpoint_ns = :checkpoint_ns AND epoch = :epoch"
)


def claim(tx: Tx, thread_id: str, *, checkpoint_ns: str = "", ns: str = MAIN) -> str:
    """What a run must have seen to write this line: say it with each `put`; nothing is taken from others by asking."""
    epochs = [epoch for (epoch,) in tx.all(_EPOCH, ns=ns, thread_id=thread_id, checkpoint_ns=checkpoint_ns)]
    return f"{epochs[0] if epochs else 0}.{tx.random(8).hex()}.{checkpoint_ns}"


_EPOCH = sql(
    "SELECT l.epoch FROM thread_lines l JOIN threads t ON t.n = l.thread WHERE t.ns = :ns AND t.thread_id = :thread_id"
    " AND l.checkpoint_ns = :checkpoint_ns"
)


def _fence(tx: Tx, line: _WriterState, claim: str | None) -> tuple[int, bool]:
    """Under which epoch a checkpoint is written, and whether its writer has been overtaken."""
    saw, token = _seen(claim, line.checkpoint_ns)
    of = {"thread": line.thread.n, "checkpoint_ns": line.checkpoint_ns}
    if line.epoch is None:
        tx.execute(_BEGIN, **of, writer=token or "", expect=1)
        return 1, False
    if token is None:
        last = line.parent_epoch or 0
        return last, last != line.epoch
    # This run wrote last: it goes on under its epoch.
    if line.writer == token:
        return line.epoch, False
    # Nobody wrote since this run read the line: it takes the line over.
    if saw == line.epoch:
        tx.execute(_TAKE, **of, writer=token, epoch=saw, expect=1)
        return saw + 1, False
    return saw, True


def _seen(claim: str | None, checkpoint_ns: str) -> tuple[int, str | None]:
    """Epoch and name of a run; a claim of another line says nothing about this one."""
    if claim is None:
        return 0, None
    match = _CLAIM.fullmatch(claim)
    if match is None:
        raise InvalidInputError("seen is what claim gave", seen=claim[:100])
    return (int(match[1]), match[2]) if match[3] == checkpoint_ns else (0, None)


_HELD: Final = "t.n, t.facts, t.deleted_at, t.dead_id, t.status, t.status_of"
_FIND = sql(f"SELECT {_HELD} FROM threads t WHERE t.ns = :ns AND t.thread_id = :thread_id")  # noqa: S608
_LOOK = sql(
    f"SELECT {_HELD}, l.epoch, l.writer, p.epoch, p.h, (SELECT max(c.checkpoint_id) FROM thread_checkpoints c"  # noqa: S608
    " WHERE c.thread = t.n AND c.checkpoint_ns = :checkpoint_ns) FROM threads t"
    " LEFT JOIN thread_lines l ON l.thread = t.n AND l.checkpoint_ns = :checkpoint_ns"
    " LEFT JOIN thread_checkpoints p ON p.thread = t.n AND p.checkpoint_ns = :checkpoint_ns"
    " AND p.checkpoint_id = CAST(:parent_id AS TEXT) WHERE t.ns = :ns AND t.thread_id = :thread_id"
)
_NEW = sql(
    "INSERT INTO threads (ns, thread_id, status, facts, created_at, updated_at)"
    " VALUES (:ns, :thread_id, 'active', '{}', :now, :now) RETURNING n"
)
_REVIVE = sql(
    "UPDATE threads SET deleted_at = NULL, status = 'active', created_at = :now, updated_at = :now WHERE n = :n"
    " AND deleted_at IS NOT NULL"
)


def _look(tx: Tx, thread_id: str, checkpoint_ns: str, parent_id: str | None, ns: str) -> _WriterState:
    """A line of a thread, which is made where it is not there, or begun anew; nobody else writes it meanwhile."""
    _alone(tx, thread_id, ns)
    late = None if parent_id is None else name("parent_id", parent_id)
    row = tx.one(_LOOK, ns=ns, thread_id=thread_id, checkpoint_ns=checkpoint_ns, parent_id=late)
    thread_row = None if row is None else ThreadRow(*row[:6])
    thread = _writable_thread(tx, thread_row, thread_id, ns, late=late, anew=late is None)
    return _WriterState(thread, checkpoint_ns, *(row[6:] if row is not None else (None,) * 5))


def _writable_thread(
    tx: Tx, thread_row: ThreadRow | None, thread_id: str, ns: str, *, late: str | None, anew: bool
) -> ThreadRow:
    """Return a thread that may be written, made where it is not there.

    `late` is the checkpoint that is written upon: one of an earlier life is refused. `anew` may begin another life.
    """
    if thread_row is None:
        [(n,)] = tx.all(_NEW, ns=ns, thread_id=thread_id, now=tx.now)
        return ThreadRow(n, "{}", None, "", "active", "")
    # Written upon a checkpoint of an earlier life: the run has not heard of the deletion yet.
    if (late is not None and late <= thread_row.dead_id) or (thread_row.deleted_at is not None and not anew):
        raise ThreadDeletedError("the thread was deleted meanwhile", thread_id=thread_id, checkpoint_id=late)
    if thread_row.deleted_at is not None:
        tx.execute(_REVIVE, n=thread_row.n, now=tx.now, expect=1)
    return thread_row


def begin(tx: Tx, thread_id: str, ns: str) -> ThreadRow:
    """Return a thread, made or brought back to life where it is not there."""
    return _writable_thread(tx, find(tx, thread_id, ns), thread_id, ns, late=None, anew=True)


def _alone(tx: Tx, thread_id: str, ns: str) -> None:
    lock_exclusive(tx, f"thread:{name('ns', ns)}:{name('thread_id', thread_id)}")


def find(tx: Tx, thread_id: str, ns: str) -> ThreadRow | None:
    """Return a thread or its tombstone, and nobody else writes it before this transaction ends."""
    _alone(tx, thread_id, ns)
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


# --- what tasks wrote --------------------------------------------------------------------------------------------

_WRITE = sql(
    "INSERT INTO thread_writes (thread, checkpoint_ns, checkpoint_id, task_id, idx, channel, task_path, value)"
    " VALUES (:thread, :checkpoint_ns, :checkpoint_id, :task_id, :idx, :channel, :task_path, :value)"
    " ON CONFLICT (thread, checkpoint_ns, checkpoint_id, task_id, idx) DO NOTHING"
)
_REWRITE = sql(
    "INSERT INTO thread_writes (thread, checkpoint_ns, checkpoint_id, task_id, idx, channel, task_path, value)"
    " VALUES (:thread, :checkpoint_ns, :checkpoint_id, :task_id, :idx, :channel, :task_path, :value)"
    " ON CONFLICT (thread, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE SET channel = excluded.channel,"
    " task_path = excluded.task_path, value = excluded.value"
)


def put_writes(
    tx: Tx,
    thread_id: str,
    checkpoint_id: str,
    task_id: str,
    writes: Sequence[tuple[int, str, Any]],
    *,
    checkpoint_ns: str = "",
    task_path: str = "",
    replace: bool = False,
    status: str | None = None,
    ns: str = MAIN,
) -> None:
    """Keep what a task wrote on top of a checkpoint: number, channel and value of each."""
    late = name("checkpoint_id", checkpoint_id)
    thread = _writable_thread(tx, find(tx, thread_id, ns), thread_id, ns, late=late, anew=False)
    space = ThreadBlocks(tx, thread.n)
    row = {"thread": thread.n, "checkpoint_ns": name("checkpoint_ns", checkpoint_ns, least=0), "checkpoint_id": late}
    row |= {"task_id": name("task_id", task_id), "task_path": name("task_path", task_path, least=0)}
    rows = []
    for idx, channel, value in writes:
        ref = thread_states.encode_ref(channel_values.store(space, value))
        rows.append({**row, "idx": idx, "channel": name("channel", channel), "value": ref})
    space.flush()
    tx.many(_REWRITE if replace else _WRITE, rows)
    if status is not None:
        touch(tx, thread, ns, status, None, about=late)


# --- reading -----------------------------------------------------------------------------------------------------

_COLUMNS: Final = (
    "c.n, c.thread, t.thread_id, c.checkpoint_ns, c.checkpoint_id, c.parent_id, c.metadata, c.state, c.created_at, c.h"
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
    tx: Tx, thread_id: str, *, checkpoint_id: str | None = None, checkpoint_ns: str = "", ns: str = MAIN
) -> Checkpoint | None:
    """Return what `get_checkpoint` does, or None where there is none."""
    of = {"ns": ns, "thread_id": thread_id, "checkpoint_ns": checkpoint_ns}
    row = tx.one(_NEWEST, **of) if checkpoint_id is None else tx.one(_GET, **of, checkpoint_id=checkpoint_id)
    return None if row is None else _checkpoint(tx, _CheckpointRow(*row), ns)


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


def _checkpoint(tx: Tx, row: _CheckpointRow, ns: str) -> Checkpoint:
    state = thread_states.decode(row.state)
    space = ThreadBlocks(tx, row.thread)
    key = {"thread": row.thread, "checkpoint_ns": row.checkpoint_ns, "checkpoint_id": row.checkpoint_id}
    write_rows = [_WriteRow(*each) for each in tx.all(_WRITES, **key)]
    # The order in which a step's writes are applied: by the task's path, its id, and number.
    write_rows.sort(key=lambda each: (each.task_path, each.task_id, each.idx))
    pending = [(each, thread_states.decode_ref(each.value)) for each in write_rows]
    # The content of channels and writes is read at once: one query instead of one for each value.
    content = space.read(channel_values.needs(space, [*state.refs.values(), *(ref for _, ref in pending)]))
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
