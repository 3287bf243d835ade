"""Restoring a store from a backup: verified before anything is replaced, recorded in the log.

Rules:
- Manifest, signature, every hash, the database's own check and the log (the root of its leaves is its signed head's)
  are verified on staged copies; on any failure nothing has changed.
- Whoever has the store open is in the way: BusyError.
- The old state is kept aside, and the exchange is all or nothing (swap.py; a schema on PostgreSQL, servers.py).
- The log goes on under a new origin whose first leaf, of type `restore`, cites the last trusted head (restores.py).
- Erasures that the store made after the backup are made again before it goes live.
- Keys of subjects that the backup leaves out are taken over from the store it replaces, where that can be read.
- A backup of another store, or one signed by a key this store does not know, is refused unless that is asked for. The
  database that is replaced is perhaps what somebody tampered with: its keyring counts as far as this home vouches for
  it (vouched.py), and where it cannot be read the keys of the home do.
- On a machine that knows nothing a backup vouches for itself (`trust: itself`); name the key (`key=`) to check that.
- A store that was moved elsewhere (copy.py) is neither replaced nor a source: two could go on under one origin.
- A closed store's `kernel.db`, alone or with its `-wal` and folders, is a source as well: its head vouches for its
  leaves, and these for its rows. A backup that has lost its manifest or its signature is not taken for one.
"""

import os
from contextlib import suppress
from functools import partial
from pathlib import Path

from holdproof.config import Paths
from holdproof.content import disk, encryption
from holdproof.db import MEMORY, Database, Tx, open_database, transfer
from holdproof.db.migrate import MOVED
from holdproof.db.sqlite import snapshot
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
from holdproof.evidence.heads import HeadFile
from holdproof.evidence.key_files import KeyFolder
from holdproof.model.backup import Ceremony, Restored
from holdproof.model.erasure import Erasure
from holdproof.upkeep import erase, subject_stores
from holdproof.upkeep.backups import backup_list, manifest, staging, swap
from holdproof.upkeep.backups.backup_list import KERNEL
from holdproof.upkeep.backups.restore_log import Current, Held, Staged, hold
from holdproof.upkeep.backups.staging import DATABASES, FOLDERS, Opened, Wanted
from holdproof.upkeep.verification import log_check, trusted_keys
from holdproof.upkeep.verification.log_check import LogKey


def restore(paths: Paths, target: str | Path, wanted: Wanted) -> Restored:
    """Put the store of a backup in the place of the one at these paths, or in that database of a server."""
    if str(target) == MEMORY:
        raise InvalidInputError("nothing can be restored into memory")
    paths.create()
    swap.finish(paths)
    _refuse_moved(paths, target)
    source = _source(paths, wanted)
    backup = staging.opened(source)
    _check_kind(backup, target)
    presence = swap.StoreLock(paths, alone=True, patience_s=0)
    try:
        try:
            if isinstance(target, Path):
                return _into_files(paths, source, backup, wanted)
            assert backup is not None, "a raw copy is one of files"
            return _into_server(paths, str(target), source, backup, wanted)
        finally:
            if not swap.under_way(paths):
                swap.discard(paths)
    finally:
        presence.end()


def _refuse_moved(paths: Paths, target: str | Path) -> None:
    """MovedError where the store that would be replaced goes on elsewhere; one too damaged to say so does not."""
    ledger: dict[str, str] | None = None
    with suppress(HoldproofError):
        ledger = transfer.open_target(target, {"kernel": paths.kernel_db}).ledger("kernel")
    if ledger is not None and MOVED in ledger:
        raise MovedError(f"the store here was moved to {ledger[MOVED]}: restore it there", to=ledger[MOVED])


def _check_kind(backup: Opened | None, target: str | Path) -> None:
    have = "sqlite" if backup is None else backup.made.backend
    want = "sqlite" if isinstance(target, Path) else "postgres"
    if have != want:
        raise InvalidInputError(f"that backup is of a store on {have}, and this one is on {want}", backend=have)


def _source(paths: Paths, wanted: Wanted) -> Path:
    """The backup, or the closed store, that is meant."""
    src = Path(os.path.abspath(wanted.src.expanduser()))
    if src in (paths.data, paths.kernel_db):
        raise InvalidInputError("a store cannot be restored from itself", path=str(src))
    signed = any((src / name).exists() for name in (manifest.MANIFEST, manifest.SIGNATURE))
    if src.is_file() or ((src / KERNEL).is_file() and not signed):
        raw = src if src.is_file() else src / KERNEL
        if snapshot.in_use(raw):
            raise BusyError(f"{raw} is open: close that store, or make a backup of it", path=str(raw))
        return src
    return backup_list.choose(src, index=wanted.to_index, time=wanted.to_time)


# --- into files --------------------------------------------------------------------------------------------------


def _into_files(paths: Paths, source: Path, backup: Opened | None, wanted: Wanted) -> Restored:
    if snapshot.in_use(paths.kernel_db):
        raise BusyError(f"{paths.kernel_db} is open elsewhere: close it first", path=str(paths.kernel_db))
    folder, current = swap.staging(paths), _current(paths)
    with disk.translated(folder):
        staged = staging.stage(source, folder, backup, current, wanted)
    database = open_database(folder / KERNEL)
    try:
        if backup is None:
            staging.check_rows(database)
        keys = _keys(paths, folder)
        held = hold(database, keys, staged, current=current, known=_known(paths, current, wanted))
        _remove(database, folder, held.erasures)
    finally:
        database.close()
    snapshot.flatten(folder / KERNEL)
    aside = _aside(paths, held.ceremony)
    if not wanted.dry_run:
        swap.commit(paths, aside=aside, out=_going(folder))
        _publish(paths, held.head)
    return _restored(source, staged, held, current, None if wanted.dry_run else str(paths.data / aside))


