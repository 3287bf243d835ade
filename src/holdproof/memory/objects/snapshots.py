"""Snapshots: take one, look back, compare, return, and bring two lines together.

Rules:
- A rollback is a new snapshot of an old tree. What was not in any snapshot yet is taken as one first, so nothing is
  lost.
- A merge takes over what the other line changed since both were one. Where both changed the same object, `resolve`
  decides, or it is a MergeConflictError and nothing is written. Equal changes are no conflict.
- Merging a state with itself, or with one it has come from, changes nothing; without conflicts the order in which two
  lines are merged does not matter for the tree.
- The cost of a diff follows what differs, not what there is.
"""

import builtins
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, Final

from holdproof.content import blocks
from holdproof.crypto import mst_diff
from holdproof.crypto.cid import CID
from holdproof.crypto.mst import EMPTY_ROOT
from holdproof.crypto.mst_diff import TreeChange
from holdproof.db import Tx, Work, Write, ask, sql
from holdproof.errors import MergeConflictError, NotFoundError
from holdproof.evidence import keys
from holdproof.memory.objects import commits, objects, records, snapshot_import, tree_transaction
from holdproof.memory.objects.commits import NEWEST, Note
from holdproof.memory.objects.records import META, OBJECT, Record
from holdproof.memory.objects.tree_transaction import MAIN, TreeReader, TreeTransaction
from holdproof.model.memory import Diff, Difference, Object, Snapshot, SnapshotPage
from holdproof.store.context import Context
from holdproof.validation import limited

WORK: Final = "work"
"""What stands for the tree as it is now, in a snapshot or not."""

Resolve = Callable[[str, Object | None, Object | None, Object | None], objects.Draft | None]
"""Settles a conflict: an id, the object both came from, ours, theirs; what shall be, None for nothing."""

get = commits.get


def create(
    context: Context,
    message: str = "",
    *,
    author: str = "",
    reason: str = "",
    expected: str | None = None,
    ns: str = MAIN,
) -> Work[Snapshot]:
    """Sign the objects as they are now; `expected` is the snapshot that must still be the newest."""
    signer = yield from keys.use(context, "memory")
    note = Note(author=author, message=message, reason=reason)
    return (yield from ask(Write(lambda tx: commits.create(tx, signer, note, expected=expected, ns=ns))))


_LIST = sql(
    "SELECT ns, cid, note, created_at FROM snapshots WHERE ns = :ns AND (rev < :before OR CAST(:before AS TEXT) = '')"
    " ORDER BY rev DESC, id DESC LIMIT :limit"
)


def list(tx: Tx, *, after: str = "", limit: int = 100, ns: str = MAIN) -> SnapshotPage:
    """Snapshots, the newest first, a page at a time."""
    found = tuple(commits.shown(tx, row) for row in tx.all(_LIST, ns=ns, before=after, limit=limited(limit)))
    return SnapshotPage(found, found[-1].rev if len(found) == limit else None)


# --- comparing ---------------------------------------------------------------------------------------------------


def diff(tx: Tx, old: str = NEWEST, new: str = WORK, *, after: str = "", limit: int = 100, ns: str = MAIN) -> Diff:
    """How one state differs from another, object by object: snapshots, or `work` for what is there now."""
    limited(limit)
    left, right = (tree_transaction.view(tx, _root(tx, state, ns)) for state in (old, new))
    start = records.key_of(after) if after else ""
    keys = sorted({change.key.partition("/")[2] for change in mst_diff.diff(right.get, left.root, right.root)})
    found = []
    for key in keys:
        if key > start:
            found.append(_difference(left, right, key, ns))
            if len(found) == limit:
                break
    more = len(found) == limit and records.key_of(found[-1].id) != keys[-1]
    return Diff(_named(tx, old, ns), _named(tx, new, ns), tuple(found), found[-1].id if more else None)


def _named(tx: Tx, state: str, ns: str) -> str:
    return WORK if state == WORK else commits.get(tx, state, ns=ns).cid


def _root(tx: Tx, state: str, ns: str) -> CID:
    return tree_transaction.root(tx, ns) if state == WORK else commits.root_of(tx, state, ns=ns)


def _difference(left: TreeReader, right: TreeReader, key: str, ns: str) -> Difference:
    before, after = objects.seen(left, key, ns), objects.seen(right, key, ns)
    was, now = (_facts(each) for each in (before, after))
    named = [name for name in was | now if was.get(name) != now.get(name)]
    if before is None or after is None:
        change = "added" if before is None else "removed"
    else:
        change = "changed" if set(named) - {"meta"} else "meta"
    return Difference(records.id_of(key), change, {name: (was.get(name), now.get(name)) for name in named})


def _facts(found: Object | None) -> dict[str, Any]:
    names = ("type", "parent", "children", "attributes", "content", "version", "meta", "subject")
    return {} if found is None else {name: getattr(found, name) for name in names}


# --- going back --------------------------------------------------------------------------------------------------


