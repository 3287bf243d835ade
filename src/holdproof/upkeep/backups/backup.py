"""Backups: one folder that holds a whole store as it was at one moment, made while writers run.

Rules:
- Everything acknowledged before the backup began is in it; nothing in it is later than its `created_at`.
- Writers are never blocked: SQLite is copied through its backup API from one snapshot, PostgreSQL read from one.
- A backup exists completely or not at all: it is written as DEST.partial and renamed when all of it is durable. The
  leftovers of a killed one are removed by the next; two at once into one place is a BusyError.
- Private keys, the keys of subjects and `config.yaml`, which may hold a password, are left out unless asked for.
  Without keys sealed content opens only together with the store it came from (or a backup of its keys), and erasing a
  subject there makes it unreadable here too.
- DBOM files are written from the copied rows, not copied: a later submit meanwhile makes no difference.
- Every file is in the manifest, which the log key signs (manifest.py).
"""

import builtins
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from holdproof import folders, paging
from holdproof.content import disk, encryption
from holdproof.crypto import checkpoint
from holdproof.db import Call, Tx, Work, ask, call, migrate, sql
from holdproof.db.sqlite import snapshot
from holdproof.errors import AlreadyExistsError, BusyError, InvalidInputError
from holdproof.evidence import dbom_files
from holdproof.model.backup import Backup, Entry, Manifest
from holdproof.model.page import Page
from holdproof.model.progress import Progress
from holdproof.model.times import to_text
from holdproof.store.context import Context
from holdproof.upkeep.backups import backup_list, dumps
from holdproof.upkeep.backups import manifest as manifests
from holdproof.upkeep.backups.backup_list import KERNEL, no_progress
from holdproof.upkeep.verification import log_check

_FOLDERS = ("blobs", "images")
_PAGE = 500


def create(
    context: Context, dest: str | os.PathLike[str], *, keys: bool = False, progress: Progress | None = None
) -> Work[Backup]:
    """Back the store up into a new folder while it is in use; `keys` includes the private keys."""
    tell = progress or no_progress
    return (yield from ask(Call(lambda: _create(context, Path(dest), keys=keys, tell=tell))))


def check(src: str | os.PathLike[str], *, key: str | None = None, progress: Progress | None = None) -> Work[Backup]:
    """Check a backup: signature, every file, database and log; `key` is the id of the key that must have signed it."""
    return (yield from ask(Call(lambda: backup_list.inspect(Path(src), key=key, tell=progress or no_progress))))


def list(folder: str | os.PathLike[str], *, cursor: str | None = None, limit: int = 100) -> Work[Page[Backup]]:
    """List the backups in a folder, the newest first; their files are not read."""
    backups = yield from call(backup_list.list_backups, Path(folder))
    newest_first = reversed(backups)
    if cursor is not None:
        last = paging.decode(cursor, "", 0, "")
        newest_first = filter(lambda each: backup_list.sort_key(each) < last, newest_first)
    return paging.page(islice(newest_first, paging.fetch(limit)), limit, backup_list.sort_key)


# --- making one --------------------------------------------------------------------------------------------------


def _create(context: Context, dest: Path, *, keys: bool, tell: Progress) -> Backup:
    if context.head_file is None:
        raise InvalidInputError("a store in memory has nothing that could be restored")
    target = Path(os.path.abspath(dest.expanduser()))
    # lexists, because a dangling link is somebody's name too.
    if os.path.lexists(target):
        raise AlreadyExistsError(f"{target}: exists already", path=str(target))
    signer = context.keys.load("log")
    with disk.translated(target), _partial_folder(target) as folder:
        manifest = _fill(context, folder, keys=keys, tell=tell)
        data = manifests.encode(manifest)
        disk.write(folder / manifests.MANIFEST, data)
        disk.write(folder / manifests.SIGNATURE, manifests.sign(data, manifest.store_id, signer))
        # Everything is durable before the rename, which is what makes the backup exist.
        disk.sync_tree(folder)
        folder.rename(target)
        folders.sync(target.parent)
    return backup_list.backup_of(target, manifest, signer=signer.keyid, trust="made here")


