"""Copy a store: a second one with everything of the first, which is left alone and may be in use.

A copy is a backup with keys, restored elsewhere, so it has the guarantees of both: one moment of the source, verified
before it counts. Two databases that append under one origin would be a fork, so the log of the copy continues under a
new origin, as after any restore.

Rules:
- The copy has a home of its own: heads, keys, DBOM files and large blobs are not shared with the source.
- The target is empty; anything else is refused and left alone.
- Parts of the source that a backup cannot hold (a bucket, a second server) would belong to both stores, and what one
  of them deletes would be gone from the other: then nothing is copied, and they are named.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from holdproof import config
from holdproof.config import Paths, Settings
from holdproof.content import disk
from holdproof.db import transfer
from holdproof.db.backends import is_url
from holdproof.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from holdproof.model.backup import Backup
from holdproof.model.progress import Progress
from holdproof.model.transfer import Copied
from holdproof.store.context import Context
from holdproof.upkeep.backups import backup, restore
from holdproof.upkeep.backups.staging import RestoreRequest
from holdproof.urls import redact

_FOLDER: Final = ".copying"
_URL_VARIABLE: Final = "HOLDPROOF_DATABASE_URL"


class CopyPlan(NamedTuple):
    """The source with its home and settings, and the target with a home of its own."""

    source_paths: Paths
    settings: Settings
    target_paths: Paths
    target: str | Path

    @property
    def source(self) -> str | Path:
        """The database of the source: a file or a URL."""
        return self.settings.database_url or self.source_paths.kernel_db


def plan(src: str | Path, dst: str | Path, home: str | Path | None, to_home: str | Path | None) -> CopyPlan:
    """Resolve both ends: each is a home, or the URL of a database whose home is `home` or `to_home`."""
    source_paths = Paths.find(home if is_url(src) else src)
    # The variable may name the other end; the source is what the caller names.
    env = {name: value for name, value in os.environ.items() if name != _URL_VARIABLE}
    settings = config.load(paths=source_paths, url=str(src) if is_url(src) else None, env=env)
    if is_url(dst) and to_home is None:
        raise InvalidInputError(
            "a copy in a server's database needs a home of its own for keys, heads and files: pass --to-home FOLDER"
        )
    if not is_url(dst) and to_home is not None:
        raise InvalidInputError("the target is a home already: --to-home is for the URL of a database")
    target_paths = Paths.find(to_home if is_url(dst) else dst)
    if target_paths == source_paths:
        raise InvalidInputError(f"source and copy cannot share a home: {target_paths.data}")
    journey = CopyPlan(source_paths, settings, target_paths, str(dst) if is_url(dst) else target_paths.kernel_db)
    if str(journey.target) == str(journey.source):
        raise InvalidInputError("source and target are the same database")
    return journey


def refuse(journey: CopyPlan) -> None:
    """Raise NotFoundError where there is no store to copy, AlreadyExistsError where the target is not empty."""
    if _ledger(journey.source, journey.source_paths) is None:
        raise NotFoundError(f"there is no store at {redact(str(journey.source))}")
    if _ledger(journey.target, journey.target_paths) is not None:
        raise AlreadyExistsError(f"there is a store at {redact(str(journey.target))} already: name an empty place")


def _ledger(target: str | Path, paths: Paths) -> dict[str, str] | None:
    return transfer.open_target(target, {"kernel": paths.kernel_db}).ledger("kernel")


def run(journey: CopyPlan, context: Context, tell: Progress, *, dry_run: bool) -> Copied:
    """Copy an open store; in a dry run the backup is made and verified, and removed again."""
    journey.target_paths.create()
    with _staged(context, journey.target_paths, tell) as (folder, staged_backup):
        if outside := staged_backup.outside:
            raise InvalidInputError(
                f"a copy would share these parts with its source, or lack them: {'; '.join(outside)}. Move the store,"
                " or restore a backup where these parts have a copy of their own",
                outside=outside,
            )
        request = RestoreRequest(folder, dry_run=dry_run, progress=tell)
        restored = restore.restore(journey.target_paths, journey.target, request)
    # Nothing was replaced: what is aside are the empty folders of a new home.
    for aside in journey.target_paths.data.glob("before-restore-*"):
        if not disk.files(aside, hidden=True):
            disk.remove_tree(aside)
    return Copied(
        source=redact(str(journey.source)),
        target=redact(str(journey.target)),
        home=str(journey.target_paths.data),
        store_id=restored.store_id,
        origin="" if dry_run else restored.origin,
        size=restored.size,
        verdict="not verified",
        dry_run=dry_run,
        notes=restored.notes,
    )


@contextmanager
def _staged(context: Context, paths: Paths, tell: Progress) -> Iterator[tuple[Path, Backup]]:
    """Make a backup with keys in the target's home, for the time of the copy."""
    folder = paths.data / _FOLDER
    disk.remove_tree(folder)
    try:
        # Without the configuration: it may name the source's database, and the copy would open that.
        yield folder, backup.make(context, folder, keys=True, configuration=False, tell=tell)
    finally:
        disk.remove_tree(folder)
