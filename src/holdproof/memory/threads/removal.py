"""Taking threads away: as a whole, what some runs wrote, what has had its time; and the copy of a thread.

Rules:
- What goes takes along every block that only it had: of a thread as a whole all of them, of checkpoints those that no
  other checkpoint or write of the thread needs.
- The newest checkpoint of a line stays, unless the thread goes, or the line is of a subgraph's call that is over; so do
  those in which a channel must be looked for that a remaining checkpoint left out (`needs`), back to the one that has
  it.
- Each call is a pruning in the log: which rule, who, how many.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdproof import validation
from holdproof.db import USED, Tx, Use, sql
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.evidence import prunings
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.memory.threads import channel_values, thread_entries, thread_rows, thread_states
from holdproof.memory.threads.channel_values import Digest, Ref, ThreadBlocks
from holdproof.model.threads import ThreadsRemoved

_WHAT: Final = "threads"
_BATCH: Final = 500

# --- threads as a whole ------------------------------------------------------------------------------------------

_LARGEST = sql(
    "SELECT max(id) FROM (SELECT max(checkpoint_id) AS id FROM thread_checkpoints WHERE thread = :n"
    " UNION ALL SELECT max(checkpoint_id) FROM thread_writes WHERE thread = :n) AS both_tables"
)
_SIZES = sql(
    "SELECT (SELECT count(*) FROM thread_checkpoints WHERE thread = :n), count(*), coalesce(sum(length(data)), 0)"
    " FROM thread_blocks WHERE thread = :n"
)
_EMPTY = [
    sql(f"DELETE FROM {table} WHERE thread = :n")  # noqa: S608 (names come from here)
    for table in ("thread_writes", "thread_checkpoints", "thread_lines", "thread_facts", "thread_blocks")
]
_BURY = sql(
    "UPDATE threads SET deleted_at = :now, updated_at = :now, status = 'idle', facts = '{}', dead_id = :dead_id"
    " WHERE n = :n"
)


def delete(tx: Tx, thread_id: str, *, who: str = "operator", dry_run: bool = False, ns: str = MAIN) -> ThreadsRemoved:
    """Remove a thread with all it has; what is still written for it afterwards stays out. No thread is no error."""
    thread = thread_rows.find(tx, thread_id, ns)
    if thread is None:
        return ThreadsRemoved()
    if thread.deleted_at is not None:
        # A run that was under way may have written ahead for checkpoints that were refused.
        if not dry_run:
            _bury(tx, thread)
        return ThreadsRemoved()
    [(count, blocks, size)] = tx.all(_SIZES, n=thread.n)
    removed = ThreadsRemoved(1, count, blocks, size)
    if not dry_run:
        handles = thread_entries.drop(tx, thread.n)
        _bury(tx, thread)
        _log(tx, {"delete": thread_id}, handles, (count, who, ns))
    return removed


_FORGET = sql("DELETE FROM threads WHERE n = :n")


def erase(tx: Tx, thread_id: str, *, rule: Mapping[str, Any], who: str, ns: str) -> None:
    """Remove a thread with its id, for a person's sake: no tombstone stays, and the pruning has `rule` in its place."""
    thread = thread_rows.find(tx, thread_id, ns)
    if thread is None:
        return
    [(count, _, _)] = tx.all(_SIZES, n=thread.n)
    handles = thread_entries.drop(tx, thread.n)
    for query in (*_EMPTY, _FORGET):
        tx.execute(query, n=thread.n)
    _log(tx, dict(rule), handles, (count, who, ns))


def _bury(tx: Tx, thread: thread_rows.ThreadRow) -> None:
    # Ids grow with time: what is written later for a checkpoint up to this one belongs to the deleted life.
    [(largest,)] = tx.all(_LARGEST, n=thread.n)
    for query in _EMPTY:
        tx.execute(query, n=thread.n)
    tx.execute(_BURY, n=thread.n, now=tx.now, dead_id=max(largest or "", thread.dead_id), expect=1)


def _log(tx: Tx, rule: dict[str, Any], handles: Sequence[str], of: tuple[int, str, str]) -> None:
    count, who, ns = of
    removals = {thread_entries.TABLE: handles} if handles else {}
    prunings.record(
        tx, _WHAT, removals, rule=thread_states.json_text(rule), who=validation.who(who), count=count, ns=ns
    )


# --- checkpoints -------------------------------------------------------------------------------------------------


class _Row(NamedTuple):
    n: int
    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    created_at: str
    state: bytes


_ROWS = sql(
    "SELECT n, checkpoint_ns, checkpoint_id, parent_id, created_at, state FROM thread_checkpoints WHERE thread = :n"
    " ORDER BY checkpoint_ns, checkpoint_id DESC"
)


