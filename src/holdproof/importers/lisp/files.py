"""Lisp memories: taken over from either of their formats with their history, and written back as an archive.

Rules:
- Every version of the file becomes a version here, in the order of the numbers they have, the current one last. One
  that is in the history already is not brought again: a second import changes nothing.
- What was changed here since an earlier import stays, unless the file brings a version that is new.
- An object that the file knows only as history is not there afterwards; its history is.
- All of it is one transaction, and each round of it (the first versions, the second ones …) a snapshot, so that what
  was volatile then is found there. What was in no snapshot before is kept in one first.
- A foreign hash is carried as it is. What can be said of it is reported, and stops nothing.
"""

import json
from collections import Counter
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdproof import folders
from holdproof.content import disk
from holdproof.crypto import mst
from holdproof.crypto.keys import Signer
from holdproof.db import Call, Read, Tx, Work, Write, ask, sql
from holdproof.errors import NotFoundError
from holdproof.evidence import keys
from holdproof.importers.lisp import lisp_hash, lisp_objects, sexpr
from holdproof.importers.lisp.lisp_objects import Kept
from holdproof.importers.lisp.reader import MOST_BYTES
from holdproof.memory.objects import commits, objects, records, snapshot_import
from holdproof.memory.objects.commits import CommitNote
from holdproof.memory.objects.records import OBJECT
from holdproof.memory.objects.tree_transaction import MAIN, TreeReader, TreeTransaction
from holdproof.model.lisp import ForeignMemory, ForeignObject, HashVerdict, LispExported, LispImported
from holdproof.model.progress import Progress
from holdproof.store.context import Context

_BATCH: Final = 500


# --- coming in ---------------------------------------------------------------------------------------------------


class _Arriving(NamedTuple):
    """A file that was read: by id all versions of an object, the oldest first, and the one that is current."""

    report: LispImported
    versions: dict[str, list[Kept]]
    current: dict[str, Kept]


def import_lisp(
    context: Context, path: str | Path, *, dry_run: bool = False, ns: str = MAIN, progress: Progress | None = None
) -> Work[LispImported]:
    """Take over a Lisp memory, image or archive, with its history; with `dry_run` only say what would be done."""
    reading: Call[_Arriving] = Call(lambda: _read(Path(path), progress))
    arriving = yield from ask(reading)
    if dry_run:
        rounds, taken = yield from ask(Read(lambda tx: _plan(tx, objects.view_at(tx, None, ns), arriving, ns)))
        return _said(arriving.report, rounds, taken, dry_run=True)
    signer = yield from keys.use(context, "memory")
    return (yield from ask(Write(lambda tx: _take(tx, arriving, signer, ns, progress))))


def _read(path: Path, progress: Progress | None) -> _Arriving:
    with disk.translated(path):
        try:
            data = disk.read(path, MOST_BYTES)
        except FileNotFoundError as error:
            raise NotFoundError(f"{path}: no such file", path=str(path)) from error
    memory = sexpr.read(data)
    versions: dict[str, list[Kept]] = {}
    current: dict[str, Kept] = {}
    for done, each in enumerate(_ordered(memory), 1):
        records.key_of(each.id)  # refused before anything is done
        made = lisp_objects.kept(each)
        versions.setdefault(each.id, []).append(made)
        if each.id in memory.current and memory.current[each.id] == each.hash:
            current[each.id] = made
        if progress is not None and done % 1000 == 0:
            progress("read", done, len(memory.objects))
    return _Arriving(_report(path, memory), versions, current)


def _ordered(memory: ForeignMemory) -> list[ForeignObject]:
    """All versions, the oldest first; those without a number before the others, as they stand."""
    return sorted(memory.objects, key=lambda each: -1 if each.version is None else each.version)


def _report(path: Path, memory: ForeignMemory) -> LispImported:
    """What a file holds, before anything was done with it."""
    checked = lisp_hash.check(memory)
    return LispImported(
        source=str(path),
        objects=len(memory.current),
        versions=len(memory.objects),
        taken=0,
        known=len(memory.objects),
        changed=0,
        snapshots=0,
        head=None,
        hashes=dict(sorted(Counter(str(each.verdict) for each in checked).items())),
        doubts=tuple(each for each in checked if each.verdict != HashVerdict.MATCHES),
        dry_run=False,
    )


Round = dict[str, Kept | None]
"""By id what an object becomes at once with the others."""


