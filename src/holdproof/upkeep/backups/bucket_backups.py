"""Backups in a bucket: made, checked, listed, fetched; the files are those of a backup in a folder.

Rules:
- Nothing half-sent is ever taken for a backup: its manifest comes last, after every file was read back from the bucket
  and had its hash, and after the database and its log were checked against the manifest.
- A run that fails removes what it sent, its manifest first; what a killed one left is removed by the next rotation.
- Blobs and images go from the home to the bucket; only the databases are copied to this machine's disk before.
- What is fetched is checked file by file as it arrives, and nothing of a backup with a wrong file is used.
"""

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Final, TypeVar

from holdproof.content import disk
from holdproof.crypto import note
from holdproof.errors import FormatError, InvalidInputError, NotFoundError
from holdproof.model.backup import Backup, Entry, Manifest
from holdproof.model.progress import Progress
from holdproof.store.context import Context
from holdproof.upkeep.backups import backup_list, contents
from holdproof.upkeep.backups import manifest as manifests
from holdproof.upkeep.backups.backup_list import KERNEL, REMOVING
from holdproof.upkeep.backups.bucket_places import BucketPlace, Marks, working

_AT_ONCE: Final = 8
"""Requests under way: a store has thousands of small files, and each waits for an answer."""
_MOST_AHEAD: Final = 128
"""Files begun, or waiting to be, while the result of an earlier one is waited for."""
_SUMMARIES: Final[dict[tuple[str, str], Backup]] = {}
"""What manifests say, by address and version: each lists every file of a store, and a server looks every minute."""
_MOST_SUMMARIES: Final = 1000
S = TypeVar("S")
T = TypeVar("T")


# --- making one --------------------------------------------------------------------------------------------------


def make(context: Context, place: BucketPlace, *, keys: bool, configuration: bool, tell: Progress) -> Backup:
    """Make a backup in a bucket, and read it back; see backup.make."""
    signer = contents.signer_of(context)
    if not place.path:
        raise InvalidInputError(f"name the backup: {place.url}/monday", path=place.url)
    marks = Marks.of(context)
    with marks.at_work(place) as folder:
        # A run that ends in here leaves a mark at most: nothing was sent yet, so nothing is to be removed.
        marks.begin(place)
        try:
            with marks.beating(place):
                manifest = contents.fill(
                    context,
                    folder,
                    lambda files: _send(place, files, tell),
                    keys=keys,
                    configuration=configuration,
                    tell=tell,
                )
                _send_databases(place, folder, manifest, tell)
                data = manifests.encode(manifest)
                signature = manifests.sign(data, manifest.store_id, signer)
                _read_back(place, manifest, tell)
                backup_list.judge(folder, manifest, data, signature, signer.keyid)
            marks.check(place)
            _publish(place, data, signature)
        except BaseException:
            marks.give_up(place)
            raise
        marks.end(place)
    return backup_list.backup_of(place.url, manifest, signer=signer.keyid, trust="made here")


def _send(place: BucketPlace, files: Iterable[tuple[str, Path]], tell: Progress) -> Iterator[tuple[str, Entry | None]]:
    def send(file: tuple[str, Path], tell: Progress) -> tuple[str, Entry | None]:
        name, path = file
        try:
            return name, place.bucket.send(path, place.name_of(name), tell)
        except FileNotFoundError:
            return name, None

    return _at_once(send, files, tell)


def _send_databases(place: BucketPlace, folder: Path, manifest: Manifest, tell: Progress) -> None:
    files = [(path.relative_to(folder).as_posix(), path) for path in disk.files(folder, hidden=True)]
    for number, (name, entry) in enumerate(_send(place, files, tell), 1):
        assert entry is not None, "nobody but this process removes from its work folder"
        manifests.check_file(name, entry, manifest)
        tell("files to the bucket", number, len(files))


def _read_back(place: BucketPlace, manifest: Manifest, tell: Progress) -> None:
    """Compare what the bucket has with the manifest, byte by byte."""
    manifests.check_names(_names(place), manifest)
    _check_files(place, [*manifest.files], manifest, tell)


def _check_files(place: BucketPlace, names: list[str], manifest: Manifest, tell: Progress) -> None:
    def entry(name: str, tell: Progress) -> tuple[str, Entry]:
        return name, place.bucket.entry(place.name_of(name), manifest.files[name].size, tell)

    for number, (name, arrived) in enumerate(_at_once(entry, names, tell), 1):
        manifests.check_file(name, arrived, manifest)
        tell("files read back", number, len(names))


def _publish(place: BucketPlace, data: bytes, signature: bytes) -> None:
    # The manifest is last: with it the backup is there.
    for name, content in ((manifests.SIGNATURE, signature), (manifests.MANIFEST, data)):
        place.bucket.put(place.name_of(name), content)
        if place.bucket.read(place.name_of(name), manifests.MOST_BYTES) != content:
            raise FormatError(f"{place.url}: {name} did not arrive as it was sent", file=name)


class _StoppedError(Exception):
    """Ends a request of a run that has failed meanwhile; nobody waits for its result."""


