"""Taking over legacy data: read, write in one transaction, verify, rename to `<name>.migrated`.

Rules:
- Nothing is ever deleted or overwritten, here or there; what was taken over keeps its content under its new name.
- Killed at any moment, the next run goes on: what was written is not written again, what was not is.
- A source that is damaged, in conflict, a link, or changed by another program meanwhile is left as it is and told; the
  others go on.
- Memory is no place to take anything over to, so a store that fell back to it is an error.
"""

import os
import re
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
from holdproof.importers.kgents import journal
from holdproof.importers.kgents.databases import Database, History
from holdproof.importers.kgents.documents import Folder, Prompts, States, Witness
from holdproof.importers.kgents.events import Events
from holdproof.importers.kgents.plan import DoomedError, Plan
from holdproof.importers.kgents.source import Contents, Source, Tell
from holdproof.importers.kgents.vectors import Vectors
from holdproof.model.legacy import LEFT_OUT, LegacyReport, LegacySource, Outcome
from holdproof.storage.lazy_stores import LazyStores

_KINDS: Final[dict[str, type[Source]]] = {
    "history.db": History,
    "prompt-history": Prompts,
    "hypnagogia": States,
    "soul": States,
    "ghost": Folder,
    "atelier": Folder,
    "membrane.db": Database,
    "vectors.json": Vectors,
    "blobs": Folder,
    "telemetry.db": Events,
}
_WITNESS: Final = "witness."
_FOLDERS: Final = (Folder, Prompts, States)
_SIDES: Final = ("-wal", "-shm", "-journal")
_MIGRATED: Final = re.compile(r"\.migrated(-\d+)?$")
_TRIES: Final = 12


def _silent(step: str, done: int, total: int) -> None:
    del step, done, total


def migrate(
    stores: LazyStores, roots: Sequence[Path], *, dry_run: bool = False, progress: Tell | None = None
) -> LegacyReport:
    """Take over what lies in these folders; with `dry_run` read everything and touch nothing."""
    _check(stores, roots)
    report = LegacyReport([str(root) for root in roots], dry_run=dry_run)
    if dry_run:
        report.sources.extend(_each(None, roots, progress or _silent))
        return report
    with disk.translated(stores.paths.state), disk.locked(stores.paths.state / "legacy.lock"):
        report.sources.extend(_each(stores, roots, progress or _silent))
    return report


def _check(stores: LazyStores, roots: Sequence[Path]) -> None:
    ours = {os.path.realpath(each) for each in (stores.paths.data, stores.paths.blobs)}
    for root in roots:
        if os.path.realpath(root) in ours:
            raise InvalidInputError(f"{root} is where this store lives, nothing to take over", path=str(root))


def _each(stores: LazyStores | None, roots: Sequence[Path], tell: Tell) -> Iterator[LegacySource]:
    for root in roots:
        try:
            there = list(found(root))
        except UnavailableError as error:
            yield LegacySource(
                str(root), "", Outcome.FAILED, why=error.message, code=error.code, exit_code=error.exit_code
            )
            continue
        for path, kind in there:
            if kind is None:
                name = _MIGRATED.sub("", path.name)
                yield LegacySource(str(path.with_name(name)), "", Outcome.MOVED_BEFORE, renamed=str(path))
            else:
                yield _tried(stores, kind(path, path.name), tell)


