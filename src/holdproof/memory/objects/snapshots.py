"""Snapshots: take one, look back, compare, return, and bring two lines together.

Rules:
- A rollback is a new snapshot of an old tree. What was not in any snapshot yet is taken as one first, so nothing is
  lost.
- A merge applies what the other line changed since both were one. Where both changed the same object, `resolve`
  decides, or it is a MergeConflictError and nothing is written. Equal changes are no conflict.
- Merging a state with itself, or with one it has come from, changes nothing; without conflicts the order in which two
  lines are merged does not matter for the tree.
- The cost of a diff follows what differs, not what there is.
"""

import builtins
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, Final

from holdproof import paging
from holdproof.content import blocks
from holdproof.crypto import mst_diff
from holdproof.crypto.cid import CID
from holdproof.crypto.mst import EMPTY_ROOT
from holdproof.crypto.mst_diff import TreeChange
from holdproof.db import Tx, Work, Write, ask, sql
from holdproof.errors import MergeConflictError, NotFoundError
from holdproof.evidence import key_use
from holdproof.memory.objects import commits, objects, records, snapshot_import, tree_transaction
from holdproof.memory.objects.commits import NEWEST, CommitNote
from holdproof.memory.objects.records import META, OBJECT, ObjectRecord
from holdproof.memory.objects.tree_transaction import MAIN, TreeReader, TreeTransaction
from holdproof.model.memory import Diff, Difference, Object, Snapshot
from holdproof.model.page import Page
from holdproof.store.context import Context

WORK: Final = "work"
"""What stands for the tree as it is now, in a snapshot or not."""

Resolve = Callable[[str, Object | None, Object | None, Object | None], objects.Draft | None]
"""Resolve a conflict: takes the id, the base object, ours and theirs; returns the draft to put, None to delete."""

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
    signer = yield from key_use.use(context, "memory")
    note = CommitNote(author=author, message=message, reason=reason)
    return (yield from ask(Write(lambda tx: commits.create(tx, signer, note, expected=expected, ns=ns))))


_LIST = sql(
    "SELECT ns, cid, note, created_at FROM snapshots WHERE ns = :ns AND (rev < :before OR CAST(:before AS TEXT) = '')"
    " ORDER BY rev DESC, id DESC LIMIT :limit"
)


def list(tx: Tx, *, cursor: str | None = None, limit: int = 100, ns: str = MAIN) -> Page[Snapshot]:
    """List snapshots, the newest first."""
    (before,) = paging.decode(cursor, "")
    rows = tx.all(_LIST, ns=ns, before=before, limit=paging.fetch(limit))
    return paging.page((commits.to_snapshot(tx, row) for row in rows), limit, lambda snapshot: (snapshot.rev,))


# --- comparing ---------------------------------------------------------------------------------------------------


def diff(
    tx: Tx,
    old: str = NEWEST,
    new: str = WORK,
    *,
    cursor: str | None = None,
    limit: int = 100,
    ns: str = MAIN,
) -> Diff:
    """Compare two states object by object: snapshots, or `work` for what is there now."""
    (start,) = paging.decode(cursor, "")
    before = tree_transaction.view(tx, _root(tx, old, ns))
    after = tree_transaction.view(tx, _root(tx, new, ns))
    # An object and its volatile fields have two keys in the tree; they differ as one object.
    keys = sorted({change.key.partition("/")[2] for change in mst_diff.diff(after.get, before.root, after.root)})
    rest = [key for key in keys if key > start]
    page = paging.page(rest[: paging.fetch(limit)], limit, lambda key: (key,))
    differences = tuple(_difference(before, after, key, ns) for key in page.items)
    return Diff(_named(tx, old, ns), _named(tx, new, ns), differences, page.next_cursor)


def _named(tx: Tx, state: str, ns: str) -> str:
    return WORK if state == WORK else commits.get(tx, state, ns=ns).cid


def _root(tx: Tx, state: str, ns: str) -> CID:
    return tree_transaction.root(tx, ns) if state == WORK else commits.root_of(tx, state, ns=ns)


def _difference(old: TreeReader, new: TreeReader, key: str, ns: str) -> Difference:
    before = objects.find_object(old, key, ns)
    after = objects.find_object(new, key, ns)
    was, now = (_facts(each) for each in (before, after))
    named = [name for name in was | now if was.get(name) != now.get(name)]
    if before is None or after is None:
        change = "added" if before is None else "removed"
    else:
        change = "changed" if set(named) - {"meta"} else "meta"
    return Difference(records.id_of(key), change, {name: (was.get(name), now.get(name)) for name in named})


def _facts(item: Object | None) -> dict[str, Any]:
    names = ("type", "parent", "children", "attributes", "content", "version", "meta", "subject")
    return {} if item is None else {name: getattr(item, name) for name in names}


# --- going back --------------------------------------------------------------------------------------------------


