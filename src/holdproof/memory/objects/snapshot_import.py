"""Import snapshots from images and archives: verified before, written in one transaction.

Rules:
- What continues the line that is here is imported as it is. What is older, stands beside it, or would cover changes
  that are in no snapshot is an OlderStateError, unless forced.
- By force the objects become those of the state that came, as a new snapshot after the head that is here; what was in
  no snapshot is kept in one first. Nothing is lost either way.
- Every version of every object comes along (object_history.py), those that were in no snapshot too. A line without a
  history, such as the bare commit of another program, is followed state by state instead.
- Only what the line needs enters the store, whatever else came with it.
- A snapshot signed by a key that is not of this store has a leaf that says it was imported.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Final

from holdproof.content import blocks
from holdproof.crypto import didkey, tid
from holdproof.crypto.cid import CID
from holdproof.crypto.keys import Signer
from holdproof.crypto.mst import EMPTY_ROOT
from holdproof.db import Tx
from holdproof.errors import OlderStateError
from holdproof.evidence import keys
from holdproof.memory.objects import commit_chain, commits, refs, tree_transaction
from holdproof.memory.objects.commit_chain import ChainStep, CommitChain
from holdproof.memory.objects.commits import IMPORTED, CommitNote
from holdproof.memory.objects.object_history import BEGINNING, HistoryPosition
from holdproof.memory.objects.tree_transaction import TreeTransaction
from holdproof.model.memory import Snapshot, SnapshotsImported
from holdproof.model.times import to_text

_BATCH: Final = 2_000


def import_chain(
    tx: Tx, line: CommitChain, signer: Signer, note: CommitNote, *, force: bool = False, ns: str
) -> SnapshotsImported:
    """Take a verified line over."""
    # Nobody may write objects or take a snapshot between the look and the import.
    refs.hold(tx, tree_transaction.ref_name(ns))
    ref = refs.hold(tx, commits.ref_name(ns))
    head = None if ref is None else ref.cid
    newest = line.head
    if newest.cid == head and not unsaved(tx, ns):
        return SnapshotsImported("same", str(newest.cid), newest.commit.rev, 0, 0)
    forward = _continues(line, head) and not unsaved(tx, ns)
    if not forward and not force:
        raise OlderStateError(
            f"{newest.commit.rev} does not simply continue what is here: it is older, stands beside it, or there are"
            " changes in no snapshot",
            rev=newest.commit.rev,
            head=None if head is None else str(head),
        )
    if forward:
        line = _after(line, head)  # what came before is here, or was pruned here
    written = _put(tx, line)
    count = len(written)
    if forward:
        added = _continue(tx, line, written, ns)
        refs.move(tx, commits.ref_name(ns), ref, newest.cid, ns=ns)
        return SnapshotsImported("forward", str(newest.cid), newest.commit.rev, added, count)
    if unsaved(tx, ns):
        commits.create(tx, signer, note._replace(message=f"before {newest.commit.rev} was imported"), ns=ns)
    added = sum(_record(tx, line, step, ns) for step in line.steps)
    edit = TreeTransaction(tx, ns, written)
    edit.adopt(line.history)
    edit.replace_with(newest.commit.data)
    edit.finish()
    snapshot = commits.create(tx, signer, note._replace(merged=newest.cid), ns=ns)
    return SnapshotsImported("forced", snapshot.cid, snapshot.rev, added + 1, count)


def unsaved(tx: Tx, ns: str) -> bool:
    """Return whether there are changes that no snapshot has."""
    head = commits.head(tx, ns)
    return (EMPTY_ROOT if head is None else commits.read(tx, head).data) != tree_transaction.root(tx, ns)


def ensure_snapshot(tx: Tx, signer: Signer, note: CommitNote, ns: str) -> Snapshot:
    """Return the newest snapshot, taken now if anything is in none."""
    head = commits.head(tx, ns)
    # The same objects may have a longer history: one was changed and put back, or old versions were pruned.
    if head is None or unsaved(tx, ns) or commits.history_of(tx, head, ns=ns) != _position(tx, ns):
        return commits.create(tx, signer, note, ns=ns)
    return commits.get(tx, ns=ns)


def _position(tx: Tx, ns: str) -> HistoryPosition:
    ref = refs.get(tx, tree_transaction.ref_name(ns))
    return BEGINNING if ref is None else ref.position


def _continues(line: CommitChain, head: CID | None) -> bool:
    return head is None or head == line.steps[0].commit.prev or any(step.cid == head for step in line.steps)


def _after(line: CommitChain, head: CID | None) -> CommitChain:
    """Return the commits of a line that are newer than one of them."""
    skip = next((at for at, step in enumerate(line.steps, 1) if step.cid == head), 0)
    return line._replace(steps=line.steps[skip:])


def _put(tx: Tx, line: CommitChain) -> dict[CID, bytes]:
    """Write the blocks that the line and its history need, in batches; return them.

    Each was hashed when it was read from its file, and what the stream gives is hashed again on the way.
    """
    here = blocks.getter(tx)
    first = line.steps[0].commit.prev
    before = EMPTY_ROOT if first is None or here(first) is None else commits.read(tx, first).data
    stream = commit_chain.stream(lambda cid: line.blocks.get(cid) or here(cid), line.steps, before)
    written: dict[CID, bytes] = {}
    batch: dict[CID, bytes] = {}
    # The history names the records of the trees once more: each block is written once.
    for cid, data in chain(stream, commit_chain.version_records(line.blocks.get, line.history)):
        if cid in written:
            continue
        blocks.check_form(cid, data)
        written[cid] = batch[cid] = data
        if len(batch) == _BATCH:
            blocks.put_verified(tx, batch)
            batch = {}
    blocks.put_verified(tx, batch)
    return written


def _continue(tx: Tx, line: CommitChain, written: Mapping[CID, bytes], ns: str) -> int:
    """Let the tree be that of the newest commit, with all that came before it; how many snapshots were new."""
    if not line.history:
        return _follow(tx, line, written, ns)
    edit = TreeTransaction(tx, ns, written)
    edit.adopt(line.history)
    edit.replace_with(line.head.commit.data)
    edit.finish()
    return sum(_record(tx, line, step, ns) for step in line.steps)


def _follow(tx: Tx, line: CommitChain, written: Mapping[CID, bytes], ns: str) -> int:
    """Go through the states one after the other, so that every object has its history; how many were new."""
    added = 0
    for step in line.steps:
        if _record(tx, line, step, ns):
            added += 1
            edit = TreeTransaction(tx, ns, written)
            edit.replace_with(step.commit.data)
            edit.finish()
    return added


def _record(tx: Tx, line: CommitChain, step: ChainStep, ns: str) -> bool:
    """Return the row of a commit, if it has none."""
    if commits.is_known(tx, step.cid, ns=ns):
        return False
    ours = keys.find(tx, didkey.parse(step.commit.did).keyid)
    # Signed with a key of another store, or a revoked one: its leaf says that it was imported.
    counts = ours is not None and ours.role == "memory" and ours.revoked_from is None
    note = line.notes.get(step.cid, CommitNote())
    at = to_text(tid.parse(step.commit.rev)[0])
    commits.record(tx, step.cid, step.commit, note, at=at, ns=ns, kind="snapshot" if counts else IMPORTED)
    return True
