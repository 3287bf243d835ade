"""Stage a restore: copy the source, verify the copy, and decide whose signature counts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from holdproof.content import disk
from holdproof.crypto.canonical import sha256_hex
from holdproof.crypto.keys import PublicKey
from holdproof.db import Database
from holdproof.db.sqlite import check_file, snapshot
from holdproof.errors import ConflictError, CorruptError, NotFoundError, ProofError
from holdproof.executors.sync_executor import SyncExecutor
from holdproof.model.backup import Manifest
from holdproof.model.progress import Progress
from holdproof.upkeep.backups import dumps
from holdproof.upkeep.backups import manifest as manifests
from holdproof.upkeep.backups.backup_list import KERNEL
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
    key: str | None = None
    erasures: Path | None = None
    other: bool = False
    dry_run: bool = False
    progress: Progress | None = None


class OpenedBackup(NamedTuple):
    """A backup's manifest, its bytes and its signature."""

    manifest: Manifest
    data: bytes
    signature: bytes

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
    """Copy a source with its SQLite files into a folder and verify the copy."""
    if backup is None:
        _copy_raw(source, folder)
    else:
        copy_files(source, folder, backup.manifest, request.progress)
    for name in DATABASES:
        if (folder / name).exists() and (findings := check_file(folder / name)):
            raise CorruptError(f"{name} of the source is damaged: {findings[0]}", findings=findings)
    with snapshot.view(folder / KERNEL) as tx:
        return judge(log_check.parts(tx), backup, current, request)


def judge(
    parts: StoreParts, backup: OpenedBackup | None, current: ReplacedStore, request: RestoreRequest
) -> StagedCopy:
    """Refuse a source without a trusted signature, with an invalid log, or newer than the requested point in time."""
    signers, trust = _trusted(parts, current, request)
    if backup is None:
        log_check.check(parts, signers)
    else:
        _verify(backup, signers, trust)
        log_check.agree(parts, backup.manifest, signers)
    size = parts.state.size
    if request.to_index is not None and size > request.to_index:
        raise NotFoundError(f"the source has {size} leaves, more than {request.to_index}", size=size)
    as_of, name = (backup.manifest.created_at, backup.name) if backup else (None, "raw copy")
    return StagedCopy(parts.store_id, size, as_of, trust, name)


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
    """Refuse a copy whose rows do not match their leaves: a raw copy has no signature but that of its log."""
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
    if current.store_id not in (None, store_id) and not request.other:
        raise ConflictError(
            "the backup is of another store than the one here; pass --other to replace it all the same",
            found=store_id,
            here=current.store_id,
        )
    if request.key is not None:
        named = [key for key in (*own, *here) if key.keyid == request.key]
        if not named:
            raise ProofError("the source does not know the key that is to have signed it", keyid=request.key)
        return named, "the key given"
    if current.store_id == store_id and current.keys:
        return here, "the store here"
    if current.local_keys and (current.store_id == store_id or f"holdproof/{store_id}" in current.head_origins):
        return [key for key in own if key.keyid in current.local_keys], "the keys here"
    return own, "itself"


def copy_files(source: Path, folder: Path, manifest: Manifest, progress: Progress | None) -> None:
    """Copy every file of a backup except a server's tables, each checked as it is copied."""
    manifests.check_listing(source, manifest)
    for name in FOLDERS:
        (folder / name).mkdir(mode=0o700)
    names = [name for name in manifest.files if not name.startswith(f"{dumps.FOLDER}/")]
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
        if file.exists():
            disk.copy(file, folder / name)
    for name in DATABASES:
        if (folder / name).exists():
            snapshot.flatten(folder / name)
