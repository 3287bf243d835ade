"""Channels that a checkpoint left out: what was written to them since the last earlier one that has them.

All in one transaction: rows of ancestors come a page at a time, since they mostly lie side by side, writes and content
at once. Asked for one ancestor after the other, a chat of 200 turns took a thousand questions.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from holdproof.db import USED, Tx, Use, sql
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.memory.threads import channel_values, thread_states
from holdproof.memory.threads.channel_values import Cached, Ref, ThreadBlocks

_PAGE: Final = 100


class Deltas(NamedTuple):
    """A channel: whether an earlier checkpoint has it, what it holds there, and who wrote what since, in order."""

    seeded: bool
    seed: Any
    writes: tuple[tuple[str, str, Any], ...]


class _Step(NamedTuple):
    """An ancestor, and the channels that are still looked for there."""

    checkpoint_id: str
    channels: frozenset[str]


_START = sql(
    "SELECT c.thread, c.parent_id FROM thread_checkpoints c JOIN threads t ON t.n = c.thread WHERE t.ns = :ns"
    " AND t.thread_id = :thread_id AND c.checkpoint_ns = :checkpoint_ns"
    " AND (CAST(:checkpoint_id AS TEXT) IS NULL OR c.checkpoint_id = :checkpoint_id)"
    " ORDER BY c.checkpoint_id DESC LIMIT 1"
)


def since(
    tx: Tx,
    thread_id: str,
    channels: Iterable[str],
    *,
    checkpoint_id: str | None = None,
    checkpoint_ns: str = "",
    cached: Cached | None = None,
    ns: str = MAIN,
) -> dict[str, Deltas]:
    """What became of channels before a checkpoint, or before the newest; empty where there is no such checkpoint.

    `cached` says which elements of lists the caller has: their bytes are not read, and lack in the lists.
    """
    start = tx.one(_START, ns=ns, thread_id=thread_id, checkpoint_ns=checkpoint_ns, checkpoint_id=checkpoint_id)
    if start is None:
        return {}
    thread, parent = start
    tx.note(USED, Use("read", "threads", ns, thread))
    steps, seeds = _walk(tx, thread, checkpoint_ns, parent, frozenset(channels))
    pending = [(row, thread_states.decode_ref(row.value)) for row in _writes(tx, thread, checkpoint_ns, steps)]
    space = ThreadBlocks(tx, thread)
    content = space.read(channel_values.needs(space, [*seeds.values(), *(ref for _, ref in pending)], cached))
    writes: dict[str, list[tuple[str, str, Any]]] = {name: [] for name in channels}
    for row, ref in pending:
        writes[row.channel].append((row.task_id, row.channel, channel_values.value(space, ref, content)))
    values = {name: channel_values.value(space, ref, content) for name, ref in seeds.items()}
    return {name: Deltas(name in values, values.get(name), tuple(own)) for name, own in writes.items()}


_ROWS = sql(
    "SELECT checkpoint_id, parent_id, h, state FROM thread_checkpoints WHERE thread = :thread"
    " AND checkpoint_ns = :checkpoint_ns AND checkpoint_id <= :first ORDER BY checkpoint_id DESC LIMIT :limit"
)


def _walk(
    tx: Tx, thread: int, checkpoint_ns: str, parent: str | None, waiting: frozenset[str]
) -> tuple[list[_Step], dict[str, Ref]]:
    """Return the ancestors that matter, the nearest first, and what channels hold where they are found."""
    steps: list[_Step] = []
    seeds: dict[str, Ref] = {}
    page: dict[str, tuple[str | None, bytes, bytes]] = {}
    walked: set[str] = set()
    # Whoever puts checkpoints names their parents, in a circle too: then the walk ends where it began.
    while waiting and parent is not None and parent not in walked:
        walked.add(parent)
        if parent not in page:
            # Ancestors mostly have the next smaller ids: one page serves a hundred steps back.
            of = {"thread": thread, "checkpoint_ns": checkpoint_ns, "first": parent}
            page = {id: (before, h, state) for id, before, h, state in tx.all(_ROWS, **of, limit=_PAGE)}
        if parent not in page:  # it was pruned
            break
        steps.append(_Step(parent, waiting))
        grandparent, h, state = page[parent]
        refs = thread_states.refs_of(h, state)
        seeds |= {name: refs[name] for name in waiting & refs.keys()}
        waiting -= refs.keys()
        parent = grandparent
    return steps, seeds


_WRITES = sql(
    "SELECT checkpoint_id, task_id, idx, channel, value, task_path FROM thread_writes WHERE thread = :thread"
    " AND checkpoint_ns = :checkpoint_ns AND checkpoint_id >= :first AND checkpoint_id <= :last"
)


class _WriteRow(NamedTuple):
    """A row of `thread_writes`, in the order of `_WRITES`."""

    checkpoint_id: str
    task_id: str
    idx: int
    channel: str
    value: bytes
    task_path: str


def _writes(tx: Tx, thread: int, checkpoint_ns: str, steps: Sequence[_Step]) -> list[_WriteRow]:
    """Return what tasks wrote to the channels at these ancestors, the oldest first, in the order it was applied."""
    if not steps:
        return []
    channels = {step.checkpoint_id: step.channels for step in steps}
    # Steps lead back from the newest; the negated distance puts the oldest first.
    order = {step.checkpoint_id: -distance for distance, step in enumerate(steps)}
    bounds = {"first": min(channels), "last": max(channels)}
    rows = [_WriteRow(*row) for row in tx.all(_WRITES, thread=thread, checkpoint_ns=checkpoint_ns, **bounds)]
    # The range of ids may hold checkpoints of other branches: only those of the chain count.
    relevant = [row for row in rows if row.channel in channels.get(row.checkpoint_id, ())]
    return sorted(relevant, key=lambda row: (order[row.checkpoint_id], row.task_path, row.task_id, row.idx))
