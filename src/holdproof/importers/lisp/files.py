"""Import of Lisp memories from either of their formats, with their history; export as an archive.

Rules:
- Every version of the file becomes a version here, in the order of their numbers, the current one last. A version
  that is in the history already is not imported again: a second import changes nothing.
- What was changed here since an earlier import stays, unless the file brings a version that is new.
- An object that the file has only as history is deleted afterwards; its history stays.
- All of it is one transaction, and each round of it (the first versions, the second ones …) a snapshot, so that
  volatile fields of that time are found there. Changes that are in no snapshot yet are put in one first.
- A foreign hash is stored unchanged. Whether it matches is reported, and stops nothing.
"""

import json
from collections import Counter
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from holdproof import folders
from holdproof.content import disk
from holdproof.crypto import mst
from holdproof.db import Call, Read, Tx, Work, ask, sql
from holdproof.errors import NotFoundError
from holdproof.evidence import key_use
from holdproof.importers import driver
from holdproof.importers.lisp import lisp_hash, lisp_objects, sexpr
from holdproof.importers.lisp.lisp_objects import StoredVersion
from holdproof.importers.lisp.reader import MOST_BYTES
from holdproof.memory.objects import commits, objects, records, snapshot_import
from holdproof.memory.objects.commits import CommitNote
from holdproof.memory.objects.records import OBJECT
from holdproof.memory.objects.tree_transaction import MAIN, TreeReader, TreeTransaction
from holdproof.model.lisp import ForeignMemory, ForeignObject, HashVerdict, LispExported, LispImported
from holdproof.model.progress import Progress
from holdproof.store.context import Context

# --- import ---------------------------------------------------------------------------------------------------


class _LispFile(NamedTuple):
    """The content of a file: by id all versions of an object, oldest first, and the current one."""

    report: LispImported
    versions: dict[str, list[StoredVersion]]
    current: dict[str, StoredVersion]


def import_lisp(
    context: Context, path: str | Path, *, dry_run: bool = False, ns: str = MAIN, progress: Progress | None = None
) -> Work[LispImported]:
    """Import a Lisp memory, image or archive, with its history; with `dry_run` only report what would be done."""
    reading: Call[_LispFile] = Call(lambda: _read(Path(path), progress))
    file = yield from ask(reading)
    signer = None if dry_run else (yield from key_use.use(context, "memory"))
    [result] = yield from driver.import_units(
        [file],
        write=lambda tx, file: [_write(tx, file, signer, ns, progress)],
        preview=lambda tx, file: [_preview(tx, file, ns)],
        dry_run=dry_run,
    )
    return result


def _preview(tx: Tx, file: _LispFile, ns: str) -> LispImported:
    rounds, new_count = _plan(tx, objects.view_at(tx, None, ns), file, ns)
    return _result(file.report, rounds, new_count, dry_run=True)


def _read(path: Path, progress: Progress | None) -> _LispFile:
    with disk.translated(path):
        try:
            data = disk.read(path, MOST_BYTES)
        except FileNotFoundError as error:
            raise NotFoundError(f"{path}: no such file", path=str(path)) from error
    memory = sexpr.read(data)
    versions: dict[str, list[StoredVersion]] = {}
    current: dict[str, StoredVersion] = {}
    for done, each in enumerate(_ordered(memory), 1):
        records.key_of(each.id)  # raises for an impossible id, before anything is written
        version = lisp_objects.stored_version(each)
        versions.setdefault(each.id, []).append(version)
        if each.id in memory.current and memory.current[each.id] == each.hash:
            current[each.id] = version
        if progress is not None and done % 1000 == 0:
            progress("read", done, len(memory.objects))
    return _LispFile(_report(path, memory), versions, current)


def _ordered(memory: ForeignMemory) -> list[ForeignObject]:
    """All versions, oldest first; those without a number before the others, in the order of the file."""
    return sorted(memory.objects, key=lambda each: -1 if each.version is None else each.version)


def _report(path: Path, memory: ForeignMemory) -> LispImported:
    """Describe a file, before anything is imported."""
    checked = lisp_hash.check(memory)
    return LispImported(
        source=str(path),
        objects=len(memory.current),
        versions=len(memory.objects),
        new=0,
        existing=len(memory.objects),
        changed=0,
        snapshots=0,
        head=None,
        hashes=dict(sorted(Counter(str(each.verdict) for each in checked).items())),
        doubts=tuple(each for each in checked if each.verdict != HashVerdict.MATCHES),
        dry_run=False,
    )


Round = dict[str, StoredVersion | None]
"""By id what each object becomes in one step; None deletes it."""