def _at_once(work: Callable[[S, Progress], T], items: Iterable[S], tell: Progress) -> Iterator[T]:
    """Give the results of some work in the order of its items, some of which are under way at once.

    The first failure ends it, and so does an interrupt: nothing new is begun, and a large file ends at its next part.
    """
    stopped = Event()

    def tell_unless_stopped(what: str, done: int, total: int) -> None:
        if stopped.is_set():
            raise _StoppedError
        tell(what, done, total)

    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="holdproof-bucket")
    results: deque[Future[T]] = deque()
    try:
        for item in items:
            # A store may have millions of files: not all of them wait in memory.
            if len(results) == _MOST_AHEAD:
                yield results.popleft().result()
            results.append(pool.submit(work, item, tell_unless_stopped))
        while results:
            yield results.popleft().result()
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)


# --- checking, listing, fetching ---------------------------------------------------------------------------------


def inspect(place: BucketPlace, *, key: str | None, tell: Progress) -> Backup:
    """Check a backup in a bucket: every file is read there, the kernel is fetched and checked here."""
    manifest, data, signature = _read(place)
    manifests.check_names(_names(place), manifest)
    here = [name for name in manifest.files if name == KERNEL or name.startswith("kernel/")]
    with tempfile.TemporaryDirectory(prefix="holdproof-backup-") as top, disk.translated(top):
        folder = Path(top)
        _fetch(place, folder, here, manifest, tell)
        _check_files(place, [name for name in manifest.files if name not in set(here)], manifest, tell)
        signer = backup_list.judge(folder, manifest, data, signature, key)
    return backup_list.backup_of(place.url, manifest, signer=signer, trust=backup_list.trust_of(key))


def list_backups(place: BucketPlace) -> list[Backup]:
    """Return the backups in a place of a bucket, the oldest first."""
    listing = place.bucket.list(place.path)
    summaries: list[Backup] = []
    for name in listing.folders:
        # While one is removed its manifest is gone, or goes now.
        if f"{name}{REMOVING}" in listing.files:
            continue
        if (summary := _summary(place.child(name))) is not None:
            summaries.append(summary)
    return sorted(summaries, key=backup_list.sort_key)


def _summary(place: BucketPlace) -> Backup | None:
    try:
        return _remembered(place)
    except NotFoundError:
        return None
    except FormatError as error:
        return backup_list.damaged(place.url, error)


def _remembered(place: BucketPlace) -> Backup:
    key = place.url, place.bucket.version(place.name_of(manifests.MANIFEST))
    summary = _SUMMARIES.get(key)
    if summary is None:
        summary = _summary_of(place)
        if len(_SUMMARIES) >= _MOST_SUMMARIES:
            _SUMMARIES.clear()
        _SUMMARIES[key] = summary
    return summary


def _summary_of(place: BucketPlace) -> Backup:
    manifest, *_ = _read(place)
    return backup_list.backup_of(place.url, manifest, signer="", trust="not checked")


@contextmanager
def fetched(
    place: BucketPlace, cache: Path, *, index: int | None, time: str | None, tell: Progress
) -> Iterator[tuple[Path, str]]:
    """Fetch a backup, or the newest one of a place up to a point; yield its folder, there during the block, and where
    it is in the bucket."""
    until = backup_list.moment(time)
    one = place.has_manifest()
    listing = [_summary_of(place)] if one else list_backups(place)
    chosen = backup_list.newest_of(listing, place.url, index=index, until=until)
    source = place if one else place.child(chosen.path.rpartition("/")[2])
    with working(source, cache) as work:
        manifest, data, signature = _read(source)
        manifests.check_names(_names(source), manifest)
        _fetch(source, work, [*manifest.files], manifest, tell)
        disk.write(work / manifests.MANIFEST, data)
        disk.write(work / manifests.SIGNATURE, signature)
        yield work, source.url


def _fetch(place: BucketPlace, folder: Path, names: list[str], manifest: Manifest, tell: Progress) -> None:
    def fetch(name: str, tell: Progress) -> tuple[str, Entry]:
        return name, place.bucket.fetch(place.name_of(name), folder / name, manifest.files[name].size, tell)

    for number, (name, entry) in enumerate(_at_once(fetch, names, tell), 1):
        manifests.check_file(name, entry, manifest)
        tell("files from the bucket", number, len(names))


def _read(place: BucketPlace) -> tuple[Manifest, bytes, bytes]:
    """Read the manifest of a backup, its exact bytes, and its signature."""
    try:
        data = place.bucket.read(place.name_of(manifests.MANIFEST), manifests.MOST_BYTES)
        signature = place.bucket.read(place.name_of(manifests.SIGNATURE), note.MAX_BYTES)
    except NotFoundError:
        raise NotFoundError(f"{place.url} is no complete backup: no manifest", path=place.url) from None
    return manifests.parse(data), data, signature


def _names(place: BucketPlace) -> set[str]:
    return {name.removeprefix(place.name_of("")) for name in place.bucket.names(place.path)}
