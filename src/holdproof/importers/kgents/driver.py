"""Import of kgents data: read, write in one transaction, verify, rename to `<name>.migrated`.

Rules:
- Nothing is ever deleted or overwritten, here or there; an imported source keeps its content under its new name.
- Killed at any moment, the next run continues: what was written is not written again, the rest is.
- A source that is damaged, in conflict, a link, or changed meanwhile by another program is left alone and reported; the
  others are imported.
- Nothing is imported into memory, so a store that fell back to it is an error.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from holdproof import folders
from holdproof.content import disk
from holdproof.db import MEMORY, Tx
from holdproof.errors import (
    BusyError,
    ConflictError,
    CorruptError,
    ForeignFileError,
    FormatError,
    HoldproofError,
    InvalidInputError,
    LegacySourceError,
    NotFoundError,
    UnavailableError,
)
from holdproof.executors import SyncExecutor
from holdproof.importers import driver
from holdproof.importers.kgents import journal
from holdproof.importers.kgents.databases import History, KgentsDatabase
from holdproof.importers.kgents.documents import Folder, Prompts, States, WitnessDocument
from holdproof.importers.kgents.events import Events
from holdproof.importers.kgents.row_source import DoomedError, RowSource
from holdproof.importers.kgents.source import Contents, LegacyData, Report
from holdproof.importers.kgents.vectors import VectorDocument
from holdproof.model.legacy import LEFT_OUT, LegacyReport, LegacySource, Outcome
from holdproof.storage import legacy_paths
from holdproof.storage.legacy_paths import SIDE_FILES
from holdproof.storage.open_stores import OpenStores

_KINDS: Final[dict[str, type[LegacyData]]] = {
    "history.db": History,
    "prompt-history": Prompts,
    "hypnagogia": States,
    "soul": States,
    "ghost": Folder,
    "atelier": Folder,
    "membrane.db": KgentsDatabase,
    "vectors.json": VectorDocument,
    "blobs": Folder,
    "telemetry.db": Events,
}
_FOLDERS: Final = (Folder, Prompts, States)
_TRIES: Final = 12


def _silent(step: str, done: int, total: int) -> None:
    del step, done, total


def migrate(
    stores: OpenStores, roots: Sequence[Path], *, dry_run: bool = False, progress: Report | None = None
) -> LegacyReport:
    """Import the sources in these folders; with `dry_run` read everything and write nothing."""
    _check(stores, roots)
    report = LegacyReport([str(root) for root in roots], dry_run=dry_run)
    if dry_run:
        report.sources.extend(_import_all(None, roots, progress or _silent))
        return report
    with disk.translated(stores.paths.state), disk.locked(stores.paths.state / "legacy.lock"):
        report.sources.extend(_import_all(stores, roots, progress or _silent))
    return report


def _check(stores: OpenStores, roots: Sequence[Path]) -> None:
    ours = {os.path.realpath(each) for each in (stores.paths.data, stores.paths.blobs)}
    for root in roots:
        if os.path.realpath(root) in ours:
            raise InvalidInputError(f"{root} is the data folder of this store; name a folder of kgents", path=str(root))


def _import_all(stores: OpenStores | None, roots: Sequence[Path], report: Report) -> Iterator[LegacySource]:
    for root in roots:
        try:
            sources = list(legacy_paths.sources(root))
        except UnavailableError as error:
            yield LegacySource(
                str(root), "", Outcome.FAILED, why=error.message, code=error.code, exit_code=error.exit_code
            )
            continue
        for path, imported in sources:
            if imported:
                name = legacy_paths.original_name(path.name)
                yield LegacySource(str(path.with_name(name)), "", Outcome.MOVED_BEFORE, renamed=str(path))
            else:
                yield _import_source(stores, _KINDS.get(path.name, WitnessDocument)(path, path.name), report)


def _import_source(stores: OpenStores | None, source: LegacyData, report: Report) -> LegacySource:
    """Import one source; an error is reported with it and does not stop the others."""
    contents = Contents()
    try:
        # Before reading: a link could lead anywhere.
        _refuse_other(source)
        before = _stamp(source.path)
        contents = source.read(report)
        if stores is None:
            return _outcome_of(source, Outcome.WOULD_MOVE, contents)
        moved = _write_and_verify(stores, source, contents, report)
        if _stamp(source.path) != before:
            raise BusyError(f"{source.path} changed meanwhile; run this again once nothing writes to it")
        renamed = _rename(source, stores, contents, report)
        return _outcome_of(source, Outcome.MOVED, contents, moved=dict(moved), renamed=renamed)
    except HoldproofError as error:
        return _outcome_of(source, _outcome(error), contents, error)
    except OSError as error:
        unreadable = UnavailableError(f"{error.filename or source.path}: {error.strerror or error}")
        return _outcome_of(source, Outcome.FAILED, contents, unreadable)


_OUTCOMES: Final = (
    ((LegacySourceError,), Outcome.REFUSED),
    ((FormatError, CorruptError, ForeignFileError), Outcome.DAMAGED),
    ((ConflictError,), Outcome.CONFLICT),
    ((HoldproofError,), Outcome.FAILED),
)


def _outcome(error: HoldproofError) -> Outcome:
    return next(outcome for kinds, outcome in _OUTCOMES if isinstance(error, kinds))


def _refuse_other(source: LegacyData) -> None:
    """Raise unless a source is a file or a folder, as its name demands; links are never followed."""
    if source.path.is_symlink():
        raise LegacySourceError(f"{source.path} is a link, and links are not followed", path=str(source.path))
    if isinstance(source, _FOLDERS) != source.path.is_dir() or not (source.path.is_dir() or source.path.is_file()):
        raise LegacySourceError(
            f"{source.path} is a file where a folder is expected, or the other way round", path=str(source.path)
        )


def _stamp(path: Path) -> list[tuple[str, int, int]]:
    """Size and time of every file of a source, with SQLite's side files: they change if somebody writes to it."""
    beside = [Path(f"{path}{end}") for end in SIDE_FILES if end != "-shm"]
    listed = [Path(folder, name) for folder, _, names in os.walk(path) for name in names] or [path, *beside]
    stats = [(str(each), each.lstat()) for each in listed if os.path.lexists(each)]
    return sorted((name, each.st_size, each.st_mtime_ns) for name, each in stats)


