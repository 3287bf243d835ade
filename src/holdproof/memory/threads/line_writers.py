"""Who writes a line of checkpoints: claims, epochs, and the number of writes since.

Rules:
- A claim says what a run has seen of a line: its epoch, and how often it was written. Nothing is taken by asking.
- The run that read a line, and writes while nobody else has written it since, takes it over: a new epoch.
- The run that wrote last goes on. Any other one is stale: also one that read between two writes of the run that has
  the line, since it has not seen the second.
- A run without a claim is the one that began the line; it is stale once another has taken over.
- Checkpoints and what tasks wrote are counted alike.
"""

import re
from typing import Final, NamedTuple

from holdproof.db import Tx, sql
from holdproof.errors import InvalidInputError, StaleWriterError
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.memory.threads.thread_rows import ThreadRow

_CLAIM: Final = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})\.([0-9a-f]+)\.(.*)", re.DOTALL)
_CONFLICTS: Final = frozenset({"error", "fork"})


class LineState(NamedTuple):
    """A line as its next writer finds it; `epoch` is None where nobody has written it yet.

    `parent_epoch` is that of the checkpoint that is written upon, None where there is none.
    """

    thread: ThreadRow
    checkpoint_ns: str
    epoch: int | None
    writes: int | None
    writer: str | None
    parent_epoch: int | None


class _Claim(NamedTuple):
    epoch: int
    writes: int
    token: str | None


_BEGIN = sql(
    "INSERT INTO thread_lines (thread, checkpoint_ns, epoch, writes, writer)"
    " VALUES (:thread, :checkpoint_ns, 1, 1, :writer)"
)
_TAKE = sql(
    "UPDATE thread_lines SET epoch = epoch + 1, writes = writes + 1, writer = :writer WHERE thread = :thread"
    " AND checkpoint_ns = :checkpoint_ns AND epoch = :epoch"
)
_COUNT = sql("UPDATE thread_lines SET writes = writes + 1 WHERE thread = :thread AND checkpoint_ns = :checkpoint_ns")
_SEEN = sql(
    "SELECT l.epoch, l.writes FROM thread_lines l JOIN threads t ON t.n = l.thread WHERE t.ns = :ns"
    " AND t.thread_id = :thread_id AND l.checkpoint_ns = :checkpoint_ns"
)


def claim(tx: Tx, thread_id: str, *, checkpoint_ns: str = "", ns: str = MAIN) -> str:
    """What a run must have seen to write this line: say it with each `put`; nothing is taken from others by asking."""
    line = tx.one(_SEEN, ns=ns, thread_id=thread_id, checkpoint_ns=checkpoint_ns)
    epoch, writes = (0, 0) if line is None else line
    return f"{epoch}.{writes}.{tx.random(8).hex()}.{checkpoint_ns}"


def one_of_conflicts(on_conflict: str) -> str:
    """Return what becomes of a stale writer; InvalidInputError for another word."""
    if on_conflict not in _CONFLICTS:
        raise InvalidInputError("on_conflict is error or fork", on_conflict=str(on_conflict))
    return on_conflict


def fence(tx: Tx, line: LineState, claim: str | None) -> tuple[int, bool]:
    """Count a write; under which epoch it is made, and whether its writer has been overtaken."""
    basis = _claim_of(claim, line.checkpoint_ns)
    of = {"thread": line.thread.n, "checkpoint_ns": line.checkpoint_ns}
    if line.epoch is None:
        tx.execute(_BEGIN, **of, writer=basis.token or "", expect=1)
        return 1, False
    # Nobody wrote since this run read the line: it takes the line over.
    unseen = (basis.epoch, basis.writes) != (line.epoch, line.writes)
    if basis.token is not None and line.writer != basis.token and not unseen:
        tx.execute(_TAKE, **of, writer=basis.token, epoch=line.epoch, expect=1)
        return line.epoch + 1, False
    tx.execute(_COUNT, **of, expect=1)
    if basis.token is None:
        last = line.parent_epoch or 0
        return last, last != line.epoch
    # This run wrote last: it goes on under its epoch.
    return (line.epoch, False) if line.writer == basis.token else (basis.epoch, True)


_LINE = sql(
    "SELECT l.epoch, l.writes, l.writer, (SELECT c.epoch FROM thread_checkpoints c WHERE c.thread = l.thread"
    " AND c.checkpoint_ns = l.checkpoint_ns AND c.checkpoint_id = :checkpoint_id) FROM thread_lines l"
    " WHERE l.thread = :thread AND l.checkpoint_ns = :checkpoint_ns"
)


def fence_writes(
    tx: Tx, thread: ThreadRow, checkpoint_ns: str, checkpoint_id: str, *, claim: str | None, on_conflict: str
) -> None:
    """Count what a task wrote, and refuse it where its run was overtaken and that is an error."""
    row = tx.one(_LINE, thread=thread.n, checkpoint_ns=checkpoint_ns, checkpoint_id=checkpoint_id)
    if row is None:  # ahead of the first checkpoint, which begins the line
        return
    line = LineState(thread, checkpoint_ns, *row)
    _, stale = fence(tx, line, claim)
    # Without a claim, and ahead of its checkpoint: which run it is will be known when the checkpoint comes.
    ahead = claim is None and line.parent_epoch is None
    if stale and not ahead:
        refuse_stale(on_conflict, checkpoint_ns)


def refuse_stale(on_conflict: str, checkpoint_ns: str, **fields: str) -> None:
    """Raise StaleWriterError where a writer that was overtaken is an error."""
    if on_conflict == "error":
        message = "another run has written this thread since this one read it: read it again, and run from there"
        raise StaleWriterError(message, checkpoint_ns=checkpoint_ns, **fields)


def _claim_of(claim: str | None, checkpoint_ns: str) -> _Claim:
    """Read a claim; one of another line says nothing about this one."""
    if claim is None:
        return _Claim(0, 0, None)
    match = _CLAIM.fullmatch(claim)
    if match is None:
        raise InvalidInputError("claim is what claim gave", claim=claim[:100])
    epoch, writes, token, line = match.groups()
    return _Claim(int(epoch), int(writes), token) if line == checkpoint_ns else _Claim(0, 0, None)