def _plan(tx: Tx, view: TreeReader, file: _LispFile, ns: str) -> tuple[list[Round], int]:
    """The rounds to be done, and how many versions are new."""
    existing = _existing_versions(tx, [*file.versions], ns)
    steps: dict[str, list[StoredVersion | None]] = {}
    new_count = 0
    for id, versions in file.versions.items():
        key = records.key_of(id)
        new: list[StoredVersion | None] = [each for each in versions if str(each.cid) not in existing.get(key, ())]
        new_count += len(new)
        steps[id] = new + _last(view, key, versions, new, file.current.get(id))
    # Round n takes the n-th step of every object that has one, so that versions of one time stay together.
    columns = zip_longest(*([(id, step) for step in each] for id, each in steps.items()))
    return [dict(each for each in column if each is not None) for column in columns], new_count


def _last(
    view: TreeReader,
    key: str,
    versions: list[StoredVersion],
    new: list[StoredVersion | None],
    target: StoredVersion | None,
) -> list[StoredVersion | None]:
    """The last step of an object, if it needs one to be as in the file."""
    if new:
        return [] if new[-1] is target else [target]
    now = view.find(OBJECT + key)
    if now is None or all(now != each.cid for each in versions):  # deleted or changed here since
        return []
    if target is None or now != target.cid:
        return [target]
    meta = view.meta(key)
    return [] if all(meta.get(name) == target.meta.get(name) for name in lisp_objects.VOLATILE) else [target]


_KNOWN = sql(
    "SELECT key, cid FROM object_versions WHERE ns = :ns AND cid IS NOT NULL"
    " AND key IN (SELECT value FROM json_each(:keys))",
    postgres="SELECT key, cid FROM object_versions WHERE ns = :ns AND cid IS NOT NULL"
    " AND key IN (SELECT value FROM json_array_elements_text(CAST(:keys AS JSON)))",
)


def _existing_versions(tx: Tx, ids: list[str], ns: str) -> dict[str, set[str]]:
    """The versions that objects have had here, by key."""
    existing: dict[str, set[str]] = {}
    for batch in driver.batches(map(records.key_of, ids)):
        for key, cid in tx.all(_KNOWN, ns=ns, keys=json.dumps(batch)):
            existing.setdefault(key, set()).add(cid)
    return existing


def _write(tx: Tx, file: _LispFile, signer: Any, ns: str, progress: Progress | None) -> LispImported:
    rounds, new_count = _plan(tx, TreeTransaction(tx, ns), file, ns)
    if not rounds:
        return _result(file.report, rounds, new_count)
    name = Path(file.report.source).name
    snapshots = []
    if snapshot_import.unsaved(tx, ns):
        snapshots.append(commits.create(tx, signer, CommitNote(message=f"before {name} was imported"), ns=ns))
    for at, each in enumerate(rounds, 1):
        edit = TreeTransaction(tx, ns)
        for id, version in each.items():
            objects.put_or_delete(edit, id, None if version is None else _draft(edit, version))
        edit.finish()
        snapshots.append(commits.create(tx, signer, CommitNote(message=f"{name}, {at} of {len(rounds)}"), ns=ns))
        if progress is not None:
            progress("versions", at, len(rounds))
    return _result(file.report, rounds, new_count, snapshots=len(snapshots), head=snapshots[-1].cid)


def _draft(edit: TreeTransaction, version: StoredVersion) -> dict[str, Any]:
    """The new state of an object; volatile fields that are not from Lisp stay."""
    record = version.record._asdict()
    meta = edit.meta(records.key_of(record.pop("id")))
    for name in lisp_objects.VOLATILE:
        meta.pop(name, None)
    return {**record, "meta": {**meta, **version.meta}}


def _result(report: LispImported, rounds: list[Round], new_count: int, **more: Any) -> LispImported:
    """The report of what was done, or would be."""
    changed = len({id for each in rounds for id in each})
    facts = report.to_dict() | {"doubts": report.doubts}
    counts = {"new": new_count, "existing": report.versions - new_count, "changed": changed}
    return LispImported(**facts | counts | more)


# --- export ---------------------------------------------------------------------------------------------------


def export_lisp(
    path: str | Path, *, at: str | None = None, ns: str = MAIN, progress: Progress | None = None
) -> Work[LispExported]:
    """Write the objects as a Lisp archive, as they are now or were in a snapshot."""

    def gather(tx: Tx) -> list[ForeignObject]:
        view = objects.view_at(tx, at, ns)
        exported: list[ForeignObject] = []
        for key, _ in mst.walk_prefix(view.get, view.root, OBJECT):
            exported.append(lisp_objects.foreign(objects.read(view, key[len(OBJECT) :], ns)))
            if progress is not None and len(exported) % 1000 == 0:
                progress("written", len(exported), 0)
        return exported

    def save(exported: list[ForeignObject]) -> LispExported:
        target = Path(path)
        data = sexpr.write(exported).encode()
        with disk.translated(target):
            folders.make(target.absolute().parent)
            disk.write(target, data)
        return LispExported(str(target), len(exported), len(data))

    exported = yield from ask(Read(gather))
    saving: Call[LispExported] = Call(lambda: save(exported))
    return (yield from ask(saving))
