"""Backups: one folder that holds a whole store as it stood at one moment, made while writers run.

Rules:
- Everything acknowledged before the backup began is in it; nothing in it is later than its `created_at`.
- Writers are never held up: SQLite is copied through its backup API from one snapshot, PostgreSQL read from one.
- A backup is there as a whole or not at all: it grows as DEST.partial and is renamed when all of it is durable. What a
  killed one left is removed by the next; two at once into one place is a BusyError.
- Private keys, the keys of subjects and `config.yaml`, which may hold a password, are left out unless asked for.
  Without keys sealed content opens only together with the store it came from (or a backup of its keys), and erasing a
  subject there erases it in here too.
- DBOM files are written as the copied rows say, not copied: a battle judged again meanwhile makes no difference.
- Every file stands in the manifest, and the log key signs it (manifest.py).
"""

import builtins
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from holdproof import folders
from holdproof.content import disk, encryption
from holdproof.crypto import checkpoint
from holdproof.db import Call, Tx, Work, ask, migrate, sql
from holdproof.db.sqlite import snapshot
from holdproof.errors import AlreadyExistsError, BusyError, InvalidInputError
from holdproof.evidence import dbom_files
from holdproof.model.backup import Backup, Entry, Manifest
from holdproof.model.progress import Progress
from holdproof.model.times import to_text
from holdproof.store.context import Context
from holdproof.upkeep.backups import backup_list, dumps, manifest
from holdproof.upkeep.backups.backup_list import KERNEL, silent
from holdproof.upkeep.verification import log_check

_FOLDERS = ("blobs", "images")
_PAGE = 500


def create(
    context: Context, dest: str | os.PathLike[str], *, keys: bool = False, progress: Progress | None = None
) -> Work[Backup]:
    """Back the store up into a new folder while it is in use; `keys` puts the private keys in as well."""
    tell = progress or silent
    return (yield from ask(Call(lambda: _create(context, Path(dest), keys=keys, tell=tell))))


def check(src: str | os.PathLike[str], *, key: str | None = None, progress: Progress | None = None) -> Work[Backup]:
    """Check a backup through and through; `key` is the id of the key that must have signed it."""
    return (yield from ask(Call(lambda: backup_list.inspect(Path(src), key=key, tell=progress or silent))))


def list(folder: str | os.PathLike[str]) -> Work[builtins.list[Backup]]:
    """The backups in a folder, oldest first; their files are not read."""
    return (yield from ask(Call(lambda: backup_list.listed(Path(folder)))))


# --- making one --------------------------------------------------------------------------------------------------


def _create(context: Context, dest: Path, *, keys: bool, tell: Progress) -> Backup:
    if context.marks is None:
        raise InvalidInputError("a store in memory has nothing that could be restored")
    target = Path(os.path.abspath(dest.expanduser()))
    if os.path.lexists(target):
        raise AlreadyExistsError(f"{target}: exists already", path=str(target))
    signer = context.keys.load("log")
    with disk.translated(target), _growing(target) as folder:
        made = _fill(context, folder, keys=keys, tell=tell)
        data = manifest.encode(made)
        disk.write(folder / manifest.MANIFEST, data)
        disk.write(folder / manifest.SIGNATURE, manifest.sign(data, made.store_id, signer))
        disk.sync_tree(folder)
        folder.rename(target)
        folders.sync(target.parent)
    return backup_list.backup_of(target, made, signer=signer.keyid, trust="made here")


@contextmanager
def _growing(target: Path) -> Iterator[Path]:
    """An empty folder beside the target, ours alone; gone if anything fails."""
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
        for left in partial.iterdir():  # of a backup that was killed
            disk.remove_tree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
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
    files |= dict(_copied(context, folder, keys=keys, tell=tell))
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


class _Copied(NamedTuple):
    """A database that was copied: when, what it says of itself, how many living keys of subjects it has or had."""

    moment: int
    parts: log_check.Parts
    migrations: dict[str, str]
    sealed: int
    tables: dict[str, builtins.list[str]]
    sequences: dict[str, int]


