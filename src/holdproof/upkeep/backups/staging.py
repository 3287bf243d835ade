"""Stage a restore: copy the source, verify the copy, and decide whose signature counts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from holdproof.content import disk
from holdproof.crypto.canonical import sha256_hex
from holdproof.crypto.keys import PrivateKey, PublicKey
from holdproof.db import Database, Migration, migrate, open_database
from holdproof.db.migrate import MOVED
from holdproof.db.sqlite import check_file
from holdproof.db.sqlite import snapshot as sqlite_snapshot
from holdproof.db.sqlite.transfer import SqliteTarget
from holdproof.db.transfer import TableSnapshot
from holdproof.errors import ConflictError, CorruptError, MovedError, NewerStoreError, NotFoundError, ProofError
from holdproof.executors.sync_executor import SyncExecutor
from holdproof.model.backup import Manifest
from holdproof.model.progress import Progress
from holdproof.upkeep.backups import dumps, second_signature, stream
from holdproof.upkeep.backups import manifest as manifests
from holdproof.upkeep.backups.backup_list import KERNEL
from holdproof.upkeep.backups.dumps import DumpSnapshot
from holdproof.upkeep.backups.restore_log import ReplacedStore, StagedCopy
from holdproof.upkeep.verification import log_check, row_check
from holdproof.upkeep.verification.findings import Findings
from holdproof.upkeep.verification.log_check import StoreParts

DATABASES: Final = (KERNEL, "membrane.db", "telemetry.db")
FOLDERS: Final = ("dboms", "blobs", "images")


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """The arguments of a restore."""

    src: Path
    to_index: int | None = None
    to_time: str | None = None
    keys: tuple[str, ...] = ()
    """The ids of the log keys, and of the ML-DSA-44 keys, of which one each must have signed it."""
    erasures: Path | None = None
    other: bool = False
    root: PrivateKey | None = None
    dry_run: bool = False
    progress: Progress | None = None

    def tell(self, what: str, count: int, total: int) -> None:
        """Report progress, where somebody asked for it."""
        if self.progress is not None:
            self.progress(what, count, total)


class OpenedBackup(NamedTuple):
    """A backup's manifest, its bytes and its signature."""

    manifest: Manifest
    data: bytes
    signature: bytes

    @property
    def of_server(self) -> bool:
        """Whether it holds the tables of a server, and no SQLite file of the kernel."""
        return self.manifest.backend == "postgres"

    @property
    def name(self) -> str:
        """Return the name by which the restore's log entry cites this backup."""
        return f"sha256:{sha256_hex(self.data)}"


def open_backup(source: Path) -> OpenedBackup | None:
    """Read the manifest of a source; None for a raw copy of a closed store."""
    return OpenedBackup(*manifests.read(source)) if (source / manifests.MANIFEST).is_file() else None


def stage(
    source: Path, folder: Path, backup: OpenedBackup | None, current: ReplacedStore, request: RestoreRequest
) -> StagedCopy:
    """Make SQLite files of a source in a folder, copied or filled from a server's tables, and verify them."""
    if backup is None:
        _copy_raw(source, folder)
    else:
        copy_files(source, folder, backup.manifest, request.progress)
        if backup.of_server:
            _pour_dump(DumpSnapshot(source, backup.manifest), folder, request.tell)
    for name in DATABASES:
        if (folder / name).exists() and (findings := check_file(folder / name)):
            raise CorruptError(f"{name} of the source is damaged: {findings[0]}", findings=findings)
    with sqlite_snapshot.view(folder / KERNEL) as tx:
        return judge(log_check.parts(tx), backup, current, request)


def _pour_dump(snapshot: DumpSnapshot, folder: Path, tell: Progress) -> None:
    """Fill SQLite files with the tables of a server's backup."""
    stream.refuse_application_tables(snapshot.application_names())
    for space in snapshot.spaces:
        path = folder / f"{space}.db"
        open_database(path, space=space, migrations=steps_of(snapshot, space)).close()
        target = SqliteTarget({space: path})
        stream.pour(snapshot, target, space, stream.tables(snapshot, space), tell, to_server=False)
        sqlite_snapshot.flatten(path)


def steps_of(snapshot: TableSnapshot, space: str) -> list[Migration]:
    """Return the migrations that a space of a snapshot has; NewerStoreError for one that is unknown here."""
    ledger = snapshot.ledger(space)
    steps = migrate.shipped(space)
    if MOVED in ledger:
        raise MovedError(f"the store of this copy was moved to {ledger[MOVED]}: restore it there", to=ledger[MOVED])
    if unknown := sorted(ledger.keys() - {step.name for step in steps}):
        raise NewerStoreError(f"the backup has migration {unknown[-1]} of {space}, which this Holdproof does not know")
    return [step for step in steps if step.name in ledger]


