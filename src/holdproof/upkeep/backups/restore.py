"""Restore a store from a backup: verified before anything is replaced, recorded in the log.

Rules:
- Manifest, signature, every hash, the database's own check and the log (the root of its leaves is its signed head's)
  are verified on staged copies; on any failure nothing has changed. No statement of a backup of a server is run before.
- A store that is open anywhere is not replaced: BusyError.
- The old state is kept aside, and the swap is all or nothing (swap.py; on PostgreSQL schemas, server_restore.py).
- A backup of SQLite restores into PostgreSQL and the other way round, row by row, unless applications created tables of
  their own: their types may mean something else there.
- The log continues under a new origin whose first leaf, of type `restore`, cites the last trusted head (restores.py).
  This home writes the origin into its head file before the swap: only so the heads after the backup are given up here.
  Heads of another store that `other` replaces go to a folder of their own.
- Erasures that the store made after the backup are applied again before it goes live.
- Keys of subjects that the backup leaves out are taken from the store it replaces, where that can be read.
- A backup of another store, or one signed by a key this store does not know, is refused unless that is asked for. The
  replaced database may be what somebody tampered with, so only those keys of its keyring count that this home can
  prove (trusted_keys.py); where it cannot be read or is gone, the keys of the home count.
- Where heads have a second signature (ML-DSA-44), that is demanded by the same rule (second_signature.py), and rows are
  held against their entries, since a manifest has one signature.
- On a machine without any key of the store a backup is trusted by itself (`trust: itself`); `key=` names the signer.
- A store with a root key lets no key in without it. On a machine that has neither a log key of the store nor its root,
  the recovery code of the root key (`root=`) vouches for new keys of every role; the root key itself is not stored.
- A store that was moved elsewhere (copy.py) is neither replaced nor a source: two could continue under one origin.
- A closed store's `kernel.db`, alone or with its `-wal` and folders, is a source as well: its head proves its leaves,
  and these its rows. A backup that has lost its manifest or its signature does not pass for one.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

from holdproof.config import Paths
from holdproof.content import disk, encryption
from holdproof.crypto import checkpoint
from holdproof.db import MEMORY, Database, Tx, open_database, transfer
from holdproof.db.migrate import MOVED
from holdproof.db.sqlite import snapshot
from holdproof.db.sqlite.transfer import open_files
from holdproof.db.transfer import TableSnapshot
from holdproof.errors import (
    BusyError,
    HoldproofError,
    InvalidInputError,
    MissingExtraError,
    MovedError,
    NotFoundError,
)
from holdproof.evidence import erasures as erased
from holdproof.evidence import log
from holdproof.evidence.heads import HeadFile, name_of
from holdproof.evidence.key_files import KeyFolder
from holdproof.model.backup import Restored, RestoreRecord
from holdproof.model.erasure import Erasure
from holdproof.upkeep import erase, subject_stores
from holdproof.upkeep.backups import backup_list, bucket_backups, bucket_places, dumps, staging, swap
from holdproof.upkeep.backups import manifest as manifests
from holdproof.upkeep.backups.backup_list import KERNEL
from holdproof.upkeep.backups.dumps import DumpSnapshot
from holdproof.upkeep.backups.restore_log import ReplacedStore, RestoreOutcome, StagedCopy, record_restore
from holdproof.upkeep.backups.staging import DATABASES, FOLDERS, OpenedBackup, RestoreRequest
from holdproof.upkeep.verification import log_check, second_keys, trusted_keys


def restore(paths: Paths, target: str | Path, request: RestoreRequest) -> Restored:
    """Replace the store at these paths, or in that database of a server, by the one of a backup."""
    if str(target) == MEMORY:
        raise InvalidInputError("nothing can be restored into memory")
    paths.create()
    place = bucket_places.opened(request.src)
    if place is None:
        return _restore(paths, target, request)
    # Before gigabytes are fetched in vain: the store must be closed.
    swap.StoreLock(paths, exclusive=True, timeout_s=0).release()
    with bucket_backups.fetched(
        place, paths.cache, index=request.to_index, time=request.to_time, tell=request.tell
    ) as (folder, url):
        return replace(_restore(paths, target, replace(request, src=folder)), source=url)


def _restore(paths: Paths, target: str | Path, request: RestoreRequest) -> Restored:
    swap.finish(paths)
    _refuse_moved(paths, target)
    source = _source(paths, request)
    backup = staging.open_backup(source)
    # No waiting: whoever has the store open now will not close it because of us.
    store_lock = swap.StoreLock(paths, exclusive=True, timeout_s=0)
    try:
        try:
            if isinstance(target, Path):
                return _into_files(paths, source, backup, request)
            return _into_server(paths, str(target), source, backup, request)
        finally:
            # After the commit point the staged files are needed to finish the swap, even after an error.
            if not swap.under_way(paths):
                swap.discard(paths)
    finally:
        store_lock.release()


def _refuse_moved(paths: Paths, target: str | Path) -> None:
    """Raise MovedError if the store here was moved elsewhere; a store too damaged to tell counts as not moved."""
    # A damaged database cannot tell; restoring over it is the remedy, so that is no reason to refuse.
    ledger: dict[str, str] | None = None
    with suppress(HoldproofError):
        ledger = transfer.open_target(target, {"kernel": paths.kernel_db}).ledger("kernel")
    if ledger is not None and MOVED in ledger:
        raise MovedError(f"the store here was moved to {ledger[MOVED]}: restore it there", to=ledger[MOVED])


def _source(paths: Paths, request: RestoreRequest) -> Path:
    """Return the path of the backup, or of the closed store, that the request names."""
    src = Path(os.path.abspath(request.src.expanduser()))
    if src in (paths.data, paths.kernel_db):
        raise InvalidInputError("a store cannot be restored from itself", path=str(src))
    # A folder with only one of the two is a damaged backup, not a raw copy.
    signed = any((src / name).exists() for name in (manifests.MANIFEST, manifests.SIGNATURE))
    if src.is_file() or ((src / KERNEL).is_file() and not signed):
        raw = src if src.is_file() else src / KERNEL
        if snapshot.in_use(raw):
            raise BusyError(f"{raw} is open: close that store, or make a backup of it", path=str(raw))
        return src
    return backup_list.choose(src, index=request.to_index, time=request.to_time)


# --- into files --------------------------------------------------------------------------------------------------


def _into_files(paths: Paths, source: Path, backup: OpenedBackup | None, request: RestoreRequest) -> Restored:
    if snapshot.in_use(paths.kernel_db):
        raise BusyError(f"{paths.kernel_db} is open elsewhere: close it first", path=str(paths.kernel_db))
    folder = swap.staging(paths)
    head_file = HeadFile(paths.heads, name_of(paths.kernel_db))
    current = _current(paths, head_file)
    with disk.translated(folder):
        staged = staging.stage(source, folder, backup, current, request)
    # Opening the copy also applies migrations that are newer than the backup.
    database = open_database(folder / KERNEL)
    try:
        # A backup's rows are covered by its signed manifest; a raw copy has only its log.
        if staged.by_log:
            staging.check_rows(database)
        pending = DumpSnapshot(source, backup.manifest).pending() if backup and backup.of_server else []
        outcome = record_restore(
            database,
            _keys(paths, folder),
            staged,
            current=current,
            erasures=_erasures(paths, current, request),
            root=request.root,
            pending=pending,
        )
        _remove(database, folder, outcome.erasures)
    finally:
        database.close()
    # Without its -wal the database is one file, so that one rename puts it in place.
    snapshot.flatten(folder / KERNEL)
    aside = _aside(paths, outcome.record)
    if not request.dry_run:
        head_file.record_restore(outcome.record.origin)
        swap.commit(paths, aside=aside, out=_replaced_names(folder))
        _publish(paths, head_file, outcome.head, other=request.other)
    moved_to = None if request.dry_run else str(paths.data / aside)
    return _restored(source, backup, staged, outcome, current=current, aside=moved_to)


def _current(paths: Paths, head_file: HeadFile) -> ReplacedStore:
    """Read what can be read of the store that is replaced; damage is noted, not raised."""
    current = ReplacedStore()
    try:
        # Where it is gone, the keys and heads of the home judge the copy, as where it cannot be read.
        if paths.kernel_db.exists():
            with snapshot.view(paths.kernel_db) as tx:
                _read_replaced(paths, head_file, current, tx)
    except HoldproofError as error:
        current.notes.append(f"the store that is replaced could not be read in full: {error.message}")
    return _with_home(paths, head_file, current)


def _read_replaced(paths: Paths, head_file: HeadFile, current: ReplacedStore, tx: Tx) -> None:
    """Read the store that is replaced, as far as it goes: what was read before damage is met stays."""
    parts = log_check.parts(tx)
    folder = KeyFolder(paths.keys)
    heads = head_file.kept()
    current.store_id = parts.store_id
    current.head = parts.state.head
    current.keys = trusted_keys.log_keys(tx, folder, heads)
    current.second_keys = second_keys.proven(tx, folder, heads)
    current.sealed = encryption.keys(tx)
    current.erasures = erased.history(tx)


def with_heads(head_file: HeadFile, current: ReplacedStore) -> ReplacedStore:
    """Add what the heads that were kept here tell of the store that is replaced."""
    heads = head_file.kept_here()
    # The database could not be read: the newest kept head is what the log entry cites as abandoned.
    if not current.head and heads:
        current.head = heads[-1].encode().decode()
    current.stores_here = head_file.stores_here()
    current.restores = max((log.generation(head.checkpoint.origin)[1] for head in heads), default=0)
    return current


def _with_home(paths: Paths, head_file: HeadFile, current: ReplacedStore) -> ReplacedStore:
    folder = KeyFolder(paths.keys)
    current.local_keys = {key.keyid for key in folder.every("log")}
    current.local_second_keys = [key.public for key in folder.every("log-pq")]
    current.heads = head_file.kept()
    current.head_origins = {log.generation(head.checkpoint.origin)[0] for head in current.heads}
    return with_heads(head_file, current)


def _replaced_names(folder: Path) -> list[str]:
    """Return the names that the staged files replace; a complete backup replaces everything."""
    # A raw kernel.db restores the kernel only; other databases and folders stay.
    whole = all((folder / name).is_dir() for name in FOLDERS)
    names = [name for name in (*DATABASES, *FOLDERS) if whole or (folder / name).exists()]
    return [*names, *(f"{name}{end}" for name in names if name in DATABASES for end in ("-wal", "-shm"))]


# --- into a server -----------------------------------------------------------------------------------------------


def _into_server(
    paths: Paths, url: str, source: Path, backup: OpenedBackup | None, request: RestoreRequest
) -> Restored:
    server_restore = server()
    folder = swap.staging(paths)
    head_file = HeadFile(paths.heads, name_of(url))
    replaced = server_restore.current(url, partial(_read_replaced, paths, head_file))
    current = _with_home(paths, head_file, replaced)
    with (
        _snapshot(source, folder, backup, current, request) as (snapshot, spaces),
        server_restore.loaded(url, snapshot, spaces, request.tell) as database,
    ):
        staged = database.read(lambda tx: staging.judge(log_check.parts(tx), backup, current, request)).result()
        if staged.by_log:
            staging.check_rows(database)
        outcome = record_restore(
            database,
            _keys(paths, folder),
            staged,
            current=current,
            erasures=_erasures(paths, current, request),
            root=request.root,
        )
        _remove(database, folder, outcome.erasures)
        database.close()
        aside = _aside(paths, outcome.record)
        # PostgreSQL folds unquoted names to lower case.
        schema = aside.lower().replace("-", "_")
        if not request.dry_run:
            out = [name for name in _replaced_names(folder) if not name.startswith(tuple(_IN_SERVER))]
            for name in _IN_SERVER:
                (folder / name).unlink(missing_ok=True)
            # Plan, exchange of schemas, files: `swap.settle` finishes or discards the files after a kill in between.
            head_file.record_restore(outcome.record.origin)
            swap.prepare(paths, aside=aside, out=out, origin=outcome.record.origin, url=url)
            server_restore.exchange(url, spaces, schema)
            swap.settle(paths, outcome.record.origin, url)
            _publish(paths, head_file, outcome.head, other=request.other)
    moved_to = None if request.dry_run else f"schema {schema}"
    return _restored(source, backup, staged, outcome, current=current, aside=moved_to)


# Files of a source that a server has as schemas.
_IN_SERVER = {KERNEL: "kernel", "membrane.db": "membrane"}


@contextmanager
def _snapshot(
    source: Path, folder: Path, backup: OpenedBackup | None, current: ReplacedStore, request: RestoreRequest
) -> Iterator[tuple[TableSnapshot, list[str]]]:
    """Stage the files of a source, and open its tables: those of a server's backup, or its SQLite files.

    Yields the snapshot and the spaces that become schemas. Telemetry in a file stays one, as it is by default.
    """
    if backup is not None and backup.of_server:
        # Before anything is loaded: definitions of applications' tables are SQL, which the server runs.
        manifests.check_listing(source, backup.manifest)
        staging.judge(dumps.parts(source, backup.manifest), backup, current, request)
        with disk.translated(folder):
            staging.copy_files(source, folder, backup.manifest, request.progress)
        dump = DumpSnapshot(source, backup.manifest)
        yield dump, dump.spaces
        return
    with disk.translated(folder):
        staging.stage(source, folder, backup, current, request)
    with open_files({space: folder / name for name, space in _IN_SERVER.items()}) as files:
        yield files, files.spaces


def server() -> ModuleType:
    """Return the module for PostgreSQL; MissingExtraError without its driver."""
    try:
        from holdproof.upkeep.backups import server_restore  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("PostgreSQL needs its driver: pip install 'holdproof[postgres]'") from error
    return server_restore


# --- both --------------------------------------------------------------------------------------------------------


def _keys(paths: Paths, folder: Path) -> KeyFolder:
    """Return the key folder of this home, or that of the backup where this home has no log key."""
    from_backup = (folder / "keys").is_dir() and not (paths.keys / "log.pem").exists()
    return KeyFolder(folder / "keys" if from_backup else paths.keys)


def _erasures(paths: Paths, current: ReplacedStore, request: RestoreRequest) -> list[Erasure]:
    """Return every erasure recorded in the replaced store, outside it, or in the file given; each once."""
    erasures = [*current.erasures, *erase.recorded_outside(paths)]
    if request.erasures is not None:
        if not request.erasures.is_file():
            raise NotFoundError(f"{request.erasures}: no such file", path=str(request.erasures))
        erasures += erase.read_list(request.erasures)
    return list({each.id: each for each in erasures}.values())


def _remove(database: Database, folder: Path, erasures: list[Erasure]) -> None:
    """Remove the files of erasures that were applied again; the next opening erases labels of services and garbage."""
    now = [each for each in erasures if not subject_stores.is_target(each.target)]
    with disk.translated(folder):
        for name in {name for each in now for name in each.files if erased.is_file(name)}:
            disk.shred(folder / name)
    for each in now:
        if erased.GARBAGE in each.files:
            continue
        database.write(partial(erased.mark_done, erasure_id=each.id), ungated=True).result()


def _aside(paths: Paths, record: RestoreRecord) -> str:
    """Return an unused name for the folder of the old state: two restores may share a second."""
    # Colons are not allowed in file names everywhere.
    stamp = f"before-restore-{record.restored_at[:19].replace('-', '').replace(':', '')}Z"
    names = (stamp, *(f"{stamp}-{number}" for number in range(2, 1000)))
    return next(name for name in names if not os.path.lexists(paths.data / name))


def _publish(paths: Paths, head_file: HeadFile, head: str, *, other: bool) -> None:
    """Keep the first head of the restored log; heads of another store, which it replaced on purpose, go aside."""
    head_file.publish(head)
    head_file.flush()
    if other:
        store, _ = log.generation(checkpoint.parse(head.encode()).checkpoint.origin)
        head_file.set_aside(store, paths.former_heads)


def _restored(
    source: Path,
    backup: OpenedBackup | None,
    staged: StagedCopy,
    outcome: RestoreOutcome,
    *,
    current: ReplacedStore,
    aside: str | None,
) -> Restored:
    return Restored(
        source=str(source),
        store_id=staged.store_id,
        size=staged.size,
        as_of=staged.as_of,
        origin=outcome.record.origin,
        aside=aside,
        trust=staged.trust,
        erasures=len(outcome.erasures),
        keyless=outcome.keyless,
        dry_run=aside is None,
        outside=[] if backup is None else [*backup.manifest.outside],
        notes=current.notes,
    )
