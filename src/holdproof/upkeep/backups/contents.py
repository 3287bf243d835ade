"""What a backup holds: every database, blob, image and DBOM file of a store, as they were at one moment.

Rules:
- Everything acknowledged before the backup began is in it; nothing in it is later than its `created_at`.
- It holds every database of the store (kernel, application tables of any shape, telemetry), blobs and images of the
  home. What is elsewhere, such as a bucket, is named as `outside` in the manifest (locations.py).
- Writers are never blocked: SQLite is copied through its backup API from one snapshot of each file, all schemas of a
  server are read from one snapshot.
- Private keys, the keys of subjects and `config.yaml`, which may hold a password, are left out unless asked for.
  Without keys sealed content opens only together with the store it came from (or a backup of its keys), and erasing a
  subject there makes it unreadable here too.
- DBOM files are written from the copied rows, not copied: a later submit meanwhile makes no difference.
"""

from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdproof.content import disk, encryption
from holdproof.crypto import checkpoint
from holdproof.crypto.keys import Signer
from holdproof.db import Tx, migrate, sql
from holdproof.db.sqlite import snapshot
from holdproof.db.tx import MIGRATED_TABLES
from holdproof.errors import InvalidInputError, UnknownKeyError
from holdproof.evidence import dbom_files
from holdproof.evidence import keys as ring
from holdproof.model.backup import Entry, Manifest
from holdproof.model.progress import Progress
from holdproof.model.times import to_text
from holdproof.store.context import Context
from holdproof.upkeep.backups import dumps, locations
from holdproof.upkeep.backups.backup_list import KERNEL
from holdproof.upkeep.backups.locations import Locations
from holdproof.upkeep.verification import log_check

if TYPE_CHECKING:
    from holdproof.db.postgres.snapshot import PostgresSnapshot

CopyFiles = Callable[[list[tuple[str, Path]]], Iterable[tuple[str, Entry | None]]]
"""Brings files of the store to their names in the backup, in that order; None for one that was removed meanwhile."""

_FOLDERS = ("blobs", "images")
_PAGE = 500


def signer_of(context: Context) -> Signer:
    """Return the log key that signs the manifest; UnknownKeyError for one that nobody could check the backup with."""
    if context.head_file is None:
        raise InvalidInputError("a store in memory has nothing that could be restored")
    signer = context.keys.load("log")
    if not context.database.read(lambda tx: ring.is_registered(tx, signer.keyid, "log")).result():
        raise UnknownKeyError(
            "the log key of this home is not one of this store, so a backup that it signs could not be restored: put"
            " the store's log key back, or let root admit this one (`holdproof keys rotate log`)",
            keyid=signer.keyid,
        )
    return signer


def fill(
    context: Context, folder: Path, copy_files: CopyFiles, *, keys: bool, configuration: bool, tell: Progress
) -> Manifest:
    """Write every database into an empty folder, bring every file of the home by `copy_files`; return the manifest."""
    where = locations.locate(context)
    on_server = context.database.dialect == "postgres"
    copied = (
        _copy_server(context, where, folder, keys, tell)
        if on_server
        else _copy_files(context, where, folder, keys, tell)
    )
    files = {path.relative_to(folder).as_posix(): disk.entry(path) for path in disk.files(folder, hidden=True)}
    files |= dict(_copy_folders(context, copy_files, keys=keys, configuration=configuration, tell=tell))
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
    outside: list[str]
    tables: dict[str, dict[str, list[list[str]]]]
    sequences: dict[str, dict[str, int]]


def _copy_files(context: Context, where: Locations, folder: Path, keys: bool, tell: Progress) -> _DatabaseCopy:
    # The kernel comes first, so that nothing it refers to is missing from the others.
    moment = _copy_pages(context, where, folder, tell)
    # Keys of subjects are removed from the copy, not left out: SQLite copies pages, not rows.
    sealed = None
    if not keys:
        with snapshot.edit(folder / KERNEL) as tx:
            sealed = encryption.forget_keys(tx)
    outside: list[str] = []
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
) -> tuple[dict[str, dict[str, list[list[str]]]], dict[str, dict[str, int]], list[str]]:
    """Write every table of a snapshot; return the columns and sequences by space, and what could not be carried."""
    from holdproof.db.postgres import application  # noqa: PLC0415 (an optional extra)

    target = dumps.DumpTarget(folder)
    tables: dict[str, dict[str, list[list[str]]]] = {}
    sequences: dict[str, dict[str, int]] = {}
    outside: list[str] = []
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
    context: Context, copy_files: CopyFiles, *, keys: bool, configuration: bool, tell: Progress
) -> Iterator[tuple[str, Entry]]:
    """Copy the files of a store; after the database, so that every file its rows refer to exists by now."""
    paths = context.paths
    places = [(name, paths.data / name) for name in _FOLDERS]
    files = [(f"{name}/{file.relative_to(top).as_posix()}", file) for name, top in places for file in disk.files(top)]
    if keys:
        files += [(f"keys/{file.name}", file) for file in disk.files(paths.keys)]
    if configuration:
        files += [("config/config.yaml", file) for file in (paths.config_file,) if file.is_file()]
    for number, (name, entry) in enumerate(copy_files(files), 1):
        # None was removed meanwhile; nothing in the copied database needs it.
        if entry is not None:
            yield name, entry
        tell("files", number, len(files))
