"""Audit the log: compare it with itself and with the heads that were kept outside the database.

Rules:
- A full audit believes no stored hash: leaf hashes, tiles, stems, frontier, root and signature all have to come out.
- No leaf lies outside the tree, and each is filed under the record and version it names.
- An audit since a verification recomputes what was added to the tree that was verified then: its root at that size has
  to come out, and kept heads from before are compared with the stored tiles, as without `full`.
- It walks only over leaves that exist: a forged size cannot make it walk for ever.
- It walks in pages; no snapshot is held longer than one page takes, memory is bounded, writers are not blocked.
- Leaves appended during the walk are audited too: the last page and the state are read in one snapshot.
- Every head kept elsewhere must be a head of this very tree: one that is larger says ROLLED_BACK, another root FORKED.
  Only a restore that this home made gives up heads (restores.py).
- Findings are values, the first hundred of them; nothing raises because the log is wrong.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

from holdproof.crypto import checkpoint, frontier
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.lines import MAX_SIZE
from holdproof.crypto.tiles import WIDTH
from holdproof.crypto.vkey import VerifierKey
from holdproof.db import Call, Database, Tx, Work, ask, sql
from holdproof.db.sql import sql_postgres
from holdproof.errors import FormatError, ProofError
from holdproof.evidence import log, tree
from holdproof.evidence.replay import Replay
from holdproof.evidence.verifications import Verified
from holdproof.evidence.walk import Flaws, Walk
from holdproof.model.log import Audited
from holdproof.model.verdicts import Verdict
from holdproof.store.context import Context

Progress = Callable[[int, int], None]
"""Called with how many leaves are done, of how many."""


def audit(
    context: Context, *, full: bool = False, since: Verified | None = None, progress: Progress | None = None
) -> Work[Audited]:
    """Check the log against itself and the heads kept elsewhere.

    `full` recomputes all of it from the leaves, `since` what a verification did not see.
    """
    # All take the same arguments, so that callers differ only in cost.
    run = walk if full else glance if since is None else partial(walk_since, verified=since)
    from_file: tuple[list[SignedCheckpoint], frozenset[str]] = yield from ask(Call(partial(_kept_heads, context)))
    heads, restored_here = from_file
    return (yield from ask(Call(partial(run, context.database, heads, progress, restored_here=restored_here))))


def _kept_heads(context: Context) -> tuple[list[SignedCheckpoint], frozenset[str]]:
    head_file = context.head_file
    return ([], frozenset()) if head_file is None else (head_file.kept(), head_file.restored_here())


class _LogSnapshot(NamedTuple):
    """The log's state, its signed head and the keys that may sign it, read in one snapshot."""

    state: tree.LogState
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


def _read(tx: Tx, heads: Sequence[SignedCheckpoint], restored_here: Collection[str]) -> _LogSnapshot:
    state = tree.state(tx)
    try:
        head = checkpoint.parse(state.head.encode())
    except FormatError:
        head = None  # reported by _check_state
    # Keys count by the size and origin that the head itself claims: the state beside it may be what was edited.
    signed = head.checkpoint if head else None
    names = {"size": signed.size, "origin": signed.origin} if signed else {}
    counted = log.relevances(tx, heads, restored_here)
    stuck = [index for (index,) in tx.all(_STUCK)] if tx.dialect == "postgres" else []
    stray = [index for (index,) in tx.all(_STRAY, size=state.size)]
    return _LogSnapshot(state, head, log.verifiers(tx, **names), counted, log.pending(tx), stuck, stray)  # type: ignore[arg-type]


def _read_continued(
    tx: Tx, heads: Sequence[SignedCheckpoint], restored_here: Collection[str]
) -> tuple[_LogSnapshot, list[Verdict]]:
    """Read the same, and whether the stored tiles continue each kept head."""
    return _read(tx, heads, restored_here), log.continuities(tx, heads, restored_here)


def glance(
    database: Database,
    heads: Sequence[SignedCheckpoint],
    progress: Progress | None = None,
    *,
    restored_here: Collection[str] = (),
) -> Audited:
    """Compare state, frontier, head and signature with each other, and the log with every kept head.

    Reads a few rows for each head: a leaf that was edited together with its tile is found by `walk`.
    """
    del progress  # the signature is that of `walk`
    now, verdicts = database.read(partial(_read_continued, heads=heads, restored_here=restored_here)).result()
    flaws = Flaws()
    _check_state(now, flaws)
    _check_continuity(heads, verdicts, flaws)
    return _outcome(flaws, now, heads, full=False)