def rollback(
    context: Context, to: str, *, message: str = "", author: str = "", reason: str = "", ns: str = MAIN
) -> Work[Snapshot]:
    """Let everything be as it was in a snapshot, as a new snapshot; what was not in one is kept in one first."""
    signer = yield from key_use.use(context, "memory")

    def back(tx: Tx) -> Snapshot:
        target = commits.get(tx, to, ns=ns)
        edit = TreeTransaction(tx, ns)
        if snapshot_import.unsaved(tx, ns) or commits.head(tx, ns) is None:
            before = CommitNote(author=author, message=f"before the return to {target.rev}", reason=reason)
            commits.create(tx, signer, before, ns=ns)
        edit.replace_with(commits.root_of(tx, target.cid, ns=ns))
        edit.finish()
        note = CommitNote(author=author, message=message or f"return to {target.rev}", reason=reason)
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
    """Merge what another snapshot changed since `base` (the common ancestor by default) into a new snapshot.

    `resolve` may run more than once; without it an object that both changed is a MergeConflictError.
    """
    signer = yield from key_use.use(context, "memory")

    def bring(tx: Tx) -> Snapshot:
        theirs = commits.parse(commits.get(tx, other, ns=ns).cid)
        start = ancestor(tx, theirs, ns) if base is None else commits.root_of(tx, base, ns=ns)
        edit = TreeTransaction(tx, ns)
        _bring(edit, start, commits.read(tx, theirs).data, resolve)
        edit.finish()
        note = CommitNote(author=author, message=message or f"merge of {other}", reason=reason, merged=theirs)
        return commits.create(tx, signer, note, ns=ns)

    return (yield from ask(Write(bring)))


def _bring(edit: TreeTransaction, base: CID, theirs: CID, resolve: Resolve | None) -> None:
    """Merge three ways: apply what they changed since the base wherever we left it as it was."""
    old = tree_transaction.view(edit.tx, base)
    new = tree_transaction.view(edit.tx, theirs)
    conflicts = []
    for key, changes in _by_object(mst_diff.diff(edit.get, base, theirs)):
        # A change clashes only where we changed the same key since the base, to something else.
        both = [each for each in changes if _clashes(edit, each)]
        if not both:
            edit.apply_changes([each for each in changes if not _is_newer(edit, each)])
        elif all(each.key.startswith(META) for each in both):  # volatile: what is here now is as good as theirs
            is_deleted = any(each.key.startswith(OBJECT) and each.new is None for each in changes)
            edit.apply_changes(changes if is_deleted else [each for each in changes if each not in both])
        elif resolve is None:
            conflicts.append(records.id_of(key))
        else:
            sides = (objects.find_object(view, key, edit.ns) for view in (old, edit, new))
            objects.put_or_delete(edit, records.id_of(key), resolve(records.id_of(key), *sides))
    if conflicts:
        raise MergeConflictError(
            f"{len(conflicts)} objects were changed on both sides: {', '.join(conflicts[:5])}", ids=conflicts
        )


def _clashes(edit: TreeTransaction, theirs: TreeChange) -> bool:
    """Return whether we changed what they changed, to something else; the same in another version is the same."""
    here = edit.find(theirs.key)
    if here in (theirs.old, theirs.new):
        return False
    if here is None or theirs.new is None or not theirs.key.startswith(OBJECT):
        return True
    ours = edit.record(here)
    other = edit.record(theirs.new)
    if records.is_sealed(ours.content) and records.is_sealed(other.content):
        ours = _opened(edit, ours)
        other = _opened(edit, other)  # the same, sealed twice, has two envelopes
    return ours != other._replace(version=ours.version)


def _opened(edit: TreeTransaction, record: ObjectRecord) -> ObjectRecord:
    """Return a sealed record as it was put; where it cannot be opened, as it is."""
    try:
        return edit.whole(record)
    except NotFoundError:
        return record


def _is_newer(edit: TreeTransaction, theirs: TreeChange) -> bool:
    """Return whether we have what they have in a newer version."""
    here = edit.find(theirs.key)
    if here in (None, theirs.old, theirs.new) or theirs.new is None or not theirs.key.startswith(OBJECT):
        return False
    return edit.record(here).version > edit.record(theirs.new).version


def _by_object(changes: Iterator[TreeChange]) -> Iterator[tuple[str, builtins.list[TreeChange]]]:
    """Yield the changes of each object together, whether of its record or of what is volatile."""
    ordered = sorted(changes, key=lambda each: each.key.partition("/")[2])
    for key, group in groupby(ordered, lambda each: each.key.partition("/")[2]):
        yield key, [*group]


def ancestor(tx: Tx, other: CID, ns: str) -> CID:
    """Return the root of the newest commit that both lines come from; the empty tree where they have none in common."""
    # Our line as a set, theirs step by step: the first commit in both is the newest common one.
    ours = {*_line(tx, commits.head(tx, ns))}
    common = next((cid for cid in _line(tx, other) if cid in ours), None)
    return EMPTY_ROOT if common is None else commits.read(tx, common).data


def _line(tx: Tx, cid: CID | None) -> Iterator[CID]:
    """Yield a commit and those before it, as far as they are here."""
    while cid is not None:
        yield cid
        data = blocks.find(tx, cid)
        cid = None if data is None else commits.read(tx, cid).prev