def _outcome_of(
    source: LegacyData,
    outcome: Outcome,
    contents: Contents,
    error: HoldproofError | None = None,
    *,
    moved: dict[str, int] | None = None,
    renamed: str = "",
) -> LegacySource:
    damaged = outcome in {Outcome.DAMAGED, Outcome.REFUSED}
    return LegacySource(
        str(source.path),
        source.kind,
        outcome,
        counts=dict(contents.counts),
        moved=moved or {},
        skipped=dict(contents.skipped),
        why="" if error is None else error.message,
        code="" if error is None else error.code,
        exit_code=LEFT_OUT if damaged else 0 if error is None else error.exit_code,
        renamed=renamed,
    )


# --- one source ----------------------------------------------------------------------------------------------------


def _write_and_verify(stores: OpenStores, source: LegacyData, contents: Contents, report: Report) -> Counter[str]:
    """Write and verify, as far as that was not done before; return how many records were new."""
    executor = _executor(stores, source)
    at = str(source.path)
    key = contents.fingerprint
    entry = executor.read(lambda tx: journal.find(tx, at, key))
    moved: Counter[str] = Counter()
    # Content that was imported before and is back may have been deleted here since: where writing it again is
    # harmless, it is.
    if entry is None or (entry.moved and source.rewritable):
        moved = _write(stores, source, contents, report)
        entry = None
    if entry is None or not entry.verified:
        source.verify(stores, report)
        executor.write(lambda tx: journal.verified(tx, at, key))
        report("verified", 1, 1)
    return moved


def _executor(stores: OpenStores, source: LegacyData) -> SyncExecutor:
    executor = source.executor(stores)
    if executor.database.backend.facts().get("path") == MEMORY:
        raise UnavailableError(
            "this storage is in memory; configure a database, and import into that", path=str(source.path)
        )
    return executor


def _write(stores: OpenStores, source: LegacyData, contents: Contents, report: Report) -> Counter[str]:
    executor = _executor(stores, source)

    def write(tx: Tx, source: LegacyData) -> list[Counter[str]]:
        moved = source.write(tx)
        counts = dict(contents.counts)
        journal.enter(tx, str(source.path), contents.fingerprint, kind=source.kind, counts=counts)
        return [moved]

    for _ in range(_TRIES):
        source.prepare(stores, report)
        report("write", 0, 1)
        try:
            [moved] = executor.run(driver.import_units([source], write=write, preview=write))
        except DoomedError as error:
            # A sweep removed bytes between storing them and writing their row: store them again.
            assert isinstance(source, RowSource)
            source.forget(error.key)
            continue
        report("write", 1, 1)
        return moved
    raise BusyError(
        "the bytes of this source are removed by sweeps again and again; run this again later", path=str(source.path)
    )


def _rename(source: LegacyData, stores: OpenStores, contents: Contents, report: Report) -> str:
    """Rename a source and its side files; return its new path.

    Another program may have written until now: a source that differs from what was imported gets its old name back.
    """
    old = source.path
    target = _free_name(source.path)
    with disk.translated(old):
        _move(source, target, report)
        report("rename", 1, 1)
        # Once more under the new name, where nobody writes any longer.
        if source.read(report).fingerprint != contents.fingerprint:
            _move(source, old, report)
            raise BusyError(f"{old} changed during the import; stop the program that uses it", path=str(old))
    source.path = old
    at = str(old)
    key = contents.fingerprint
    _executor(stores, source).write(lambda tx: journal.moved(tx, at, key))
    return str(target)


def _move(source: LegacyData, target: Path, report: Report) -> None:
    for end in SIDE_FILES:
        beside = Path(f"{source.path}{end}")
        if not isinstance(source, _FOLDERS) and beside.exists():
            os.rename(beside, Path(f"{target}{end}"))
    report("rename", 0, 1)
    os.rename(source.path, target)
    folders.sync(target.parent)
    source.path = target


def _free_name(path: Path) -> Path:
    """The first unused name `<name>.migrated`, `<name>.migrated-2`, …"""
    target = path.with_name(f"{path.name}.migrated")
    number = 1
    while os.path.lexists(target):
        number += 1
        target = path.with_name(f"{path.name}.migrated-{number}")
    return target


def required(root: Path) -> Path:
    """Return a folder that somebody named; raises NotFoundError if it does not exist."""
    if not root.is_dir():
        raise NotFoundError(f"{root}: no such folder", path=str(root))
    return root
