"""Backups: one folder that holds a whole store as it was at one moment, made while writers run.

Rules:
- Everything acknowledged before the backup began is in it; nothing in it is later than its `created_at`.
- It holds every database of the store (kernel, application tables of any shape, telemetry), blobs and images of the
  home. What is elsewhere, such as a bucket, is named as `outside` in the manifest (locations.py).
- Writers are never blocked: SQLite is copied through its backup API from one snapshot of each file, all schemas of a
  server are read from one snapshot.
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
from typing import TYPE_CHECKING, NamedTuple

from holdproof import folders, paging
from holdproof.content import disk, encryption
from holdproof.crypto import checkpoint
from holdproof.crypto.keys import Signer
from holdproof.db import Call, Tx, Work, ask, call, migrate, sql
from holdproof.db.sqlite import snapshot
from holdproof.db.tx import MIGRATED_TABLES
from holdproof.errors import AlreadyExistsError, BusyError, InvalidInputError, UnknownKeyError
from holdproof.evidence import dbom_files
from holdproof.evidence import keys as ring
from holdproof.model.backup import Backup, Entry, Manifest
from holdproof.model.page import Page
from holdproof.model.progress import Progress
from holdproof.model.times import to_text
from holdproof.store.context import Context
from holdproof.upkeep.backups import backup_list, dumps, locations
from holdproof.upkeep.backups import manifest as manifests
from holdproof.upkeep.backups.backup_list import KERNEL, PARTIAL, no_progress
from holdproof.upkeep.backups.locations import Locations
from holdproof.upkeep.verification import log_check

if TYPE_CHECKING:
    from holdproof.db.postgres.snapshot import PostgresSnapshot

_FOLDERS = ("blobs", "images")
_PAGE = 500


def create(
    context: Context, dest: str | os.PathLike[str], *, keys: bool = False, progress: Progress | None = None
) -> Work[Backup]:
    """Back the store up into a new folder while it is in use; `keys` includes the private keys."""
    tell = progress or no_progress
    return (yield from ask(Call(lambda: make(context, Path(dest), keys=keys, configuration=keys, tell=tell))))


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


def make(context: Context, dest: Path, *, keys: bool, configuration: bool, tell: Progress) -> Backup:
    """Make a backup; `configuration` puts `config.yaml` into it."""
    if context.head_file is None:
        raise InvalidInputError("a store in memory has nothing that could be restored")
    target = Path(os.path.abspath(dest.expanduser()))
    # lexists, because a dangling link is somebody's name too.
    if os.path.lexists(target):
        raise AlreadyExistsError(f"{target}: exists already", path=str(target))
    signer = _signer(context)
    with disk.translated(target), _partial_folder(target) as folder:
        manifest = _fill(context, folder, keys=keys, configuration=configuration, tell=tell)
        data = manifests.encode(manifest)
        disk.write(folder / manifests.MANIFEST, data)
        disk.write(folder / manifests.SIGNATURE, manifests.sign(data, manifest.store_id, signer))
        # Everything is durable before the rename, which is what makes the backup exist.
        disk.sync_tree(folder)
        folder.rename(target)
        folders.sync(target.parent)
    return backup_list.backup_of(target, manifest, signer=signer.keyid, trust="made here")


def _signer(context: Context) -> Signer:
    """Return the log key that signs the manifest; UnknownKeyError for one that nobody could check the backup with."""
    signer = context.keys.load("log")
    if not context.database.read(lambda tx: ring.is_registered(tx, signer.keyid, "log")).result():
        raise UnknownKeyError(
            "the log key of this home is not one of this store, so a backup that it signs could not be restored: put"
            " the store's log key back, or let root admit this one (`holdproof keys rotate log`)",
            keyid=signer.keyid,
        )
    return signer


@contextmanager
def _partial_folder(target: Path) -> Iterator[Path]:
    """Create and lock an empty folder beside the target; removed if anything fails."""
    partial = target.with_name(f"{target.name}{PARTIAL}")
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


def _fill(context: Context, folder: Path, *, keys: bool, configuration: bool, tell: Progress) -> Manifest:
    where = locations.locate(context)
    on_server = context.database.dialect == "postgres"
    copied = (
        _copy_server(context, where, folder, keys, tell)
        if on_server
        else _copy_files(context, where, folder, keys, tell)
    )
    files = {path.relative_to(folder).as_posix(): disk.entry(path) for path in disk.files(folder, hidden=True)}
    files |= dict(_copy_folders(context, folder, keys=keys, configuration=configuration, tell=tell))
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
        outside=[*where.outside, *copied.outside],
    )


class _DatabaseCopy(NamedTuple):
    """A copied database: when, its log and keys, and how many subjects have a key in it (or had, before removal)."""

    moment: int
    parts: log_check.StoreParts
    migrations: dict[str, dict[str, str]]
    sealed: int
    outside: builtins.list[str]
    tables: dict[str, dict[str, builtins.list[builtins.list[str]]]]
    sequences: dict[str, dict[str, int]]


def _copy_files(context: Context, where: Locations, folder: Path, keys: bool, tell: Progress) -> _DatabaseCopy:
    # The kernel comes first, so that nothing it refers to is missing from the others.
    moment = _copy_pages(context, where, folder, tell)
    # Keys of subjects are removed from the copy, not left out: SQLite copies pages, not rows.
    sealed = None
    if not keys:
        with snapshot.edit(folder / KERNEL) as tx:
            sealed = encryption.forget_keys(tx)
    outside: builtins.list[str] = []
    if "membrane" in where.files:
        with snapshot.view(folder / "membrane.db") as tx:
            outside = locations.blobs_outside(context, tx)
    with snapshot.view(folder / KERNEL) as tx:
        _write_dboms(tx, folder / "dboms")
        # After removal nothing is left to count, so forget_keys counts while it removes.
        living = len(encryption.keys(tx).rows) if sealed is None else sealed
        migrations = {"kernel": migrate.applied(tx)}
        return _DatabaseCopy(moment, log_check.parts(tx), migrations, living, outside, {}, {})


def _copy_pages(context: Context, where: Locations, folder: Path, tell: Progress) -> int:
    """Copy the databases that are files, each from one snapshot; return the time of the last."""
    moments = [0]

    def begun() -> None:
        moments.append(context.database.clock())

    for space, path in where.files.items():
        name = f"{space}.db"
        snapshot.copy(path, folder / name, on_snapshot=begun, progress=_pages(tell, name))
    return max(moments)


def _copy_server(context: Context, where: Locations, folder: Path, keys: bool, tell: Progress) -> _DatabaseCopy:
    from holdproof.db.postgres import snapshot as server  # noqa: PLC0415 (an optional extra)

    withheld = server.Exclusions(
        frozenset({("subjects", "key"), ("subjects", "name_hash")}), {"store_facts": "key <> 'subject_secret'"}
    )
    url = str(context.settings.session_url)
    with server.open_snapshot(url, where.schemas, None if keys else withheld) as source:
        # Taken after the snapshot began: nothing of the server in the backup is later than this.
        moment = context.database.clock()
        tables, sequences, outside = _dump(url, source, folder, tell)
        if "membrane" in source.spaces:
            outside += locations.blobs_outside(context, source.tx("membrane"))
        tx = source.tx("kernel")
        _write_dboms(tx, folder / "dboms")
        migrations = {space: source.ledger(space) for space in source.spaces}
        living = len(encryption.keys(tx).rows)
        parts = log_check.parts(tx)
    # Databases in files beside a server's: the telemetry of this home, as it is by default.
    moment = max(moment, _copy_pages(context, where, folder, tell))
    return _DatabaseCopy(moment, parts, migrations, living, outside, tables, sequences)


def _dump(
    url: str, source: "PostgresSnapshot", folder: Path, tell: Progress
) -> tuple[dict[str, dict[str, builtins.list[builtins.list[str]]]], dict[str, dict[str, int]], builtins.list[str]]:
    """Write every table of a snapshot; return the columns and sequences by space, and what could not be carried."""
    from holdproof.db.postgres import application  # noqa: PLC0415 (an optional extra)

    target = dumps.DumpTarget(folder)
    tables: dict[str, dict[str, builtins.list[builtins.list[str]]]] = {}
    sequences: dict[str, dict[str, int]] = {}
    outside: builtins.list[str] = []
    for space in source.spaces:
        listed = source.columns(space)
        if space == "membrane":
            listed = {table: listed[table] for table in listed if table in MIGRATED_TABLES}
        columns = {table: [column.name for column in listed[table]] for table in listed}
        for number, table in enumerate(columns, 1):
            target.fill(space, {table: columns[table]}, {table: source.rows(space, table, columns[table])}, {})
            tell(f"tables of {space}", number, len(columns))
        tables[space] = {table: [[*column] for column in listed[table]] for table in listed}
        counters = source.sequences(space).items()
        sequences[space] = {name: last for name, last in counters if name.partition(".")[0] in columns}
    if "membrane" in source.spaces:
        with application.open_application(url, source) as applications:
            described = applications.describe()
            outside = [f"not carried: {each}" for each in described.outside]
            if described.tables or described.before or described.after:
                rows = {table: applications.rows(table, names) for table, names in described.tables.items()}
                target.fill_application(described, rows)
    return tables, sequences, outside


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


def _copy_folders(
    context: Context, folder: Path, *, keys: bool, configuration: bool, tell: Progress
) -> Iterator[tuple[str, Entry]]:
    """Copy the files of a store; after the database, so that every file its rows refer to exists by now."""
    paths = context.paths
    places = [(name, paths.data / name) for name in _FOLDERS]
    files = [(f"{name}/{file.relative_to(top).as_posix()}", file) for name, top in places for file in disk.files(top)]
    if keys:
        files += [(f"keys/{file.name}", file) for file in disk.files(paths.keys)]
    if configuration:
        files += [("config/config.yaml", file) for file in (paths.config_file,) if file.is_file()]
    for number, (name, file) in enumerate(files, 1):
        try:
            yield name, disk.copy(file, folder / name)
        except FileNotFoundError:  # removed meanwhile; nothing in the copied database needs it
            continue
        tell("files", number, len(files))
