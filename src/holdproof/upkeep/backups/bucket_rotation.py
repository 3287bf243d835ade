"""Backups by the clock in a bucket; the rules are those of rotation.py.

Two homes that rotate in one place at once may both make a backup where one is due. Neither removes the other's: only
what was there before a rotation made its own is removed by it.
"""

from collections.abc import Set
from pathlib import Path

from holdproof.content import disk
from holdproof.errors import InvalidInputError
from holdproof.model.backup import Backup, Rotation
from holdproof.model.progress import Progress
from holdproof.model.times import later
from holdproof.store.context import Context
from holdproof.upkeep.backups import bucket_backups, bucket_places
from holdproof.upkeep.backups.backup_list import DAMAGED, REMOVING
from holdproof.upkeep.backups.bucket_places import BucketPlace, Marks


def rotate(context: Context, place: BucketPlace, tell: Progress, *, keep: int, every_s: float, keys: bool) -> Rotation:
    """Make a backup in a place of a bucket, and remove the oldest beyond `keep`; see rotation.rotate."""
    if place.has_manifest():
        raise InvalidInputError(
            f"{place.url} is a backup: name the folder that the backups are to be in", path=place.url
        )
    with disk.locked(place.here(context.paths.cache).with_suffix(".lock")):
        # Made under the lock: another rotation of this home may have made a backup meanwhile.
        marks = Marks.of(context)
        backups = of_store(place, marks.store_id)
        past = [each for each in backups if each.created_at <= marks.now]
        last = past[-1] if past else None
        if last is not None and every_s and marks.now < later(last.created_at, every_s):
            return Rotation(None, [], len(backups), later(last.created_at, every_s))
        _sweep(place, marks)
        name = marks.now.replace(":", "-").replace(".", "-")
        new = bucket_backups.make(context, place.child(name), keys=keys, configuration=keys, tell=tell)
        removed = _remove_oldest(place, marks, keep, new, before={each.path for each in backups})
        next_at = later(marks.now, every_s) if every_s else None
        return Rotation(new, removed, len(of_store(place, marks.store_id)), next_at)


def of_store(place: BucketPlace, store_id: str) -> list[Backup]:
    """Return the backups of one store in a place, the oldest first."""
    listed = bucket_backups.list_backups(place)
    return [each for each in listed if each.store_id == store_id and not each.trust.startswith(DAMAGED)]


def _sweep(place: BucketPlace, marks: Marks) -> None:
    """Remove what killed runs left: the rest of a removal, and backups that nobody makes any more."""
    for mark in marks.listed(place):
        beside = BucketPlace(place.bucket, mark.path)
        if mark.name.endswith(REMOVING):
            bucket_places.finish(beside)
        elif beside.has_manifest():
            # Killed between the manifest and the end: it is whole.
            marks.end(beside)
        elif marks.is_abandoned(mark, place.bucket):
            marks.remove(beside)


def _remove_oldest(place: BucketPlace, marks: Marks, keep: int, new: Backup, *, before: Set[str]) -> list[str]:
    # What came meanwhile is another home's, and no older than ours: each would remove the other's otherwise.
    listed = [each for each in of_store(place, marks.store_id) if each.path in before]
    # Those that claim to be later than the newest were made before it, under a wrong clock.
    older = [each.path for each in sorted(listed, key=lambda each: each.created_at <= new.created_at)]
    removed = older[: max(0, len(older) + 1 - keep)]
    for path in removed:
        marks.remove(place.child(Path(path).name))
    return removed
