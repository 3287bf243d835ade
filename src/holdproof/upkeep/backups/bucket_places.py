"""Where in a bucket backups are, and the marks beside one that is being made or removed there.

Rules:
- A backup is there when its `manifest.json` is, which is sent last and removed first.
- A backup that is made has a mark beside it from before its first file until after its manifest; one that is removed,
  until after its last file. So what a killed process left is known by its mark, which names the store.
- A mark of this home is nobody's once the lock on its work folder is free: locks end with their process. One of
  another home counts for a day after that home said last that it is at work, which it does every hour; until then
  nobody else makes a backup of that name.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from holdproof import folders
from holdproof.content import disk
from holdproof.crypto import canonical
from holdproof.errors import (
    AlreadyExistsError,
    BusyError,
    ConflictError,
    FormatError,
    HoldproofError,
    MissingExtraError,
    NotFoundError,
)
from holdproof.model.times import later, to_micros, to_text
from holdproof.store.context import Context
from holdproof.upkeep import bucket_address
from holdproof.upkeep.backups import manifest as manifests
from holdproof.upkeep.backups.backup_list import PARTIAL, REMOVING
from holdproof.upkeep.backups.partial import locked_folder, partial_folder
from holdproof.upkeep.verification import log_check

if TYPE_CHECKING:
    from holdproof.upkeep.backups.bucket import Bucket

ANOTHERS_S: Final = 86_400.0
"""How long the mark of another home counts, from when that home was known to be at work."""
_BEAT_S: Final = 3600.0
"""How often a home says so."""
_MOST_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """A folder in a bucket; `path` is empty for the bucket itself, and never begins or ends with a slash."""

    bucket: "Bucket"
    path: str

    @property
    def url(self) -> str:
        """Return its address."""
        return f"{self.bucket.where}/{self.path}".rstrip("/")

    def name_of(self, file: str) -> str:
        """Return the whole name of a file or a folder in it."""
        return f"{self.path}/{file}" if self.path else file

    def child(self, name: str) -> "BucketPlace":
        """Return a folder in it."""
        return BucketPlace(self.bucket, self.name_of(name))

    def has_manifest(self) -> bool:
        """Whether this is a backup."""
        return manifests.MANIFEST in self.bucket.list(self.path).files

    def here(self, cache: Path) -> Path:
        """Return the path of this home that stands for this place."""
        return cache / "backups" / canonical.sha256_hex(self.url.encode())[:32]


def opened(place: str | os.PathLike[str]) -> BucketPlace | None:
    """Return the place in a bucket that `s3://bucket/folder` names; None for a path."""
    address = bucket_address.parse(place)
    if address is None:
        return None
    try:
        from holdproof.upkeep.backups.bucket import Bucket  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("S3 needs its client: pip install 'holdproof[s3]'") from error
    return BucketPlace(Bucket(address.bucket), address.folder)


@contextmanager
def working(place: BucketPlace, cache: Path) -> Iterator[Path]:
    """Hold this home's lock of a place during the block, with an empty folder; BusyError if it is held."""
    folder = place.here(cache)
    with disk.translated(folder):
        folders.make(folder.parent)
        for path in folder.parent.glob(f"*{PARTIAL}"):
            # Of a killed process, if it is not locked; a backup of that name may never come again.
            with suppress(FileNotFoundError, BlockingIOError), locked_folder(path, wait=False):
                disk.remove_tree(path)
        with partial_folder(folder, place.url) as work:
            yield work
            disk.remove_tree(work)