@contextmanager
def _partial_folder(target: Path) -> Iterator[Path]:
    """Create and lock an empty folder beside the target; removed if anything fails."""
    partial = target.with_name(f"{target.name}.partial")
    folders.make(partial)
    handle = os.open(partial, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (
                os.fstat(handle).st_ino != partial.stat().st_ino
            ):  # renamed meanwhile: what has its name now is another's
                raise OSError(errno.EBUSY, "taken")
        except OSError as error:
            raise BusyError(f"another backup into {target} is under way", path=str(target)) from error
        for leftover in partial.iterdir():  # of a backup that was killed
            disk.remove_tree(leftover) if leftover.is_dir() and not leftover.is_symlink() else leftover.unlink()
        try:
            yield partial
        except BaseException:
            disk.remove_tree(partial)
            raise
    finally:
        os.close(handle)


def _fill(context: Context, folder: Path, *, keys: bool, tell: Progress) -> Manifest:
    copied = _SERVERS[context.database.dialect](context, folder, keys, tell)
    files = {path.relative_to(folder).as_posix(): disk.entry(path) for path in disk.files(folder, hidden=True)}
    files |= dict(_copy_files(context, folder, keys=keys, tell=tell))
    head = checkpoint.parse(copied.parts.state.head.encode()).checkpoint
    return Manifest(
        store_id=copied.parts.store_id,
        created_at=to_text(copied.moment),
        backend=context.database.dialect,
        holdproof=metadata.version("holdproof"),
        origin=head.origin,
        size=head.size,
        root=head.root.hex(),
        head=copied.parts.state.head,
        migrations=copied.migrations,
        keys=keys,
        sealed=copied.sealed,
        files=files,
        tables=copied.tables,
        sequences=copied.sequences,
    )


class _DatabaseCopy(NamedTuple):
    """A copied database: when, its log and keys, and how many subjects have a key in it (or had, before removal)."""

    moment: int
    parts: log_check.StoreParts
    migrations: dict[str, str]
    sealed: int
    tables: dict[str, builtins.list[str]]
    sequences: dict[str, int]


def _copy_sqlite(context: Context, folder: Path, keys: bool, tell: Progress) -> _DatabaseCopy:
    moments: builtins.list[int] = []

    def begun() -> None:
        moments.append(context.database.clock())

    spaces = {KERNEL: Path(context.database.backend.facts()["path"])}
    spaces |= {path.name: path for path in (context.paths.membrane_db, context.paths.telemetry_db) if path.exists()}
    for name, path in spaces.items():
        # Each database is copied from one snapshot; the kernel comes first, so that nothing it refers to is missing.
        snapshot.copy(path, folder / name, on_snapshot=begun, progress=_pages(tell, name))
    # Keys of subjects are removed from the copy, not left out: SQLite copies pages, not rows.
    sealed = None
    if not keys:
        with snapshot.edit(folder / KERNEL) as tx:
            sealed = encryption.forget_keys(tx)
    with snapshot.view(folder / KERNEL) as tx:
        _write_dboms(tx, folder / "dboms")
        # After removal nothing is left to count, so forget_keys counts while it removes.
        living = len(encryption.keys(tx).rows) if sealed is None else sealed
        return _DatabaseCopy(max(moments), log_check.parts(tx), migrate.applied(tx), living, {}, {})


def _copy_postgres(context: Context, folder: Path, keys: bool, tell: Progress) -> _DatabaseCopy:
    from holdproof.db.postgres import snapshot as server  # noqa: PLC0415 (an optional extra)

    without = (
        server.Exclusions()
        if keys
        else server.Exclusions(
            frozenset({("subjects", "key"), ("subjects", "name_hash")}), {"store_facts": "key <> 'subject_secret'"}
        )
    )
    # One file a table; created here, because an empty database has no file to make it.
    (folder / dumps.FOLDER).mkdir(mode=0o700)
    with server.snapshot(str(context.settings.database_url)) as source:
        # Taken after the snapshot began: nothing in the backup is later than this.
        moment = context.database.clock()
        tables, sequences = source.dump(folder / dumps.FOLDER, without, _pages(tell, "tables"))
        _write_dboms(source.tx, folder / "dboms")
        living = len(encryption.keys(source.tx).rows)
        parts = log_check.parts(source.tx)
        applied = migrate.applied(source.tx)
    # The driver writes without fsync.
    for path in disk.files(folder / dumps.FOLDER):
        snapshot.sync(path)
    return _DatabaseCopy(moment, parts, applied, living, tables, sequences)


_SERVERS = {"sqlite": _copy_sqlite, "postgres": _copy_postgres}


_EVALUATIONS = sql(
    "SELECT b.id, b.ns, b.battle_id FROM battles b WHERE b.id > :after AND NOT EXISTS (SELECT 1 FROM battles e"
    " WHERE e.ns = b.ns AND e.battle_id = b.battle_id AND e.id < b.id) ORDER BY b.id LIMIT :limit"
)


def _write_dboms(tx: Tx, dboms: Path) -> None:
    """Write the DBOM files of the copied rows, each evaluation once, at its first row."""
    after = 0
    while page := tx.all(_EVALUATIONS, after=after, limit=_PAGE):
        # Pages bound the memory; the first row of an evaluation stands for all of its files.
        after = page[-1][0]
        for _, ns, evaluation_id in page:
            for file in dbom_files.due(tx, ns, evaluation_id):
                disk.create(dbom_files.folder_of(dboms, ns) / file.name, file.text.encode())


def _pages(tell: Progress, name: str) -> Callable[[int, int], None]:
    return lambda done, total: tell(name, done, total)


def _copy_files(context: Context, folder: Path, *, keys: bool, tell: Progress) -> Iterator[tuple[str, Entry]]:
    """Copy the files of a store; after the database, so that every file its rows refer to exists by now."""
    paths = context.paths
    places = [(name, paths.data / name) for name in _FOLDERS]
    files = [(f"{name}/{file.relative_to(top).as_posix()}", file) for name, top in places for file in disk.files(top)]
    if keys:
        files += [(f"keys/{file.name}", file) for file in disk.files(paths.keys)]
        files += [("config/config.yaml", file) for file in (paths.config_file,) if file.is_file()]
    for number, (name, file) in enumerate(files, 1):
        try:
            yield name, disk.copy(file, folder / name)
        except FileNotFoundError:  # removed meanwhile; nothing in the copied database needs it
            continue
        tell("files", number, len(files))