def _copy_sqlite(context: Context, folder: Path, keys: bool, tell: Progress) -> _Copied:
    moments: builtins.list[int] = []

    def begun() -> None:
        moments.append(context.database.clock())

    spaces = {KERNEL: Path(context.database.backend.facts()["path"])}
    spaces |= {path.name: path for path in (context.paths.membrane_db, context.paths.telemetry_db) if path.exists()}
    for name, path in spaces.items():
        snapshot.copy(path, folder / name, on_snapshot=begun, progress=_pages(tell, name))
    sealed = None
    if not keys:
        with snapshot.edit(folder / KERNEL) as tx:
            sealed = encryption.forget_keys(tx)
    with snapshot.view(folder / KERNEL) as tx:
        _write_dboms(tx, folder / "dboms")
        living = len(encryption.keys(tx).rows) if sealed is None else sealed
        return _Copied(max(moments), log_check.parts(tx), migrate.applied(tx), living, {}, {})


def _copy_postgres(context: Context, folder: Path, keys: bool, tell: Progress) -> _Copied:
    from holdproof.db.postgres import snapshot as server  # noqa: PLC0415 (an optional extra)

    without = (
        server.Exclusions()
        if keys
        else server.Exclusions(
            frozenset({("subjects", "key"), ("subjects", "name_hash")}), {"store_facts": "key <> 'subject_secret'"}
        )
    )
    (folder / dumps.FOLDER).mkdir(mode=0o700)
    with server.snapshot(str(context.settings.database_url)) as taken:
        moment = context.database.clock()
        tables, sequences = taken.dump(folder / dumps.FOLDER, without, _pages(tell, "tables"))
        _write_dboms(taken.tx, folder / "dboms")
        living = len(encryption.keys(taken.tx).rows)
        found, applied = log_check.parts(taken.tx), migrate.applied(taken.tx)
    for path in disk.files(folder / dumps.FOLDER):
        snapshot.sync(path)
    return _Copied(moment, found, applied, living, tables, sequences)


_SERVERS = {"sqlite": _copy_sqlite, "postgres": _copy_postgres}


_BATTLES = sql(
    "SELECT b.id, b.ns, b.battle_id FROM battles b WHERE b.id > :after AND NOT EXISTS (SELECT 1 FROM battles e"
    " WHERE e.ns = b.ns AND e.battle_id = b.battle_id AND e.id < b.id) ORDER BY b.id LIMIT :limit"
)


def _write_dboms(tx: Tx, dboms: Path) -> None:
    """The DBOM files that the copied rows speak of, battle by battle at its first row."""
    after = 0
    while page := tx.all(_BATTLES, after=after, limit=_PAGE):
        after = page[-1][0]
        for _, ns, evaluation_id in page:
            for file in dbom_files.due(tx, ns, evaluation_id):
                disk.create(dbom_files.folder_of(dboms, ns) / file.name, file.text.encode())


def _pages(tell: Progress, name: str) -> Callable[[int, int], None]:
    return lambda done, total: tell(name, done, total)


def _copied(context: Context, folder: Path, *, keys: bool, tell: Progress) -> Iterator[tuple[str, Entry]]:
    """Copy the files of a store; after the database, so that whatever its rows speak of is there."""
    paths = context.paths
    places = [(name, paths.data / name) for name in _FOLDERS]
    found = [(f"{name}/{file.relative_to(top).as_posix()}", file) for name, top in places for file in disk.files(top)]
    if keys:
        found += [(f"keys/{file.name}", file) for file in disk.files(paths.keys)]
        found += [("config/config.yaml", file) for file in (paths.config_file,) if file.is_file()]
    for number, (name, file) in enumerate(found, 1):
        try:
            yield name, disk.copy(file, folder / name)
        except FileNotFoundError:  # removed meanwhile; nothing in the copied database needs it
            continue
        tell("files", number, len(found))