@dataclass(frozen=True, slots=True)
class BackupMark:
    """A mark beside a backup: of which store it is, and which home put it there."""

    name: str
    store_id: str
    home: str
    since: str
    alive: str
    """When that home was known to be at work."""

    @property
    def path(self) -> str:
        """Return the folder that it stands beside."""
        # One ending only: `a.removing.partial` stands beside a backup named `a.removing`, not beside `a`.
        return self.name.removesuffix(PARTIAL if self.name.endswith(PARTIAL) else REMOVING)


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of one store, as one home puts and judges them."""

    store_id: str
    home: str
    cache: Path
    now: str
    clock: Callable[[], str]

    @classmethod
    def of(cls, context: Context) -> "Marks":
        """Return those of an open store; its home gets a name of its own when it first makes a backup in a bucket."""
        store_id = context.database.read(log_check.store_id).result()
        file = context.paths.cache / "backups" / "home"
        with disk.translated(file):
            folders.make(file.parent)
            if not file.exists():
                folders.write_once(file, context.database.read(lambda tx: tx.new_id()).result())
            home = file.read_text()
        clock = context.database.clock
        return cls(store_id, home, context.paths.cache, to_text(clock()), lambda: to_text(clock()))

    def text(self, alive: str | None = None) -> bytes:
        """Return the content of a mark."""
        fields = {"store_id": self.store_id, "home": self.home, "since": self.now, "alive": alive or self.now}
        return canonical.dumps(fields)

    def listed(self, place: BucketPlace) -> list[BackupMark]:
        """Return the marks of this store in a place of backups."""
        names = [name for name in place.bucket.list(place.path).files if name.endswith((PARTIAL, REMOVING))]
        marks = [self.read(place.bucket, place.name_of(name)) for name in names]
        return [mark for mark in marks if mark is not None and mark.store_id == self.store_id]

    def read(self, bucket: "Bucket", name: str) -> BackupMark | None:
        """Return a mark; None where there is none, or a file that is no mark."""
        # Not every error: a mark that cannot be read now may be one.
        with suppress(NotFoundError, FormatError):
            content = canonical.loads(bucket.read(name, _MOST_BYTES))
            if isinstance(content, dict):
                store_id, home, since = (content.get(each) for each in ("store_id", "home", "since"))
                if isinstance(store_id, str) and isinstance(home, str) and isinstance(since, str):
                    # Of an earlier version, which said it at the beginning only.
                    alive = content.get("alive", since)
                    return BackupMark(name, store_id, home, since, alive if isinstance(alive, str) else since)
        return None

    def is_abandoned(self, mark: BackupMark, bucket: "Bucket") -> bool:
        """Whether nobody can be at work any more where a mark is; the caller must not hold the lock of that place."""
        if mark.home != self.home:
            return self._is_old(mark)
        with suppress(BusyError), self.at_work(BucketPlace(bucket, mark.path)):
            return True
        return False

    def _is_old(self, mark: BackupMark) -> bool:
        try:
            return to_micros(self.now) >= to_micros(later(mark.alive, ANOTHERS_S))
        except ValueError:
            return True

    @contextmanager
    def at_work(self, place: BucketPlace) -> Iterator[Path]:
        """Hold the lock of a place during the block, with an empty folder; BusyError if this home is at work there."""
        with working(place, self.cache) as folder:
            yield folder

    def begin(self, place: BucketPlace) -> None:
        """Mark a place where a backup will be made, and clear what a killed one left; the caller holds its lock.

        A mark says that what lies below is a backup's. So it is put where nothing lies, or where one stands already:
        whoever finds it later, after a kill at any moment, may remove all of that.
        """
        bucket = place.bucket
        self._finish_removal(place)
        name = f"{place.path}{PARTIAL}"
        leftovers = any(True for _ in bucket.names(place.path))
        if leftovers and self.read(bucket, name) is None:
            raise AlreadyExistsError(f"{place.url}: exists already", path=place.url)
        if not bucket.create(name, self.text()):
            self._take_over(place)
        if place.has_manifest():
            # Killed between the manifest and the end, or made meanwhile: it is whole.
            bucket.remove(name)
            raise AlreadyExistsError(f"{place.url}: exists already", path=place.url)
        if leftovers:
            bucket.remove_below(place.path)

    def _finish_removal(self, place: BucketPlace) -> None:
        folder, _, name = place.path.rpartition("/")
        if f"{name}{REMOVING}" not in place.bucket.list(folder).files:
            return
        self._own(place, REMOVING)
        finish(place)

    def _take_over(self, place: BucketPlace) -> None:
        mark = self._own(place, PARTIAL)
        if mark.home != self.home and not self._is_old(mark):
            raise BusyError(
                f"another backup into {place.url} is under way since {mark.since}, or was killed on another machine:"
                " choose another name",
                path=place.url,
            )
        place.bucket.put(mark.name, self.text())

    def _own(self, place: BucketPlace, ending: str) -> BackupMark:
        """Return a mark of this store; AlreadyExistsError for any other file of that name."""
        mark = self.read(place.bucket, f"{place.path}{ending}")
        if mark is None or mark.store_id != self.store_id:
            raise AlreadyExistsError(
                f"{place.url}{ending} is a file of somebody else: choose another name", path=f"{place.url}{ending}"
            )
        return mark

    @contextmanager
    def beating(self, place: BucketPlace) -> Iterator[None]:
        """Say every hour of the block that this home is at work in a place: a backup may take longer than a day."""
        ended = Event()

        def beat() -> None:
            while not ended.wait(_BEAT_S):
                # One that fails is made up for by the next: there are many in a day.
                with suppress(HoldproofError):
                    self.check(place)
                    place.bucket.put(f"{place.path}{PARTIAL}", self.text(self.clock()))

        thread = Thread(target=beat, name="holdproof-backup-mark", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def check(self, place: BucketPlace) -> None:
        """Raise ConflictError if somebody took this home for dead meanwhile, and the place."""
        mark = self.read(place.bucket, f"{place.path}{PARTIAL}")
        if mark is None or (mark.store_id, mark.home, mark.since) != (self.store_id, self.home, self.now):
            raise ConflictError(f"{place.url}: another backup took the place of this one", path=place.url)

    def end(self, place: BucketPlace) -> None:
        """Remove the mark of a backup that is made; if that fails, the next rotation does."""
        with suppress(HoldproofError):
            place.bucket.remove(f"{place.path}{PARTIAL}")

    def give_up(self, place: BucketPlace) -> None:
        """Remove what was sent, unless the place is another's by now; if that fails, the next rotation does."""
        with suppress(HoldproofError):
            self.check(place)
            self.remove(place)

    def remove(self, place: BucketPlace) -> None:
        """Remove a backup: from the first request on it is none."""
        place.bucket.put(f"{place.path}{REMOVING}", self.text())
        finish(place)


def finish(place: BucketPlace) -> None:
    """Remove what is below a marked place, the manifest first, and then its marks."""
    place.bucket.remove(place.name_of(manifests.MANIFEST))
    place.bucket.remove_below(place.path)
    place.bucket.remove(f"{place.path}{PARTIAL}")
    place.bucket.remove(f"{place.path}{REMOVING}")
