"""What a restore copies before it trusts it, and whose signature it trusts."""

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
from holdproof.upkeep.backups import dumps, manifest
from holdproof.upkeep.backups.backup_list import KERNEL
from holdproof.upkeep.backups.restore_log import Current, Staged
from holdproof.upkeep.verification import log_check, row_check
from holdproof.upkeep.verification.findings import Findings
from holdproof.upkeep.verification.log_check import Parts

DATABASES: Final = (KERNEL, "membrane.db", "telemetry.db")
FOLDERS: Final = ("dboms", "blobs", "images")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a restore."""

    src: Path
    to_index: int | None = None
    to_time: str | None = None
    key: str | None = None
    erasures: Path | None = None
    other: bool = False
    dry_run: bool = False
    progress: Progress | None = None


class Opened(NamedTuple):
    """A backup's manifest, its bytes and its signature."""

    made: Manifest
    data: bytes
    signature: bytes

    @property
    def name(self) -> str:
        """What the ceremony cites."""
        return f"sha256:{sha256_hex(self.data)}"


def opened(source: Path) -> Opened | None:
    """The manifest of a source; None for a raw copy of a closed store."""
    return Opened(*manifest.read(source)) if (source / manifest.MANIFEST).is_file() else None


def stage(source: Path, folder: Path, backup: Opened | None, current: Current, wanted: Wanted) -> Staged:
    """Copy a source with its SQLite files into a folder and verify the copy."""
    if backup is None:
        _copy_raw(source, folder)
    else:
        copy_files(source, folder, backup.made, wanted.progress)
    for name in DATABASES:
        if (folder / name).exists() and (findings := check_file(folder / name)):
            raise CorruptError(f"{name} of the source is damaged: {findings[0]}", findings=findings)
    with snapshot.view(folder / KERNEL) as tx:
        return judge(log_check.parts(tx), backup, current, wanted)


def judge(parts: Parts, backup: Opened | None, current: Current, wanted: Wanted) -> Staged:
    """Refuse what is not signed by whom we trust, whose log does not hold, or what is after the point asked for."""
    known, trust = _trusted(parts, current, wanted)
    if backup is None:
        log_check.check(parts, known)
    else:
        _verify(backup, known, trust)
        log_check.agree(parts, backup.made, known)
    size = parts.state.size
    if wanted.to_index is not None and size > wanted.to_index:
        raise NotFoundError(f"the source has {size} leaves, more than {wanted.to_index}", size=size)
    as_of, name = (backup.made.created_at, backup.name) if backup else (None, "raw copy")
    return Staged(parts.store_id, size, as_of, trust, name)


def _verify(backup: Opened, known: list[PublicKey], trust: str) -> None:
    try:
        manifest.verify(backup.data, backup.made.store_id, backup.signature, known)
    except ProofError as error:
        what = f"the backup is not signed by whom {trust} can vouch for: name the key (--key) if you know it is right"
        raise ProofError(f"{what} ({error.message})", **error.fields) from error


class _Copy(NamedTuple):
    """A copy that is not live yet, to be looked at as a store is."""

    database: Database


def check_rows(database: Database) -> None:
    """Refuse a copy whose rows are not those of its leaves: nobody signed a raw copy but through its log."""
    found = Findings()
    SyncExecutor(database).run(row_check.check(_Copy(database), found))
    wrong = [each for each in found.report("rows").findings if each.verdict.locks]
    if wrong:
        first = wrong[0]
        raise CorruptError(
            f"{first.table} {first.row} of the source: {first.what}", findings=[each.to_dict() for each in wrong]
        )


def _trusted(parts: Parts, current: Current, wanted: Wanted) -> tuple[list[PublicKey], str]:
    """Whose signature counts: of the key named, of the store that is replaced or its home, or else the source's own."""
    store_id, size = parts.store_id, parts.state.size
    own, here = log_check.counting(parts.keys, size), log_check.counting(current.keys, size)
    if current.store_id not in (None, store_id) and not wanted.other:
        raise ConflictError(
            "the backup is of another store than the one here; say so if that is meant (--other)",
            found=store_id,
            here=current.store_id,
        )
    if wanted.key is not None:
        named = [key for key in (*own, *here) if key.keyid == wanted.key]
        if not named:
            raise ProofError("the source does not know the key that is to have signed it", keyid=wanted.key)
        return named, "the key given"
    if current.store_id == store_id and current.keys:
        return here, "the store here"
    if current.here and (current.store_id == store_id or f"holdproof/{store_id}" in current.seen):
        return [key for key in own if key.keyid in current.here], "the keys here"
    return own, "itself"


def copy_files(source: Path, folder: Path, made: Manifest, progress: Progress | None) -> None:
    """Copy every file of a backup but a server's tables, each checked as it is copied."""
    manifest.check_listing(source, made)
    for name in FOLDERS:
        (folder / name).mkdir(mode=0o700)
    names = [name for name in made.files if not name.startswith(f"{dumps.FOLDER}/")]
    for number, name in enumerate(names, 1):
        manifest.check_file(name, disk.copy(source / name, folder / name), made)
        if progress:
            progress("files", number, len(names))


def _copy_raw(source: Path, folder: Path) -> None:
    """A closed store's database with its write-ahead log, and whatever folders lie beside it."""
    if source.is_file():
        found = {KERNEL: source, f"{KERNEL}-wal": source.with_name(f"{source.name}-wal")}
    else:
        names = [name + end for name in DATABASES for end in ("", "-wal")]
        found = {name: source / name for name in names}
        for top in FOLDERS:
            files = disk.files(source / top, hidden=True)
            found |= {f"{top}/{file.relative_to(source / top)}": file for file in files}
            if (source / top).is_dir():
                (folder / top).mkdir(mode=0o700)
    for name, file in found.items():
        if file.exists():
            disk.copy(file, folder / name)
    for name in DATABASES:
        if (folder / name).exists():
            snapshot.flatten(folder / name)
