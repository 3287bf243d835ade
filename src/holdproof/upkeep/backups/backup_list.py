"""Backups on disk: check, list, and choose one by a point in time.

Rules:
- A check reads every byte: signature, every file, the database's own check, the log from its leaves to its head.
- A backup whose manifest cannot be read is listed as damaged and never chosen.
- Points in time: rows change in place, so a state is restored from a backup that holds it, never computed from a later
  one. `choose` returns the newest backup of a folder that is not after the requested log index or moment.
"""

from pathlib import Path

from holdproof.content import disk
from holdproof.db.sqlite import check_file, snapshot
from holdproof.errors import CorruptError, HoldproofError, InvalidInputError, NotFoundError
from holdproof.model.backup import Backup, Manifest
from holdproof.model.progress import Progress
from holdproof.model.times import to_micros
from holdproof.upkeep.backups import dumps
from holdproof.upkeep.backups import manifest as manifests
from holdproof.upkeep.verification import log_check
from holdproof.upkeep.verification.log_check import StoreParts

KERNEL = "kernel.db"
DAMAGED = "damaged"
"""How the `trust` of a backup begins whose manifest cannot be read."""
REMOVING = ".removing"
"""What the name of a backup ends in while it is deleted."""
PARTIAL = ".partial"
"""What the name of a backup ends in while it is made."""
_UNFINISHED = (PARTIAL, REMOVING)


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore progress: the default where no callback is given."""
    del what, done, total


def inspect(src: Path, *, key: str | None = None, tell: Progress = no_progress) -> Backup:
    """Check a backup in place; `key` is the id of the key that must have signed it."""
    manifest, data, signature = manifests.read(src)
    manifests.check_listing(src, manifest)
    with disk.translated(src):
        for number, name in enumerate(manifest.files, 1):
            manifests.check_file(name, disk.entry(src / name), manifest)
            tell("files", number, len(manifest.files))
    signer = judge(src, manifest, data, signature, key)
    return backup_of(src, manifest, signer=signer, trust=trust_of(key))


def judge(src: Path, manifest: Manifest, data: bytes, signature: bytes, key: str | None) -> str:
    """Check the kernel in a folder against a manifest, whose signature is checked too; return the id of the signer.

    That its files are those of the manifest is for the caller to check.
    """
    if manifest.backend == "postgres":
        return _judge(dumps.parts(src, manifest), manifest, data, signature, key)
    # SQLite's own check comes first: a damaged index could hide rows from the next reads.
    if findings := check_file(src / KERNEL):
        raise CorruptError(f"the backup's database is damaged: {findings[0]}", findings=findings)
    with snapshot.view(src / KERNEL) as tx:
        return _judge(log_check.parts(tx), manifest, data, signature, key)


def trust_of(key: str | None) -> str:
    """Return by what a signature was checked: a key that the caller named, or the backup's own keys."""
    return "itself" if key is None else "the key given"


def _judge(parts: StoreParts, manifest: Manifest, data: bytes, signature: bytes, key: str | None) -> str:
    # Only keys that were not revoked at the size of this backup.
    own = log_check.active_keys(parts.keys, manifest.size)
    signer = manifests.verify(data, manifest.store_id, signature, [each for each in own if key in (None, each.keyid)])
    log_check.agree(parts, manifest, own)
    return signer.keyid


def list_backups(folder: Path) -> list[Backup]:
    """Return the backups in a folder, oldest first."""
    if not folder.is_dir():
        raise NotFoundError(f"{folder}: no such folder", path=str(folder))
    candidates = [at for at in folder.iterdir() if (at / manifests.MANIFEST).is_file() and at.suffix not in _UNFINISHED]
    return sorted(map(_summary, candidates), key=sort_key)


def sort_key(backup: Backup) -> tuple[str, int, str]:
    """Return what backups are ordered by: the time they were made, then the size of their log."""
    return backup.created_at, backup.size, backup.path


def _summary(at: Path) -> Backup:
    try:
        manifest, *_ = manifests.read(at)
    except HoldproofError as error:
        return damaged(str(at), error)
    return backup_of(at, manifest, signer="", trust="not checked")


def damaged(path: str, error: HoldproofError) -> Backup:
    """Return the summary of a backup whose manifest cannot be read."""
    return Backup(path, "", "", "", 0, "", 0, 0, False, 0, "", f"{DAMAGED}: {error.message}")


def choose(folder: Path, *, index: int | None = None, time: str | None = None) -> Path:
    """Return the newest backup of a folder that is not after a log index or a moment; a backup may be named itself."""
    until = moment(time)
    if (folder / manifests.MANIFEST).is_file():
        manifest, *_ = manifests.read(folder)
        backups = [backup_of(folder, manifest, signer="", trust="")]
    else:
        backups = list_backups(folder)
    return Path(newest_of(backups, str(folder), index=index, until=until).path)


def moment(time: str | None) -> int | None:
    """Return a time in microseconds, before anything is read; InvalidInputError for a text that is none."""
    try:
        return None if time is None else to_micros(time)
    except ValueError as error:
        raise InvalidInputError(str(error), time=time) from error


def newest_of(listing: list[Backup], where: str, *, index: int | None, until: int | None) -> Backup:
    """Return the last of the backups, the oldest first, that is not after a log index or a moment."""
    backups = [each for each in listing if not each.trust.startswith(DAMAGED)]
    if not backups:
        raise NotFoundError(f"there is no backup in {where}", path=where)
    fits = [
        each
        for each in backups
        if (index is None or each.size <= index) and (until is None or to_micros(each.created_at) <= until)
    ]
    if not fits:
        points = [f"log size {each.size} at {each.created_at}" for each in backups]
        raise NotFoundError(f"no backup in {where} is that old", path=where, found=points)
    return fits[-1]


def backup_of(path: Path | str, manifest: Manifest, *, signer: str, trust: str) -> Backup:
    """Return the summary of a backup from its manifest."""
    return Backup(
        path=str(path),
        store_id=manifest.store_id,
        created_at=manifest.created_at,
        backend=manifest.backend,
        size=manifest.size,
        root=manifest.root,
        files=len(manifest.files),
        bytes=sum(entry.size for entry in manifest.files.values()),
        keys=manifest.keys,
        sealed=manifest.sealed,
        signer=signer,
        trust=trust,
        outside=[*manifest.outside],
    )
