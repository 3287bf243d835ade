"""Auditing the log: held against itself and against the heads that were kept elsewhere.

Rules:
- A full audit believes no stored hash: leaf hashes, tiles, stems, frontier, root and signature all have to come out.
- No leaf lies outside the tree, and each is filed under the record and version it names.
- It walks over leaves that are there: a size that was forged cannot make it walk for ever.
- It walks in pages; no snapshot is held longer than one page takes, memory is bounded, writers go on meanwhile.
- What was appended during the walk is audited too: the last page and the state are read in one snapshot.
- Every head kept elsewhere must be a head of this very tree: one that is larger says ROLLED_BACK, another root FORKED.
- Findings are values, the first hundred of them; nothing raises because the log is wrong.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdproof.crypto import checkpoint, frontier
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.lines import MAX_SIZE
from holdproof.crypto.vkey import VerifierKey
from holdproof.db import Call, Database, Tx, Work, ask, sql
from holdproof.db.sql import sql_postgres
from holdproof.errors import FormatError, ProofError
from holdproof.evidence import log, tree
from holdproof.evidence.replay import Replay
from holdproof.evidence.walk import Flaws, Walk
from holdproof.model.log import Audited
from holdproof.model.verdicts import Verdict
from holdproof.store.context import Context

Progress = Callable[[int, int], None]
"""Called with how many leaves are done, of how many."""


def audit(context: Context, *, full: bool = False, progress: Progress | None = None) -> Work[Audited]:
    """Check the log against itself and the heads kept elsewhere; `full` recomputes all of it from the leaves."""
    run = walk if full else glance
    kept: list[SignedCheckpoint] = yield from ask(Call(context.marks.kept if context.marks else list))
    return (yield from ask(Call(lambda: run(context.database, kept, progress))))


class _State(NamedTuple):
    """What the log says of itself, in one snapshot."""

    state: tree.State
    head: SignedCheckpoint | None
    keys: tuple[VerifierKey, ...]
    counted: list[Verdict | None]
    pending: int
    stuck: list[int]
    stray: list[int]


_STUCK = sql_postgres(
    "SELECT l.idx FROM log_pending p JOIN log_leaves l ON l.id = p.id AND l.ver = p.ver ORDER BY l.idx LIMIT 100"
)

_STRAY = sql(
    "SELECT s.idx FROM (SELECT idx FROM log_leaves WHERE idx < 0"
    " UNION ALL SELECT idx FROM log_leaves WHERE idx >= :size) s ORDER BY s.idx LIMIT 100"
)


def _read(tx: Tx, kept: Sequence[SignedCheckpoint]) -> _State:
    state = tree.state(tx)
    try:
        head = checkpoint.parse(state.head.encode())
    except FormatError:
        head = None
    said = head.checkpoint if head else None
    names = {"size": said.size, "origin": said.origin} if said else {}
    counted = [log.counted(tx, each) for each in kept]
    stuck = [row[0] for row in tx.all(_STUCK)] if tx.dialect == "postgres" else []
    stray = [row[0] for row in tx.all(_STRAY, size=state.size)]
    return _State(state, head, log.verifiers(tx, **names), counted, log.pending(tx), stuck, stray)  # type: ignore[arg-type]


def glance(database: Database, kept: Sequence[SignedCheckpoint], progress: Progress | None = None) -> Audited:
    """The cheap look: state, frontier, head and signature against each other, and continuity with the largest heads."""
    del progress

    def look(tx: Tx) -> tuple[_State, list[SignedCheckpoint], list[Verdict]]:
        heads = _telling(tx, kept)
        return _read(tx, heads), heads, [log.continuity(tx, head) for head in heads]

    found, heads, verdicts = database.read(look).result()
    flaws = Flaws()
    _check_state(found, flaws)
    for head, verdict in zip(heads, verdicts, strict=True):
        if not verdict.sound:
            flaws.add(None, f"the log does not continue the head of size {head.checkpoint.size} kept here", verdict)
    return flaws.outcome(full=False, size=found.state.size, pending=found.pending, kept=len(heads))


def _telling(tx: Tx, kept: Sequence[SignedCheckpoint]) -> list[SignedCheckpoint]:
    """Of each log the largest head that says something of this tree: not one of a past that a restore gave up."""
    told: dict[str, SignedCheckpoint] = {}
    for head in sorted(kept, key=lambda head: head.checkpoint.size, reverse=True):
        if head.checkpoint.origin not in told and log.counted(tx, head) is not None:
            told[head.checkpoint.origin] = head
    return list(told.values())


def walk(database: Database, kept: Sequence[SignedCheckpoint], progress: Progress | None = None) -> Audited:
    """The full audit."""
    flaws = Flaws()
    walked = Walk(database, flaws, [head.checkpoint.size for head in kept], most=_most(database))
    found = walked.run(lambda tx: _read(tx, kept), progress)
    state, tree_now = found.state, walked.replay.frontier()
    whole = state.frontier == tree_now.to_bytes()
    if not whole:
        flaws.add(None, f"the frontier is not that of these {tree_now.size} leaves")
    if found.head and (found.head.checkpoint.size, found.head.checkpoint.root) != (tree_now.size, tree_now.root()):
        flaws.add(None, f"the signed head of size {found.head.checkpoint.size} is not that of these leaves")
    _check_state(found, flaws)
    _check_kept(kept, found, walked.replay, flaws, whole=whole)
    return flaws.outcome(full=True, size=state.size, pending=found.pending, kept=len(kept))


def _check_state(found: _State, flaws: Flaws) -> None:
    """The signed head against frontier, size, origin and the keyring."""
    state, head = found.state, found.head
    for index in found.stuck:
        flaws.add(index, "a second leaf of this record and version waits, which can never be logged")
    for index in found.stray:
        flaws.add(index, "the leaf lies outside the log")
    try:
        edge = frontier.from_bytes(state.frontier)
        if edge.size != state.size:
            flaws.add(None, f"the frontier is of size {edge.size}, the log's state says {state.size}")
        if head is None:
            if state.head or state.size:
                flaws.add(None, "the log has leaves, but no head that can be read")
            return
        if (head.checkpoint.size, head.checkpoint.root) != (state.size, edge.root()):
            flaws.add(None, f"the signed head of size {head.checkpoint.size} is not that of the frontier")
        checkpoint.verify(head, origin=state.origin, log_keys=found.keys)
    except (FormatError, ProofError) as error:
        flaws.add(None, f"the head does not hold: {error}")


_COUNT = sql("SELECT count(*) FROM log_leaves")


def _most(database: Database) -> int:
    """How many leaves to walk at the most: as many as are there, where the size itself is in doubt."""
    flaws = Flaws()
    _check_state(database.read(lambda tx: _read(tx, [])).result(), flaws)
    return int(database.read(lambda tx: tx.all(_COUNT)[0][0]).result()) if flaws.found else MAX_SIZE


def _check_kept(kept: Sequence[SignedCheckpoint], found: _State, replay: Replay, flaws: Flaws, *, whole: bool) -> None:
    """Every kept head against the root recomputed at its size; a log that is not whole proves no fork."""
    size = min(found.state.size, replay.size)
    for head, counts in zip(kept, found.counted, strict=True):
        said = head.checkpoint
        if counts is None:
            continue
        if counts is Verdict.ROLLED_BACK or said.size > size:
            what = f"a head of size {said.size} was kept, this log has {size}"
            flaws.add(None, what, Verdict.ROLLED_BACK)
        elif whole and replay.roots[said.size] != said.root:
            flaws.add(None, f"the head of size {said.size} that was kept is not one of this log", Verdict.FORKED)