def prune(
    tx: Tx,
    thread_id: str,
    *,
    keep: int | None = None,
    before: str | None = None,
    who: str = "operator",
    dry_run: bool = False,
    ns: str = MAIN,
) -> ThreadsRemoved:
    """Remove checkpoints beyond the newest `keep` of each line and older than `before`; one of each always stays."""
    if keep is None and before is None:
        raise InvalidInputError("say how many to keep, or how old")
    if keep is not None and (isinstance(keep, bool) or keep < 1):
        raise InvalidInputError("keep is a whole number, one or more", keep=keep)
    thread = thread_rows.find(tx, thread_id, ns)
    if thread is None or thread.deleted_at is not None:
        return ThreadsRemoved()
    rows = [_Row(*row) for row in tx.all(_ROWS, n=thread.n)]
    due = _due(rows, keep or 1, None if before is None else validation.moment("before", before))
    removed = _remove(tx, thread.n, due, dry_run=dry_run)
    if due and not dry_run:
        handles = _drop_entries(tx, thread.n, due)
        _log(tx, {"thread": thread_id, "keep": keep, "before": before}, handles, (len(due), who, ns))
    return removed


def _due(rows: Iterable[_Row], keep: int, before: str | None) -> list[_Row]:
    """Return what is past every limit and needed by nothing that stays."""
    lines: dict[str, list[_Row]] = {}
    for row in rows:
        lines.setdefault(row.checkpoint_ns, []).append(row)
    due: list[_Row] = []
    oldest: dict[str, str | None] = {}
    # A line comes after the one that called it: what stays of a call depends on what stays of its caller.
    for line_ns, line in sorted(lines.items()):
        least = 0 if _is_over(line_ns, line, oldest) else keep
        old = {row.checkpoint_id: row for row in line[least:] if before is None or row.created_at < before}
        by_id = {row.checkpoint_id: row for row in line}
        for row in line:
            if row.checkpoint_id not in old:
                _spare(row, by_id, old)
        due += old.values()
        remaining = [row.checkpoint_id for row in line if row.checkpoint_id not in old]
        oldest[line_ns] = min(remaining, default=None)
    return due


def _is_over(line_ns: str, line: Sequence[_Row], oldest: Mapping[str, str | None]) -> bool:
    """Return whether a line is that of a call, and its caller has nothing left that the call could go on from.

    Frameworks name a line by the way to it, `node:task|node:task`. One without a task belongs to a subgraph that keeps
    its state from call to call.
    """
    caller, _, call = line_ns.rpartition("|")
    if ":" not in call or caller not in oldest:
        return False
    first = oldest[caller]
    # Ids grow with time: a call that goes on has checkpoints after the one it was made from. `line` is newest first.
    return first is None or line[0].checkpoint_id < first


def _spare(row: _Row, by_id: dict[str, _Row], old: dict[str, _Row]) -> None:
    """Take from what goes the checkpoints in which this one's missing channels must be looked for."""
    missing = set(thread_states.decode(row.state).needs)
    parent = row.parent_id
    walked: set[str] = set()
    while missing and parent in by_id and parent not in walked:
        walked.add(parent)
        old.pop(parent, None)
        missing -= thread_states.decode(by_id[parent].state).refs.keys()
        parent = by_id[parent].parent_id


_OF_RUNS = sql(
    "SELECT c.thread, t.thread_id FROM thread_checkpoints c JOIN threads t ON t.n = c.thread WHERE t.ns = :ns"
    " AND c.run_id = :run_id GROUP BY c.thread, t.thread_id ORDER BY t.thread_id"
)
_ROWS_OF_RUN = sql(
    "SELECT n, checkpoint_ns, checkpoint_id, parent_id, created_at, state FROM thread_checkpoints WHERE thread = :n"
    " AND run_id = :run_id"
)


def delete_runs(tx: Tx, run_ids: Sequence[str], *, who: str = "operator", ns: str = MAIN) -> ThreadsRemoved:
    """Remove every checkpoint that these runs wrote, with what was written on top of it."""
    total = ThreadsRemoved()
    for run_id in dict.fromkeys(run_ids):
        for n, thread_id in tx.all(_OF_RUNS, ns=ns, run_id=run_id):
            thread_rows.find(tx, thread_id, ns)
            rows = [_Row(*row) for row in tx.all(_ROWS_OF_RUN, n=n, run_id=run_id)]
            total += _remove(tx, n, rows, dry_run=False)
            handles = _drop_entries(tx, n, rows)
            _log(tx, {"run": run_id, "thread": thread_id}, handles, (len(rows), who, ns))
    return total


def _drop_entries(tx: Tx, n: int, rows: Iterable[_Row]) -> list[str]:
    return thread_entries.drop(tx, n, ((row.checkpoint_ns, row.checkpoint_id) for row in rows))