def _plan(tx: Tx, view: TreeReader, arriving: _Arriving, ns: str) -> tuple[list[Round], int]:
    """What is to be done, round after round, and how many versions are new."""
    known = _known(tx, [*arriving.versions], ns)
    steps: dict[str, list[Kept | None]] = {}
    taken = 0
    for id, versions in arriving.versions.items():
        key = records.key_of(id)
        fresh: list[Kept | None] = [each for each in versions if str(each.cid) not in known.get(key, ())]
        taken += len(fresh)
        steps[id] = fresh + _last(view, key, versions, fresh, arriving.current.get(id))
    columns = zip_longest(*([(id, step) for step in each] for id, each in steps.items()))
    return [dict(each for each in column if each is not None) for column in columns], taken


def _last(
    view: TreeReader, key: str, versions: list[Kept], fresh: list[Kept | None], target: Kept | None
) -> list[Kept | None]:
    """What an object has to become after its new versions to be as it is in the file; nothing if it is."""
    if fresh:
        return [] if fresh[-1] is target else [target]
    now = view.find(OBJECT + key)
    if now is None or all(now != each.cid for each in versions):  # removed or changed here since
        return []
    if target is None or now != target.cid:
        return [target]
    held = view.meta(key)
    return [] if all(held.get(name) == target.meta.get(name) for name in lisp_objects.VOLATILE) else [target]


_KNOWN = sql(
    "SELECT key, cid FROM object_versions WHERE ns = :ns AND cid IS NOT NULL"
    " AND key IN (SELECT value FROM json_each(:keys))",
    postgres="SELECT key, cid FROM object_versions WHERE ns = :ns AND cid IS NOT NULL"
    " AND key IN (SELECT value FROM json_array_elements_text(CAST(:keys AS JSON)))",
)


def _known(tx: Tx, ids: list[str], ns: str) -> dict[str, set[str]]:
    """The versions that objects have had here, by key."""
    found: dict[str, set[str]] = {}
    waiting = iter(ids)
    while batch := [records.key_of(id) for id in islice(waiting, _BATCH)]:
        for key, cid in tx.all(_KNOWN, ns=ns, keys=json.dumps(batch)):
            found.setdefault(key, set()).add(cid)
    return found


def _take(tx: Tx, arriving: _Arriving, signer: Signer, ns: str, progress: Progress | None) -> LispImported:
    rounds, taken = _plan(tx, TreeTransaction(tx, ns), arriving, ns)
    if not rounds:
        return _said(arriving.report, rounds, taken)
    name = Path(arriving.report.source).name
    made = []
    if snapshot_import.unsaved(tx, ns):
        made.append(commits.create(tx, signer, CommitNote(message=f"before {name} was taken over"), ns=ns))
    for at, each in enumerate(rounds, 1):
        edit = TreeTransaction(tx, ns)
        for id, kept in each.items():
            objects.put_or_delete(edit, id, None if kept is None else _draft(edit, kept))
        edit.finish()
        made.append(commits.create(tx, signer, CommitNote(message=f"{name}, {at} of {len(rounds)}"), ns=ns))
        if progress is not None:
            progress("versions", at, len(rounds))
    return _said(arriving.report, rounds, taken, snapshots=len(made), head=made[-1].cid)


def _draft(edit: TreeTransaction, kept: Kept) -> dict[str, Any]:
    """What an object shall be; volatile fields that are not from Lisp stay."""
    record = kept.record._asdict()
    held = edit.meta(records.key_of(record.pop("id")))
    for name in lisp_objects.VOLATILE:
        held.pop(name, None)
    return {**record, "meta": {**held, **kept.meta}}


def _said(report: LispImported, rounds: list[Round], taken: int, **more: Any) -> LispImported:
    """The report of what was done, or would be."""
    changed = len({id for each in rounds for id in each})
    facts = report.to_dict() | {"doubts": report.doubts}
    return LispImported(**facts | {"taken": taken, "known": report.versions - taken, "changed": changed} | more)


# --- going out ---------------------------------------------------------------------------------------------------


def export_lisp(
    path: str | Path, *, at: str | None = None, ns: str = MAIN, progress: Progress | None = None
) -> Work[LispExported]:
    """Write the objects as a Lisp archive, as they are now or were in a snapshot."""

    def gather(tx: Tx) -> list[ForeignObject]:
        view = objects.view_at(tx, at, ns)
        found: list[ForeignObject] = []
        for key, _ in mst.walk_prefix(view.get, view.root, OBJECT):
            found.append(lisp_objects.foreign(objects.read(view, key[len(OBJECT) :], ns)))
            if progress is not None and len(found) % 1000 == 0:
                progress("written", len(found), 0)
        return found

    def keep(found: list[ForeignObject]) -> LispExported:
        target, data = Path(path), sexpr.write(found).encode()
        with disk.translated(target):
            folders.make(target.absolute().parent)
            disk.write(target, data)
        return LispExported(str(target), len(found), len(data))

    found = yield from ask(Read(gather))
    keeping: Call[LispExported] = Call(lambda: keep(found))
    return (yield from ask(keeping))
