"""What tasks wrote on top of a checkpoint, which may be on its way still."""

from collections.abc import Sequence
from typing import Any

from holdproof.db import USED, Tx, Use, sql
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.memory.threads import channel_values, line_writers, thread_rows, thread_states
from holdproof.memory.threads.channel_values import ThreadBlocks
from holdproof.memory.threads.thread_states import name

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
    claim: str | None = None,
    on_conflict: str = "fork",
    ns: str = MAIN,
) -> None:
    """Keep what a task wrote on top of a checkpoint: number, channel and value of each.

    With `on_conflict="error"` a run that another one has overtaken since its `claim` gets StaleWriterError.
    """
    line_writers.one_of_conflicts(on_conflict)
    id = name("checkpoint_id", checkpoint_id)
    line = name("checkpoint_ns", checkpoint_ns, least=0)
    thread = thread_rows.writable_ahead(tx, thread_id, id, ns)
    line_writers.fence_writes(tx, thread, line, id, claim=claim, on_conflict=on_conflict)
    tx.note(USED, Use("written", "threads", ns, thread.n))
    space = ThreadBlocks(tx, thread.n)
    row = {"thread": thread.n, "checkpoint_ns": line, "checkpoint_id": id}
    row |= {"task_id": name("task_id", task_id), "task_path": name("task_path", task_path, least=0)}
    rows = []
    size = 0
    for idx, channel, value in writes:
        ref = thread_states.encode_ref(channel_values.store(space, value))
        size += len(ref)
        rows.append({**row, "idx": idx, "channel": name("channel", channel), "value": ref})
    space.flush(ns, size)
    tx.many(_REWRITE if replace else _WRITE, rows)
    # What is written ahead for a deleted thread does not show it again: its checkpoint does.
    if status is not None and thread.deleted_at is None:
        thread_rows.touch(tx, thread, ns, status, None, about=id)
