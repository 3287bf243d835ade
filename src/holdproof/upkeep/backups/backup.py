"""Backups: a folder, or a place in a bucket, that holds a whole store as it was at one moment (contents.py).

Rules:
- A backup exists completely or not at all: it is written as DEST.partial and renamed when all of it is durable. The
  leftovers of a killed one are removed by the next; two at once into one place is a BusyError. In a bucket the manifest
  comes last (bucket_backups.py).
- Every file is in the manifest, which the log key signs (manifest.py).
"""

import builtins
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from holdproof import folders, paging
from holdproof.content import disk
from holdproof.db import Call, Work, ask, call
from holdproof.errors import AlreadyExistsError
from holdproof.model.backup import Backup, Entry
from holdproof.model.page import Page
from holdproof.model.progress import Progress
from holdproof.store.context import Context
from holdproof.upkeep.backups import backup_list, bucket_backups, bucket_places, contents
from holdproof.upkeep.backups import manifest as manifests
from holdproof.upkeep.backups.backup_list import no_progress
from holdproof.upkeep.backups.partial import partial_folder


def create(
    context: Context, dest: str | os.PathLike[str], *, keys: bool = False, progress: Progress | None = None
) -> Work[Backup]:
    """Back the store up into a new folder (or s3://bucket/name) while it is in use; `keys` adds the private keys."""
    tell = progress or no_progress
    return (yield from ask(Call(lambda: make(context, dest, keys=keys, configuration=keys, tell=tell))))


def check(src: str | os.PathLike[str], *, key: str | None = None, progress: Progress | None = None) -> Work[Backup]:
    """Check a backup: signature, every file, database and log; `key` is the id of the key that must have signed it."""
    tell = progress or no_progress
    place = bucket_places.opened(src)
    if place is not None:
        return (yield from ask(Call(lambda: bucket_backups.inspect(place, key=key, tell=tell))))
    return (yield from ask(Call(lambda: backup_list.inspect(Path(src), key=key, tell=tell))))


def list(folder: str | os.PathLike[str], *, cursor: str | None = None, limit: int = 100) -> Work[Page[Backup]]:
    """List the backups in a folder, the newest first; their files are not read."""
    place = bucket_places.opened(folder)
    if place is None:
        backups = yield from call(backup_list.list_backups, Path(folder))
    else:
        backups = yield from call(bucket_backups.list_backups, place)
    newest_first = reversed(backups)
    if cursor is not None:
        last = paging.decode(cursor, "", 0, "")
        newest_first = filter(lambda each: backup_list.sort_key(each) < last, newest_first)
    return paging.page(islice(newest_first, paging.fetch(limit)), limit, backup_list.sort_key)


# --- making one --------------------------------------------------------------------------------------------------


def make(context: Context, dest: str | os.PathLike[str], *, keys: bool, configuration: bool, tell: Progress) -> Backup:
    """Make a backup; `configuration` puts `config.yaml` into it."""
    place = bucket_places.opened(dest)
    if place is not None:
        return bucket_backups.make(context, place, keys=keys, configuration=configuration, tell=tell)
    target = Path(os.path.abspath(Path(dest).expanduser()))
    # lexists, because a dangling link is somebody's name too.
    if os.path.lexists(target):
        raise AlreadyExistsError(f"{target}: exists already", path=str(target))
    signer = contents.signer_of(context)
    with disk.translated(target), partial_folder(target) as folder:
        manifest = contents.fill(
            context,
            folder,
            lambda files: _copied(files, folder),
            keys=keys,
            configuration=configuration,
            tell=tell,
        )
        data = manifests.encode(manifest)
        disk.write(folder / manifests.MANIFEST, data)
        disk.write(folder / manifests.SIGNATURE, manifests.sign(data, manifest.store_id, signer))
        # Everything is durable before the rename, which is what makes the backup exist.
        disk.sync_tree(folder)
        folder.rename(target)
        folders.sync(target.parent)
    return backup_list.backup_of(target, manifest, signer=signer.keyid, trust="made here")


def _copied(files: builtins.list[tuple[str, Path]], folder: Path) -> Iterator[tuple[str, Entry | None]]:
    for name, file in files:
        try:
            yield name, disk.copy(file, folder / name)
        except FileNotFoundError:
            yield name, None