def found(root: Path) -> Iterator[tuple[Path, type[Source] | None]]:
    """What there is to take over in a folder, and what was (None); in a fixed order."""
    try:
        names = sorted(os.listdir(root), key=os.fsencode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UnavailableError(f"{root}: {error.strerror}", path=str(root)) from error
    wanted = [name for name in _KINDS if name in names]
    wanted += [name for name in names if name.startswith(_WITNESS) and not name.endswith(_SIDES)]
    for name in wanted:
        if not _MIGRATED.search(name):
            yield root / name, _KINDS.get(name, Witness)
    for name in names:
        base = _MIGRATED.sub("", name)
        if base != name and (base in _KINDS or base.startswith(_WITNESS)):
            yield root / name, None


def _tried(stores: LazyStores | None, source: Source, tell: Tell) -> LegacySource:
    """Take over one source; whatever goes wrong with it is told, and is no reason to stop."""
    contents = Contents()
    try:
        _refuse_other(source)
        before = _stamp(source.path)
        contents = source.read(tell)
        if stores is None:
            return _told(source, Outcome.WOULD_MOVE, contents)
        moved = _taken(stores, source, contents, tell)
        if _stamp(source.path) != before:
            raise BusyError(f"{source.path} changed meanwhile: run this again once nothing writes to it")
        renamed = _rename(source, stores, contents, tell)
        return _told(source, Outcome.MOVED, contents, moved=dict(moved), renamed=renamed)
    except HoldproofError as error:
        return _told(source, _outcome(error), contents, error)
    except OSError as error:
        unreadable = UnavailableError(f"{error.filename or source.path}: {error.strerror or error}")
        return _told(source, Outcome.FAILED, contents, unreadable)


_OUTCOMES: Final = (
    ((LegacySourceError,), Outcome.REFUSED),
    ((FormatError, CorruptError, ForeignFileError), Outcome.DAMAGED),
    ((ConflictError,), Outcome.CONFLICT),
    ((HoldproofError,), Outcome.FAILED),
)


def _outcome(error: HoldproofError) -> Outcome:
    return next(outcome for kinds, outcome in _OUTCOMES if isinstance(error, kinds))


def _refuse_other(source: Source) -> None:
    """A source is a file or a folder, as it should be; never a link, wherever it leads."""
    if source.path.is_symlink():
        raise LegacySourceError(f"{source.path} is a link, and links are not followed", path=str(source.path))
    if isinstance(source, _FOLDERS) != source.path.is_dir() or not (source.path.is_dir() or source.path.is_file()):
        raise LegacySourceError(f"{source.path} is not what it is called", path=str(source.path))


def _stamp(path: Path) -> list[tuple[str, int, int]]:
    """Size and time of every file of a source, and of what SQLite has beside it: what tells that it was written to."""
    beside = [Path(f"{path}{end}") for end in _SIDES if end != "-shm"]
    listed = [Path(folder, name) for folder, _, names in os.walk(path) for name in names] or [path, *beside]
    stats = [(str(each), each.lstat()) for each in listed if os.path.lexists(each)]
    return sorted((name, each.st_size, each.st_mtime_ns) for name, each in stats)


def _told(
    source: Source,
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
        found=dict(contents.counts),
        moved=moved or {},
        skipped=dict(contents.skipped),
        why="" if error is None else error.message,
        code="" if error is None else error.code,
        exit_code=LEFT_OUT if damaged else 0 if error is None else error.exit_code,
        renamed=renamed,
    )


# --- one source ----------------------------------------------------------------------------------------------------


def _taken(stores: LazyStores, source: Source, contents: Contents, tell: Tell) -> Counter[str]:
    """Write and verify, as far as that was not done before; what was new."""
    face, at, key = _face(stores, source), str(source.path), contents.fingerprint
    known = face.read(lambda tx: journal.find(tx, at, key))
    moved: Counter[str] = Counter()
    if known is None or (known.moved and source.again):
        moved = _written(stores, source, contents, tell)
        known = None
    if known is None or not known.verified:
        source.verify(stores, tell)
        face.write(lambda tx: journal.verified(tx, at, key))
        tell("verified", 1, 1)
    return moved


def _face(stores: LazyStores, source: Source) -> SyncExecutor:
    face = source.face(stores)
    if face.database.backend.facts().get("path") == MEMORY:
        raise UnavailableError("this storage is in memory, where nothing can be taken over to", path=str(source.path))
    return face


def _written(stores: LazyStores, source: Source, contents: Contents, tell: Tell) -> Counter[str]:
    face = _face(stores, source)

    def write(tx: Tx) -> Counter[str]:
        moved = source.write(tx)
        found = dict(contents.counts)
        journal.enter(tx, str(source.path), contents.fingerprint, kind=source.kind, found=found)
        return moved

    for _ in range(_TRIES):
        source.prepare(stores, tell)
        tell("write", 0, 1)
        try:
            moved = face.write(write)
        except DoomedError as error:
            assert isinstance(source, Plan)
            source.forget(error.key)
            continue
        tell("write", 1, 1)
        return moved
    raise BusyError("bytes of this source are being swept all the time", path=str(source.path))


def _rename(source: Source, stores: LazyStores, contents: Contents, tell: Tell) -> str:
    """Give a source its new name, with what SQLite has beside it; its new path.

    Whoever still writes may have done so until now: what is not as it was taken over gets its old name back.
    """
    old, target = source.path, _free(source.path)
    with disk.translated(old):
        _move(source, target, tell)
        tell("rename", 1, 1)
        if source.read(tell).fingerprint != contents.fingerprint:
            _move(source, old, tell)
            raise BusyError(f"{old} changed while it was taken over; end what uses it", path=str(old))
    source.path, at, key = old, str(old), contents.fingerprint
    _face(stores, source).write(lambda tx: journal.moved(tx, at, key))
    return str(target)


def _move(source: Source, target: Path, tell: Tell) -> None:
    for end in _SIDES:
        beside = Path(f"{source.path}{end}")
        if not isinstance(source, _FOLDERS) and beside.exists():
            os.rename(beside, Path(f"{target}{end}"))
    tell("rename", 0, 1)
    os.rename(source.path, target)
    folders.sync(target.parent)
    source.path = target


def _free(path: Path) -> Path:
    """The first name of its kind that nothing has."""
    target, number = path.with_name(f"{path.name}.migrated"), 1
    while os.path.lexists(target):
        number += 1
        target = path.with_name(f"{path.name}.migrated-{number}")
    return target


def required(root: Path) -> Path:
    """A folder that was named, so it must be there."""
    if not root.is_dir():
        raise NotFoundError(f"{root}: no such folder", path=str(root))
    return root