def judge(
    parts: StoreParts, backup: OpenedBackup | None, current: ReplacedStore, request: RestoreRequest
) -> StagedCopy:
    """Refuse a source without a trusted signature, with an invalid log, or newer than the requested point in time."""
    signers, trust = _trusted(parts, current, request)
    second = second_signature.demanded(parts, current, _named_second(parts, current, request))
    if second is not None:
        second_signature.check(parts, second, trust)
    if backup is None:
        log_check.check(parts, signers)
    else:
        _verify(backup, signers, trust)
        log_check.agree(parts, backup.manifest, signers)
    size = parts.state.size
    if request.to_index is not None and size > request.to_index:
        raise NotFoundError(f"the source has {size} leaves, more than {request.to_index}", size=size)
    as_of, name = (backup.manifest.created_at, backup.name) if backup else (None, "raw copy")
    # A manifest has one signature: where the log has two, that is what the rows are held against.
    by_log = backup is None or second is not None or bool(parts.second_keys)
    return StagedCopy(parts.store_id, size, as_of, trust, name, by_log)


def _verify(backup: OpenedBackup, signers: list[PublicKey], trust: str) -> None:
    try:
        manifests.verify(backup.data, backup.manifest.store_id, backup.signature, signers)
    except ProofError as error:
        what = f"the backup is not signed by a key that {trust} can prove: pass --key KEYID if you trust that key"
        raise ProofError(f"{what} ({error.message})", **error.fields) from error


class _Copy(NamedTuple):
    """A copy that is not live yet, for checks that need only a database."""

    database: Database


def check_rows(database: Database) -> None:
    """Refuse a copy whose rows do not match their leaves."""
    findings = Findings()
    SyncExecutor(database).run(row_check.check(_Copy(database), findings))
    wrong = [each for each in findings.report("rows").findings if each.verdict.locks]
    if wrong:
        first = wrong[0]
        raise CorruptError(
            f"{first.table} {first.row} of the source: {first.what}", findings=[each.to_dict() for each in wrong]
        )


def _trusted(parts: StoreParts, current: ReplacedStore, request: RestoreRequest) -> tuple[list[PublicKey], str]:
    """Return the keys that count, and by what they are trusted.

    In this order: the key named by the caller, the keys of the replaced store or its home, the source's own keys.
    """
    store_id = parts.store_id
    size = parts.state.size
    own = log_check.active_keys(parts.keys, size)
    here = log_check.active_keys(current.keys, size)
    # A database that is gone cannot tell what it was; the heads that were kept of it do.
    here_ids = {name.removeprefix("holdproof/") for name in current.stores_here} or {store_id}
    expected_ids = here_ids if current.store_id is None else {current.store_id}
    if store_id not in expected_ids and not request.other:
        raise ConflictError(
            "the backup is of another store than the one here; pass --other to replace it all the same",
            found=store_id,
            here=", ".join(sorted(expected_ids)),
        )
    named = [key for key in (*own, *here) if key.keyid in request.keys]
    matching_ids = {key.keyid for key in (*named, *_named_second(parts, current, request))}
    if unknown := [each for each in request.keys if each not in matching_ids]:
        raise ProofError("the source does not know the key that is to have signed it", keyid=unknown[0])
    if named:
        return named, "the key given"
    if current.store_id == store_id and current.keys:
        return here, "the store here"
    if current.local_keys and (current.store_id == store_id or f"holdproof/{store_id}" in current.head_origins):
        return [key for key in own if key.keyid in current.local_keys], "the keys here"
    return own, "itself"


def _named_second(parts: StoreParts, current: ReplacedStore, request: RestoreRequest) -> list[PublicKey]:
    """Return the ML-DSA-44 keys that the caller named."""
    able = [*(key.public for key in parts.second_keys), *(key.public for key in current.second_keys)]
    able += current.local_second_keys
    return list({key.keyid: key for key in able if key.keyid in request.keys}.values())


def copy_files(source: Path, folder: Path, manifest: Manifest, progress: Progress | None) -> None:
    """Copy every file of a backup except a server's tables, each checked as it is copied."""
    manifests.check_listing(source, manifest)
    for name in FOLDERS:
        (folder / name).mkdir(mode=0o700)
    names = [name for name in manifest.files if name.partition("/")[0] not in dumps.FOLDERS]
    for number, name in enumerate(names, 1):
        manifests.check_file(name, disk.copy(source / name, folder / name), manifest)
        if progress:
            progress("files", number, len(names))


def _copy_raw(source: Path, folder: Path) -> None:
    """Copy a closed store's databases with their write-ahead logs, and the folders beside them."""
    if source.is_file():
        files = {KERNEL: source, f"{KERNEL}-wal": source.with_name(f"{source.name}-wal")}
    else:
        names = [name + end for name in DATABASES for end in ("", "-wal")]
        files = {name: source / name for name in names}
        for top in FOLDERS:
            inside = disk.files(source / top, hidden=True)
            files |= {f"{top}/{file.relative_to(source / top)}": file for file in inside}
            if (source / top).is_dir():
                (folder / top).mkdir(mode=0o700)
    for name, file in files.items():
        if file.is_file():
            disk.copy(file, folder / name)
    for name in DATABASES:
        if (folder / name).exists():
            sqlite_snapshot.flatten(folder / name)