def walk(
    database: Database,
    heads: Sequence[SignedCheckpoint],
    progress: Progress | None = None,
    *,
    restored_here: Collection[str] = (),
) -> Audited:
    """Recompute the whole tree from its leaves and compare it with everything that is stored or kept."""
    flaws = Flaws()
    walked = Walk(database, flaws, Replay(head.checkpoint.size for head in heads), most=_most(database))
    now = walked.run(partial(_read, heads=heads, restored_here=restored_here), progress)
    whole = _check_recomputed(now, walked.replay, flaws)
    _check_kept(heads, now, walked.replay, flaws, whole=whole)
    return _outcome(flaws, now, heads, full=True)


def walk_since(
    database: Database,
    heads: Sequence[SignedCheckpoint],
    progress: Progress | None = None,
    *,
    restored_here: Collection[str] = (),
    verified: Verified,
) -> Audited:
    """Recompute what was added to the tree that a verification saw, and compare it with everything stored or kept."""
    flaws = Flaws()
    begin = verified.size // WIDTH * WIDTH
    open_tiles = database.read(lambda tx: tree.open_tiles(tx, begin)).result()
    walked = Walk(database, flaws, Replay([verified.size], open_tiles), most=_most(database))
    now, verdicts = walked.run(partial(_read_continued, heads=heads, restored_here=restored_here), progress)
    whole = _check_recomputed(now, walked.replay, flaws)
    if walked.replay.roots.get(verified.size) != verified.root:
        what = f"the first {verified.size} entries are not those that were verified at {verified.at}"
        flaws.add(None, what, Verdict.FORKED if whole else Verdict.TAMPERED)
    _check_continuity(heads, verdicts, flaws)
    return _outcome(flaws, now, heads, full=False)


def _outcome(flaws: Flaws, now: _LogSnapshot, heads: Sequence[SignedCheckpoint], *, full: bool) -> Audited:
    root = now.head.checkpoint.root.hex() if now.head else ""
    return flaws.outcome(full=full, size=now.state.size, root=root, pending=now.pending, heads=len(heads))


def _check_recomputed(now: _LogSnapshot, replay: Replay, flaws: Flaws) -> bool:
    """Compare frontier and head with the tree that came out; whether it has the stored frontier."""
    tree_now = replay.frontier()
    whole = now.state.frontier == tree_now.to_bytes()
    if not whole:
        flaws.add(None, f"the frontier is not that of these {tree_now.size} leaves")
    if now.head and (now.head.checkpoint.size, now.head.checkpoint.root) != (tree_now.size, tree_now.root()):
        flaws.add(None, f"the signed head of size {now.head.checkpoint.size} is not that of these leaves")
    _check_state(now, flaws)
    return whole


def _check_continuity(heads: Sequence[SignedCheckpoint], verdicts: Sequence[Verdict], flaws: Flaws) -> None:
    for head, verdict in zip(heads, verdicts, strict=True):
        if not verdict.sound:
            flaws.add(None, f"the log does not continue the head of size {head.checkpoint.size} kept here", verdict)


def _check_state(now: _LogSnapshot, flaws: Flaws) -> None:
    """Compare the signed head with frontier, size, origin and the keyring."""
    state = now.state
    head = now.head
    # On PostgreSQL a pending leaf whose version is in the tree already can never be moved.
    for index in now.stuck:
        flaws.add(index, "a second leaf of this record and version waits, which can never be logged")
    for index in now.stray:
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
        checkpoint.verify(head, origin=state.origin, log_keys=now.keys)
    except (FormatError, ProofError) as error:
        flaws.add(None, f"the head does not hold: {error}")


_COUNT = sql("SELECT count(*) FROM log_leaves")


def _most(database: Database) -> int:
    """Return how many leaves to walk at most: counted, where the recorded size itself is in doubt."""
    flaws = Flaws()
    _check_state(database.read(partial(_read, heads=[], restored_here=())).result(), flaws)
    return int(database.read(lambda tx: tx.all(_COUNT)[0][0]).result()) if flaws.found else MAX_SIZE


def _check_kept(
    heads: Sequence[SignedCheckpoint], now: _LogSnapshot, replay: Replay, flaws: Flaws, *, whole: bool
) -> None:
    """Compare every kept head with the root recomputed at its size."""
    size = min(now.state.size, replay.size)
    for head, counts in zip(heads, now.counted, strict=True):
        signed = head.checkpoint
        if counts is None:
            continue
        if counts is Verdict.ROLLED_BACK or signed.size > size:
            what = f"a head of size {signed.size} was kept, this log has {size}"
            flaws.add(None, what, Verdict.ROLLED_BACK)
        # Only a tree that agrees with its own frontier proves a fork; a damaged one has been reported as such.
        elif whole and replay.roots[signed.size] != signed.root:
            flaws.add(None, f"the head of size {signed.size} that was kept is not one of this log", Verdict.FORKED)
