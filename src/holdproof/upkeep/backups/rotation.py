"""Backups by the clock: a new one beside the earlier ones, checked, and then the oldest removed.

Rules:
- The new backup is read back and checked before an older one is removed: a run that fails removes nothing.
- Only backups of this store count and are removed. What is damaged, of another store or no backup is left alone, and so
  is a link, such as one to the newest.
- A removal is a rename and then a deletion, the manifest last: a run that is killed in between leaves no half backup
  under its name, and the next run knows the rest by its manifest and deletes it. So it does with a killed backup.
- One run at a time in a folder: another waits, and then sees what the first one did.
- A backup from the future, made under a wrong clock, does not delay the next and is the first to go, never the new one.
"""

import os
import re
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from holdproof import folders, validation
from holdproof.content import disk
from holdproof.db import Call, Work, ask
from holdproof.errors import HoldproofError, InvalidInputError
from holdproof.model.backup import Backup, Rotation
from holdproof.model.progress import Progress
from holdproof.model.times import later, to_text
from holdproof.store.context import Context
from holdproof.upkeep.backups import backup, backup_list, bucket_places, bucket_rotation, manifest
from holdproof.upkeep.backups.backup_list import DAMAGED, PARTIAL, REMOVING, no_progress
from holdproof.upkeep.backups.partial import locked_folder
from holdproof.upkeep.verification import log_check

KEEP = 7
_KILLED: Final = re.compile(rf"\d{{4}}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{{6}}Z{re.escape(PARTIAL)}")
"""The name of a backup that a rotation did not finish."""


def rotate(
    context: Context,
    folder: str | os.PathLike[str],
    *,
    keep: int = KEEP,
    every_s: float = 0,
    keys: bool = False,
    progress: Progress | None = None,
) -> Work[Rotation]:
    """Make a backup in a folder of backups, check it, and remove the oldest beyond `keep`.

    With `every_s` nothing is done while the newest one is younger than that, so it may be called often.
    """
    validation.count("keep", keep, least=1)
    validation.seconds("every_s", every_s)
    tell = progress or no_progress
    place = bucket_places.opened(folder)
    if place is not None:
        into_bucket = partial(bucket_rotation.rotate, context, place, tell, keep=keep, every_s=every_s, keys=keys)
        return (yield from ask(Call(into_bucket)))
    top = Path(os.path.abspath(os.path.expanduser(folder)))
    return (yield from ask(Call(lambda: _rotate(context, top, tell, keep=keep, every_s=every_s, keys=keys))))


def beat(context: Context, *, progress: Progress | None = None) -> Work[Rotation | None]:
    """Rotate backups as the settings say (`backups:`), if one is due; None where the settings name no folder."""
    settings = context.settings.backups
    if settings.folder is None:
        return None
    return (
        yield from rotate(
            context,
            settings.folder,
            keep=settings.keep,
            every_s=settings.every_s,
            keys=settings.keys,
            progress=progress,
        )
    )


def newest(where: str | os.PathLike[str], store_id: str, now: str) -> Backup | None:
    """Return the newest backup of a store in a folder that is not from the future; None where there is none."""
    place = bucket_places.opened(where)
    folder = Path(where).expanduser()
    if place is not None:
        backups = bucket_rotation.of_store(place, store_id)
    else:
        backups = _of_store(folder, store_id) if folder.is_dir() else []
    return _last(backups, now)


def _last(backups: Sequence[Backup], now: str) -> Backup | None:
    past = [each for each in backups if each.created_at <= now]
    return past[-1] if past else None


def _rotate(context: Context, top: Path, tell: Progress, *, keep: int, every_s: float, keys: bool) -> Rotation:
    if (top / manifest.MANIFEST).is_file():
        raise InvalidInputError(f"{top} is a backup: name the folder that the backups are to be in", path=str(top))
    with disk.translated(top):
        folders.make(top)
        with locked_folder(top):
            return _rotate_alone(context, top, tell, keep=keep, every_s=every_s, keys=keys)


def _rotate_alone(context: Context, top: Path, tell: Progress, *, keep: int, every_s: float, keys: bool) -> Rotation:
    now = to_text(context.database.clock())
    store_id = context.database.read(log_check.store_id).result()
    backups = _of_store(top, store_id)
    last = _last(backups, now)
    if last is not None and every_s and now < later(last.created_at, every_s):
        return Rotation(None, [], len(backups), later(last.created_at, every_s))
    _remove_killed(top)
    new = backup.make(context, top / _name(now), keys=keys, configuration=keys, tell=tell)
    # Read back from the disk: only a backup that checks out may take the place of an older one.
    checked = backup_list.inspect(Path(new.path), key=new.signer, tell=tell)
    removed = _remove_oldest(top, store_id, keep, new, before={each.path for each in backups})
    return Rotation(checked, removed, len(_of_store(top, store_id)), later(now, every_s) if every_s else None)


def _name(now: str) -> str:
    """Return a name for a folder: the moment, without the colons that some file systems refuse."""
    return now.replace(":", "-").replace(".", "-")


def _of_store(top: Path, store_id: str) -> list[Backup]:
    """Return the backups of one store in a folder, the oldest first."""
    return [
        each
        for each in backup_list.list_backups(top)
        if each.store_id == store_id and not each.trust.startswith(DAMAGED) and not Path(each.path).is_symlink()
    ]


def _remove_oldest(top: Path, store_id: str, keep: int, new: Backup, *, before: Set[str]) -> list[str]:
    for leftover in _removals(top, store_id):
        _remove(leftover)
    # One that somebody made by hand meanwhile is not among them, and no older than ours.
    listed = [each for each in _of_store(top, store_id) if each.path in before]
    # Those that claim to be later than the newest were made before it, under a wrong clock.
    older = [Path(each.path) for each in sorted(listed, key=lambda each: each.created_at <= new.created_at)]
    removed = older[: max(0, len(older) + 1 - keep)]
    for path in removed:
        aside = path.with_name(f"{path.name}{REMOVING}")
        path.rename(aside)
        folders.sync(top)
        _remove(aside)
    return [str(path) for path in removed]


def _removals(top: Path, store_id: str) -> Iterator[Path]:
    """Give the backups of a store whose removal was killed; other folders may have such a name too."""
    for path in top.glob(f"*{REMOVING}"):
        with suppress(HoldproofError):
            if not path.is_symlink() and manifest.read(path)[0].store_id == store_id:
                yield path


def _remove(backup: Path) -> None:
    """Remove a backup, its manifest last: what is left of a removal that is killed says whose it is."""
    for each in backup.iterdir():
        if each.name in {manifest.MANIFEST, manifest.SIGNATURE}:
            continue
        disk.remove_tree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
    disk.remove_tree(backup)


def _remove_killed(top: Path) -> None:
    """Remove what killed rotations left: their names come never again, so no later backup would."""
    for path in top.iterdir():
        if not _KILLED.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
            continue
        # One that somebody makes at the moment is locked by them.
        with suppress(BlockingIOError), locked_folder(path, wait=False):
            disk.remove_tree(path)