def _current(paths: Paths) -> Current:
    """Read what can be read; a damaged store is what restores are for."""
    found = Current()
    if not paths.kernel_db.exists():
        return found
    try:
        with snapshot.view(paths.kernel_db) as tx:
            parts = log_check.parts(tx)
            found.store_id, found.head, found.keys = parts.store_id, parts.state.head, _vouched(paths, tx)
            found.sealed, found.erasures = encryption.keys(tx), erased.history(tx)
    except HoldproofError as error:
        found.notes.append(f"the store that is replaced could not be read in full: {error.message}")
    return _with_marks(paths, found)


def _with_marks(paths: Paths, found: Current) -> Current:
    kept = HeadFile(paths.heads).kept()
    if not found.head and kept:
        found.head = kept[-1].encode().decode()
    found.here = {key.keyid for key in KeyFolder(paths.keys).every("log")}
    found.seen = {log.generation(head.checkpoint.origin)[0] for head in kept}
    return found


def _vouched(paths: Paths, tx: Tx) -> list[LogKey]:
    return trusted_keys.log_keys(tx, KeyFolder(paths.keys), HeadFile(paths.heads).kept())


def _going(folder: Path) -> list[str]:
    """What makes room for the staged files; a whole backup replaces everything."""
    whole = all((folder / name).is_dir() for name in FOLDERS)
    names = [name for name in (*DATABASES, *FOLDERS) if whole or (folder / name).exists()]
    return [*names, *(f"{name}{end}" for name in names if name in DATABASES for end in ("-wal", "-shm"))]


# --- into a server -----------------------------------------------------------------------------------------------


def _into_server(paths: Paths, url: str, source: Path, backup: Opened, wanted: Wanted) -> Restored:
    try:
        from holdproof.upkeep.backups import server_restore  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("PostgreSQL needs its driver: pip install 'holdproof[postgres]'") from error
    folder, current = swap.staging(paths), _with_marks(paths, server_restore.current(url, partial(_vouched, paths)))
    with disk.translated(folder):
        staging.copy_files(source, folder, backup.made, wanted.progress)
    with server_restore.loaded(url, source, backup.made) as database:
        staged = database.read(lambda tx: staging.judge(log_check.parts(tx), backup, current, wanted)).result()
        keys = _keys(paths, folder)
        held = hold(database, keys, staged, current=current, known=_known(paths, current, wanted))
        _remove(database, folder, held.erasures)
        database.close()
        aside = _aside(paths, held.ceremony)
        schema = aside.lower().replace("-", "_")
        if not wanted.dry_run:
            swap.prepare(paths, aside=aside, out=list(FOLDERS), origin=held.ceremony.origin, url=url)
            server_restore.exchange(url, schema)
            swap.settle(paths, held.ceremony.origin, url)
            _publish(paths, held.head)
    return _restored(source, staged, held, current, None if wanted.dry_run else f"schema {schema}")


# --- both --------------------------------------------------------------------------------------------------------


def _keys(paths: Paths, folder: Path) -> KeyFolder:
    """The keys here; where there are none, those the backup brings."""
    brought = (folder / "keys").is_dir() and not (paths.keys / "log.pem").exists()
    return KeyFolder(folder / "keys" if brought else paths.keys)


def _known(paths: Paths, current: Current, wanted: Wanted) -> list[Erasure]:
    """Every erasure that anybody here knows of, each once."""
    known = [*current.erasures, *erase.remembered(paths)]
    if wanted.erasures is not None:
        if not wanted.erasures.is_file():
            raise NotFoundError(f"{wanted.erasures}: no such file", path=str(wanted.erasures))
        known += erase.kept(wanted.erasures)
    return list({each.id: each for each in known}.values())


def _remove(database: Database, folder: Path, made: list[Erasure]) -> None:
    """Remove the files of erasures that were made again; a label of services goes when the store is opened."""
    now = [each for each in made if not subject_stores.is_target(each.target)]
    with disk.translated(folder):
        for name in {name for each in now for name in each.files}:
            disk.shred(folder / name)
    for each in now:
        database.write(lambda tx, each=each: erased.done(tx, each.id), ungated=True).result()  # type: ignore[misc]


def _aside(paths: Paths, ceremony: Ceremony) -> str:
    """A name for the old state that nothing has yet: two restores may share a second."""
    stamp = f"before-restore-{ceremony.restored_at[:19].replace('-', '').replace(':', '')}Z"
    names = (stamp, *(f"{stamp}-{number}" for number in range(2, 1000)))
    return next(name for name in names if not os.path.lexists(paths.data / name))


def _publish(paths: Paths, head: str) -> None:
    marks = HeadFile(paths.heads)
    marks.publish(head)
    marks.flush()


def _restored(source: Path, staged: Staged, held: Held, current: Current, aside: str | None) -> Restored:
    return Restored(
        source=str(source),
        store_id=staged.store_id,
        size=staged.size,
        as_of=staged.as_of,
        origin=held.ceremony.origin,
        aside=aside,
        trust=staged.trust,
        erasures=len(held.erasures),
        keyless=held.keyless,
        dry_run=aside is None,
        notes=current.notes,
    )