def rollback(
    context: Context, to: str, *, message: str = "", author: str = "", reason: str = "", ns: str = MAIN
) -> Work[Snapshot]:
    """Let everything be as it was in a snapshot, as a new snapshot; what was not in one is kept in one first."""
    signer = yield from keys.use(context, "memory")

    def back(tx: Tx) -> Snapshot:
        target = commits.get(tx, to, ns=ns)
        edit = TreeTransaction(tx, ns)
        if snapshot_import.unsaved(tx, ns) or commits.head(tx, ns) is None:
            before = Note(author=author, message=f"before the return to {target.rev}", reason=reason)
            commits.create(tx, signer, before, ns=ns)
        edit.become(commits.root_of(tx, target.cid, ns=ns))
        edit.finish()
        note = Note(author=author, message=message or f"return to {target.rev}", reason=reason)
        return commits.create(tx, signer, note, ns=ns)

    return (yield from ask(Write(back)))


# --- bringing together -------------------------------------------------------------------------------------------


def merge(
    context: Context,
    other: str,
    *,
    base: str | None = None,
    resolve: Resolve | None = None,
    message: str = "",
    author: str = "",
    reason: str = "",
    ns: str = MAIN,
) -> Work[Snapshot]:
    """Take over what another snapshot changed since `base` (where both lines were one), as a new snapshot.

    `resolve` may run more than once; without it an object that both changed is a MergeConflictError.
    """
    signer = yield from keys.use(context, "memory")

    def bring(tx: Tx) -> Snapshot:
        theirs = commits.parse(commits.get(tx, other, ns=ns).cid)
        start = ancestor(tx, theirs, ns) if base is None else commits.root_of(tx, base, ns=ns)
        edit = TreeTransaction(tx, ns)
        _bring(edit, start, commits.read(tx, theirs).data, resolve)
        edit.finish()
        note = Note(author=author, message=message or f"merge of {other}", reason=reason, merged=theirs)
        return commits.create(tx, signer, note, ns=ns)

    return (yield from ask(Write(bring)))


def _bring(edit: TreeTransaction, base: CID, theirs: CID, resolve: Resolve | None) -> None:
    """Three-way: what they changed since the base is taken over where we left it as it was."""
    old, new = tree_transaction.view(edit.tx, base), tree_transaction.view(edit.tx, theirs)
    conflicts = []
    for key, changes in _by_object(mst_diff.diff(edit.get, base, theirs)):
        both = [each for each in changes if _clashes(edit, each)]
        if not both:
            edit.take([each for each in changes if not _is_newer(edit, each)])
        elif all(each.key.startswith(META) for each in both):  # volatile: what is here now is as good as theirs
            gone = any(each.key.startswith(OBJECT) and each.new is None for each in changes)
            edit.take(changes if gone else [each for each in changes if each not in both])
        elif resolve is None:
            conflicts.append(records.id_of(key))
        else:
            sides = (objects.seen(view, key, edit.ns) for view in (old, edit, new))
            objects.settle(edit, records.id_of(key), resolve(records.id_of(key), *sides))
    if conflicts:
        raise MergeConflictError(
            f"{len(conflicts)} objects were changed on both sides: {', '.join(conflicts[:5])}", ids=conflicts
        )


def _clashes(edit: TreeTransaction, theirs: TreeChange) -> bool:
    """Whether we changed what they changed, to something else; the same in another version is the same."""
    here = edit.find(theirs.key)
    if here in (theirs.old, theirs.new):
        return False
    if here is None or theirs.new is None or not theirs.key.startswith(OBJECT):
        return True
    ours, other = edit.record(here), edit.record(theirs.new)
    if records.is_sealed(ours.content) and records.is_sealed(other.content):
        ours, other = _opened(edit, ours), _opened(edit, other)  # the same, sealed twice, has two envelopes
    return ours != other._replace(version=ours.version)


def _opened(edit: TreeTransaction, record: Record) -> Record:
    """A sealed record as it was put; where it cannot be opened, as it is."""
    try:
        return edit.whole(record)
    except NotFoundError:
        return record


def _is_newer(edit: TreeTransaction, theirs: TreeChange) -> bool:
    """Whether we have what they have in a newer version."""
    here = edit.find(theirs.key)
    if here in (None, theirs.old, theirs.new) or theirs.new is None or not theirs.key.startswith(OBJECT):
        return False
    return edit.record(here).version > edit.record(theirs.new).version


def _by_object(changes: Iterator[TreeChange]) -> Iterator[tuple[str, builtins.list[TreeChange]]]:
    """The changes of each object together, whether of its record or of what is volatile."""
    ordered = sorted(changes, key=lambda each: each.key.partition("/")[2])
    for key, group in groupby(ordered, lambda each: each.key.partition("/")[2]):
        yield key, [*group]


def ancestor(tx: Tx, other: CID, ns: str) -> CID:
    """The root of the newest commit that both lines come from; the empty tree where they have none in common."""
    ours = {*_line(tx, commits.head(tx, ns))}
    found = next((cid for cid in _line(tx, other) if cid in ours), None)
    return EMPTY_ROOT if found is None else commits.read(tx, found).data


def _line(tx: Tx, cid: CID | None) -> Iterator[CID]:
    """A commit and those before it, as far as they are here."""
    while cid is not None:
        yield cid
        data = blocks.find(tx, cid)
        cid = None if data is None else commits.read(tx, cid).prev