_DROP = sql("DELETE FROM thread_checkpoints WHERE n = :n")
_DROP_WRITES = sql(
    "DELETE FROM thread_writes WHERE thread = :thread AND checkpoint_ns = :checkpoint_ns"
    " AND checkpoint_id = :checkpoint_id"
)
_BLOCKS = sql("SELECT h, length(data) FROM thread_blocks WHERE thread = :n")
_DELETE = sql(
    "DELETE FROM thread_blocks WHERE thread = :n AND h IN (SELECT unhex(value) FROM json_each(:gone))",
    postgres="DELETE FROM thread_blocks WHERE thread = :n AND h IN"
    " (SELECT decode(value, 'hex') FROM json_array_elements_text(CAST(:gone AS JSON)))",
)


def _remove(tx: Tx, n: int, rows: Sequence[_Row], *, dry_run: bool) -> ThreadsRemoved:
    """Remove checkpoints of a thread and what only they needed."""
    if not rows:
        return ThreadsRemoved()
    live = _live(tx, n, {(row.checkpoint_ns, row.checkpoint_id) for row in rows})
    dead = {h: size for h, size in tx.all(_BLOCKS, n=n) if h not in live}
    if not dry_run:
        tx.many(_DROP, [{"n": row.n} for row in rows])
        named = [{"thread": n, "checkpoint_ns": row.checkpoint_ns, "checkpoint_id": row.checkpoint_id} for row in rows]
        tx.many(_DROP_WRITES, named)
        digests = sorted(dead)
        for start in range(0, len(digests), _BATCH):
            tx.execute(_DELETE, n=n, gone=json.dumps([h.hex() for h in digests[start : start + _BATCH]]))
    return ThreadsRemoved(0, len(rows), len(dead), sum(dead.values()))


_WRITTEN = sql("SELECT checkpoint_ns, checkpoint_id, value FROM thread_writes WHERE thread = :n")


def _live(tx: Tx, n: int, removed: set[tuple[str, str]]) -> set[Digest]:
    """Return every block that the rest of a thread needs."""
    refs: set[Ref] = set()
    for row in (_Row(*columns) for columns in tx.all(_ROWS, n=n)):
        if (row.checkpoint_ns, row.checkpoint_id) not in removed:
            refs.update(thread_states.decode(row.state).refs.values())
    # Writes may precede their checkpoint: those of none that is removed stay, whether it is there yet or not.
    for checkpoint_ns, checkpoint_id, value in tx.all(_WRITTEN, n=n):
        if (checkpoint_ns, checkpoint_id) not in removed:
            refs.add(thread_states.decode_ref(value))
    space = ThreadBlocks(tx, n)
    live = {*channel_values.needs(space, refs)}
    for ref in refs:
        live.update(channel_values.nodes(space, ref))
    return live


# --- copies ------------------------------------------------------------------------------------------------------

_COPIES = [
    sql(
        f"INSERT INTO {table} (thread, {columns}) SELECT CAST(:new AS BIGINT), {columns} FROM {table}"  # noqa: S608
        " WHERE thread = :old ON CONFLICT DO NOTHING"
    )
    for table, columns in (
        ("thread_blocks", "h, data"),
        ("thread_lines", "checkpoint_ns, epoch, writes, writer"),
        (
            "thread_checkpoints",
            "checkpoint_ns, checkpoint_id, parent_id, run_id, epoch, metadata, state, h, created_at",
        ),
        ("thread_writes", "checkpoint_ns, checkpoint_id, task_id, idx, channel, task_path, value"),
    )
]
_MARKS = sql("SELECT status, facts FROM threads WHERE n = :n")


def copy(tx: Tx, thread_id: str, to: str, *, ns: str = MAIN) -> int:
    """Copy a thread with all its checkpoints and writes; what the other one has already stays. How many it has then."""
    if thread_id == to:
        raise InvalidInputError("a thread is copied to another one", thread_id=thread_id)
    for name in sorted((thread_id, to)):  # in one order, or two that copy crosswise would wait for each other
        thread_rows.find(tx, name, ns)
    source = thread_rows.find(tx, thread_id, ns)
    if source is None or source.deleted_at is not None:
        raise NotFoundError("no such thread", thread_id=thread_id)
    target = thread_rows.begin(tx, to, ns)
    tx.note(USED, Use("read", "threads", ns, source.n))
    tx.note(USED, Use("written", "threads", ns, target.n))
    for query in _COPIES:
        tx.execute(query, new=target.n, old=source.n)
    [(status, facts)] = tx.all(_MARKS, n=source.n)
    thread_rows.touch(tx, target, ns, status, json.loads(facts))
    [(count, _, _)] = tx.all(_SIZES, n=target.n)
    return int(count)
