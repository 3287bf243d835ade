"""Images: all that is known, with its whole history, in files that load in an instant and are believed only if whole.

Rules:
- The database is the truth. A dump writes what has changed since the last one, and now and then folds everything into a
  new base; loading an image that is not whole changes nothing.
- A dump takes a snapshot first if anything changed since the last one: an image ends with a signed state.
- A load verifies every hash, every signature and that every tree is complete, then takes the state over in one
  transaction. Only keys of this store count, or the one that the caller names.
- A damaged image is renamed `.corrupt-<time>` and the newest good one is loaded; the outcome, and the store's status,
  say so. If none is good that is an error, and what the store holds stays as it is.
- An image of another namespace, or of a key that does not count here, is none of ours: it is passed over.
- What was tidied away while somebody looked is not damaged: they look again.
"""

import builtins
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from holdproof import folders, paging
from holdproof.content import blocks, disk
from holdproof.crypto import commit as formats
from holdproof.crypto import didkey
from holdproof.crypto.car import BlockMap
from holdproof.crypto.keys import PublicKey, Signer
from holdproof.crypto.mst import EMPTY_ROOT
from holdproof.db import MEMORY, Call, Database, Read, Tx, Work, Write, ask, sql
from holdproof.errors import (
    FormatError,
    HoldproofError,
    ImageCorruptError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
    UnknownKeyError,
)
from holdproof.evidence import key_use, keys, prunings
from holdproof.memory.images import image_files
from holdproof.memory.images.image_files import MANIFEST, ImageManifest, Part
from holdproof.memory.images.image_reader import Image
from holdproof.memory.objects import commit_chain, commits, records, snapshot_import, tree_transaction
from holdproof.memory.objects.commit_chain import ChainContent, ChainStep, CommitChain
from holdproof.memory.objects.commits import CommitNote
from holdproof.memory.objects.object_history import HistoryPosition
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.model.memory import Dumped, ImageFile, Loaded, Snapshot
from holdproof.model.page import Page
from holdproof.model.progress import Progress
from holdproof.store.context import Context

KEEP: Final = 3
_DELTAS: Final = 16
_PAGE: Final = 2_000
_TRIES: Final = 5

Verify = Literal["full", "lazy"]


def folder_of(context: Context, path: str | Path | None, ns: str) -> Path:
    """Return where the images of a namespace lie."""
    if path is not None:
        return Path(path)
    if context.database.backend.facts().get("path") == MEMORY:
        raise InvalidInputError("a store in memory has no place for images: say where")
    # A namespace may hold any character and be long: its key is safe as a folder's name, else its hash is.
    name = records.key_of(ns)
    return context.paths.images / (name if len(name) <= 100 else "~" + sha256(ns.encode()).hexdigest())


# --- dumping -----------------------------------------------------------------------------------------------------


def dump(
    context: Context,
    path: str | Path | None = None,
    *,
    message: str = "image",
    author: str = "",
    keep: int = KEEP,
    ns: str = MAIN,
    progress: Progress | None = None,
) -> Work[Dumped]:
    """Write an image of all objects and their history; only what changed since the last one, if there is one."""
    if keep < 1:
        raise InvalidInputError("at least one image is kept", keep=keep)
    folder = folder_of(context, path, ns)
    signer = yield from key_use.use(context, "memory")
    note = CommitNote(author=author, message=message)
    # The snapshot is its own transaction: writing files may take long, and nobody waits for it.
    head = yield from ask(Write(lambda tx: snapshot_import.ensure_snapshot(tx, signer, note, ns)))
    store_id, now = yield from ask(Read(_facts))
    job = _DumpJob(context.database, folder, signer, head, store_id, now, keep, ns, progress)
    return (yield from ask(Call(lambda: _dump(job))))


class _DumpJob(NamedTuple):
    """An image to be written."""

    database: Database
    folder: Path
    signer: Signer
    head: Snapshot
    store_id: str
    now: str
    keep: int
    ns: str
    progress: Progress | None


_STORE = sql("SELECT value FROM store_facts WHERE key = 'store_id'")


def _facts(tx: Tx) -> tuple[str, str]:
    [(store_id,)] = tx.all(_STORE)
    return store_id, tx.now


def _dump(job: _DumpJob) -> Dumped:
    # One dump at a time in a folder: two processes would tidy each other's files away.
    with disk.translated(job.folder), disk.locked(job.folder / ".lock"):
        last = _last(job)
        path = job.folder / (job.head.rev + MANIFEST)
        if last is not None and (last.head == job.head.cid or _covers(job, last)):
            folders.sync(job.folder)  # it may be one whose name could not be made durable when it was written
            return Dumped(str(job.folder / last.name), last.head, last.rev, "nothing", 0, 0, len(last.parts))
        line, old_parts = _plan(job, last)
        kind = "delta" if old_parts else "base"
        before = commits.parse(last.root) if last is not None and old_parts else EMPTY_ROOT
        after = _history(job, last.head).entries if last is not None and old_parts else 0
        part, count = _write(job, ChainContent(line, before, _history(job, job.head.cid), after), kind)
        head = job.head
        did = didkey.encode(job.signer.public)
        since = last.since if last is not None and old_parts else commit_chain.since(line)
        parts = (*old_parts, part)
        manifest = ImageManifest(job.store_id, job.ns, head.cid, head.rev, head.root, did, job.now, parts, since)
        image_files.write_manifest(job.folder, manifest, job.signer)
        image_files.tidy(job.folder, job.keep, manifest)
        return Dumped(str(path), head.cid, head.rev, kind, part.size, count, len(manifest.parts))


def _last(job: _DumpJob) -> ImageManifest | None:
    """Return the newest image of ours here whose files are there; their content is checked when it is loaded."""
    for path in image_files.manifests(job.folder):
        try:
            manifest, envelope = image_files.read_manifest(path)
            image_files.check_name(path, manifest)
            image_files.verify(manifest, envelope, [job.signer.public])
        except (FormatError, ImageCorruptError, NotFoundError, UnknownKeyError):
            continue
        files = [job.folder / part.name for part in manifest.parts]
        whole = all(
            file.is_file() and file.stat().st_size == part.size
            for file, part in zip(files, manifest.parts, strict=True)
        )
        if whole and (manifest.store_id, manifest.ns) == (job.store_id, job.ns):
            return manifest
    return None


def _covers(job: _DumpJob, last: ImageManifest) -> bool:
    """Whether an image goes on from what is wanted: another dump was faster, and took a newer snapshot with it."""
    # Only an image with a newer head can contain this one.
    if last.rev <= job.head.rev:
        return False
    head = commits.parse(job.head.cid)
    newer = commits.parse(last.head)
    try:
        line = _read(job, lambda tx: commit_chain.back(tx, newer, ns=job.ns, until=head))
    except NotFoundError:  # a store that was brought back from an older copy of itself
        return False
    return bool(line) and line[0].commit.prev == head


def _plan(job: _DumpJob, last: ImageManifest | None) -> tuple[builtins.list[ChainStep], tuple[Part, ...]]:
    """Return the commits to write, and the files that stay: none where everything is written anew."""
    head = commits.parse(job.head.cid)
    if last is not None and not _read(job, lambda tx: prunings.since(tx, "snapshots", last.made_at, ns=job.ns)):
        base, *deltas = last.parts
        until = commits.parse(last.head)
        line = _read(job, lambda tx: commit_chain.back(tx, head, ns=job.ns, until=until))
        # Loading reads every part, so deltas are folded into a new base before they outweigh it.
        small = len(deltas) < _DELTAS and sum(part.size for part in deltas) <= base.size
        if small and line and line[0].commit.prev == until:
            return line, last.parts
    return _read(job, lambda tx: commit_chain.back(tx, head, ns=job.ns)), ()


def _read(job: _DumpJob, fn: Callable[[Tx], Any]) -> Any:
    return job.database.read(fn).result()


def _history(job: _DumpJob, snapshot: str) -> HistoryPosition:
    position: HistoryPosition = _read(job, lambda tx: commits.history_of(tx, commits.parse(snapshot), ns=job.ns))
    return position


def _write(job: _DumpJob, content: ChainContent, kind: str) -> tuple[Part, int]:
    """One CAR, its blocks read a page at a time; nothing is left behind if that fails."""
    head = commits.parse(job.head.cid)
    pages = commit_chain.paged(job.database, lambda source: content.blocks(source, job.ns), _PAGE)
    writer = image_files.Writer(job.folder / f"{job.head.rev}.{kind}.car", head)
    count = 0
    try:
        for page in pages:
            for cid, data in page:
                writer.add(cid, data)
            count += len(page)
            if job.progress is not None:
                job.progress("image", count, 0)
        return writer.finish(head), count
    except BaseException:
        writer.abandon()
        raise


# --- loading -----------------------------------------------------------------------------------------------------


def load(
    context: Context,
    path: str | Path | None = None,
    *,
    verify: Verify = "full",
    force: bool = False,
    did: str | None = None,
    ns: str = MAIN,
    progress: Progress | None = None,
) -> Work[Loaded]:
    """Take the newest good image over, or the one whose manifest is named; `did` is the key of another store's image.

    With `lazy` an image whose head the store has already is believed for its signature alone.
    """
    if verify not in ("full", "lazy"):
        raise InvalidInputError("an image is verified `full` or `lazy`", verify=verify)
    place = folder_of(context, path, ns)
    signer = yield from key_use.use(context, "memory")
    trusted, now, heads, empty = yield from ask(Read(lambda tx: _trusted(tx, did, ns)))
    current_heads = frozenset(heads) if verify == "lazy" else frozenset()
    search = _Search(place, trusted, None if force else ns, now, current_heads, progress)
    looking: Call[_Choice] = Call(lambda: _find(search))
    choice = yield from ask(looking)
    if choice.manifest is None:
        raise _none_good(place, choice.aside, empty)
    if (line := choice.line) is None:
        return Loaded(str(choice.path), choice.manifest.head, choice.manifest.rev, "same", 0, 0, choice.degraded)
    note = CommitNote(message=f"image {line.head.commit.rev}")
    imported = yield from ask(
        Write(lambda tx: snapshot_import.import_chain(tx, line, signer, note, force=force, ns=ns))
    )
    return Loaded(
        str(choice.path),
        imported.head,
        imported.rev,
        imported.how,
        imported.snapshots,
        imported.blocks,
        choice.degraded,
    )


class _Search(NamedTuple):
    place: Path
    trusted: builtins.list[PublicKey]
    ns: str | None
    now: str
    current_heads: frozenset[str]
    progress: Progress | None


class _Choice(NamedTuple):
    """The image to load, if any is good, and what was put aside on the way."""

    path: Path | None
    manifest: ImageManifest | None
    line: CommitChain | None
    aside: builtins.list[str]

    @property
    def degraded(self) -> tuple[str, ...]:
        """What is not as it should be."""
        return tuple(f"an image is damaged and was put aside: {what}" for what in self.aside)


def _trusted(tx: Tx, did: str | None, ns: str) -> tuple[builtins.list[PublicKey], str, set[str], bool]:
    """Keys that may sign an image, the moment, the head that is here, and whether nothing is."""
    ring = keys.active_keys(tx, "memory")
    head = commits.head(tx, ns)
    heads = {str(head)} if head is not None and not snapshot_import.unsaved(tx, ns) else set()
    named = [] if did is None else [didkey.parse(did)]
    return [*ring, *named], tx.now, heads, tree_transaction.root(tx, ns) == EMPTY_ROOT


def _find(search: _Search) -> _Choice:
    """Return the newest image that is whole; those that are not are put aside."""
    aside: builtins.list[str] = []
    for _ in range(_TRIES):
        with suppress(_VanishedError):
            return _search(search, aside)
    raise UnavailableError("images come and go faster than they can be read", path=str(search.place))


class _VanishedError(Exception):
    """An image was tidied away while it was looked at."""


def _search(search: _Search, aside: builtins.list[str]) -> _Choice:
    paths, folder = _paths(search.place)
    strange: HoldproofError | None = None
    for path in paths:
        try:
            with _quiet_collector(), disk.translated(path):
                manifest, line = _open(search, folder, path)
        except (UnknownKeyError, InvalidInputError) as error:
            strange = strange or error
        except (FormatError, ImageCorruptError, NotFoundError) as error:
            # A concurrent dump tidied it away while it was read: that is no damage, look again.
            if not path.exists() and path != search.place:
                raise _VanishedError from error
            if isinstance(error, NotFoundError):
                raise
            # Damage is never skipped in silence: the file is renamed, and the outcome names it.
            aside.append(f"{_put_aside(path, error, search.now)} ({error})")
        else:
            return _Choice(path, manifest, line, aside)
    # Nothing here is ours: say whose it is, rather than that there is no image.
    if strange is not None and not aside:
        raise strange
    return _Choice(None, None, None, aside)


def _paths(place: Path) -> tuple[builtins.list[Path], Path]:
    """Return the manifests at a place, the newest first, and their folder."""
    if place.is_file():
        return [place], place.parent
    paths = image_files.manifests(place)
    if not paths:
        raise NotFoundError(f"there is no image in {place}", path=str(place))
    return paths, place


def _open(search: _Search, folder: Path, path: Path) -> tuple[ImageManifest, CommitChain | None]:
    manifest = _manifest(search, path)
    if manifest.head in search.current_heads:
        return manifest, None
    return manifest, check(manifest, gather(folder, manifest), search.progress)


def _manifest(search: _Search, path: Path) -> ImageManifest:
    """Return a manifest that is signed by somebody who counts, and of the namespace that is asked for."""
    manifest, envelope = image_files.read_manifest(path)
    if path != search.place:  # who names a file may call it what they like
        image_files.check_name(path, manifest)
    image_files.verify(manifest, envelope, search.trusted)
    if search.ns not in (None, manifest.ns):
        raise InvalidInputError(
            f"the image is of the namespace {manifest.ns}, not of {search.ns}: name that one",
            ns=manifest.ns,
            path=str(path),
        )
    return manifest


def gather(folder: Path, manifest: ImageManifest) -> BlockMap:
    """Return all blocks of an image, each hashed."""
    contents: dict[bytes, bytes] = {}
    for part in manifest.parts:
        contents.update(image_files.read_part(folder, part).raw)
    return BlockMap(contents)


def check(manifest: ImageManifest, contents: BlockMap, progress: Progress | None = None) -> CommitChain:
    """Return the line of an image, whole and as its manifest says; nothing of the store is needed for it."""
    tell = None if progress is None else lambda done, total: progress("image", done, total)
    since = commits.parse(manifest.since) if manifest.since else None
    line = commit_chain.verify(commits.parse(manifest.head), contents, lambda _: None, since=since, progress=tell)
    newest = line.head.commit
    if (newest.rev, str(newest.data)) != (manifest.rev, manifest.root):
        raise FormatError("the manifest is not what its head says", head=manifest.head)
    return line


def _put_aside(path: Path, error: Exception, now: str) -> Path:
    """Rename what is damaged: the file that the error names, and the manifest that relies on it."""
    named = Path(str(error.fields.get("path", path))) if isinstance(error, HoldproofError) else path
    if named != path and named.parent == path.parent:
        image_files.put_aside(named, now)
    return image_files.put_aside(path, now)


def _none_good(place: Path, aside: builtins.list[str], empty: bool) -> ImageCorruptError:
    state = "memory is EMPTY" if empty else "memory is what the store holds, untouched"
    return ImageCorruptError(
        f"no image in {place} is good ({'; '.join(aside)}): {state}", path=str(place), aside=aside, empty=empty
    )


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """No garbage collection while a hundred thousand objects are made that all stay: it would take half the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


# --- looking inside ----------------------------------------------------------------------------------------------


def open(
    context: Context, path: str | Path | None = None, *, verify: Verify = "lazy", did: str | None = None, ns: str = MAIN
) -> Work[Image]:
    """The newest image as it lies there, to read from without loading it; close it, or use it as a context manager."""
    if verify not in ("full", "lazy"):
        raise InvalidInputError("an image is verified `full` or `lazy`", verify=verify)
    place = folder_of(context, path, ns)
    trusted, now, *_ = yield from ask(Read(lambda tx: _trusted(tx, did, ns)))
    search = _Search(place, trusted, ns, now, frozenset(), None)
    return (yield from ask(Call(lambda: _look(search, verify))))


def _look(search: _Search, verify: Verify) -> Image:
    for _ in range(_TRIES):
        with suppress(_VanishedError), disk.translated(search.place):
            return _look_once(search, verify)
    raise UnavailableError("images come and go faster than they can be read", path=str(search.place))


def _look_once(search: _Search, verify: Verify) -> Image:
    paths, folder = _paths(search.place)
    strange: HoldproofError | None = None
    for path in paths:
        try:
            return _open_image(folder, _manifest(search, path), verify)
        except (UnknownKeyError, InvalidInputError) as error:
            strange = strange or error
        except (FormatError, ImageCorruptError, NotFoundError) as error:
            if not path.exists() and path != search.place:
                raise _VanishedError from error
            if "own" not in error.fields:  # a manifest under another's name hides none that has its own
                raise
            strange = strange or error
    assert strange is not None, "there was at least one"
    raise strange


def _open_image(folder: Path, manifest: ImageManifest, verify: Verify) -> Image:
    if verify == "full":
        with _quiet_collector():
            contents = gather(folder, manifest)
            check(manifest, contents)
        return Image(manifest, contents.get, lambda: None)
    lazy = image_files.LazyBlocks(folder, manifest)
    head = blocks.require(lazy, commits.parse(manifest.head))
    if str(formats.parse(head).data) != manifest.root:
        raise FormatError("the manifest is not what its head says", head=manifest.head)
    return Image(manifest, lazy, lazy.close)


def list(context: Context, *, cursor: str | None = None, limit: int = 100, ns: str = MAIN) -> Work[Page[ImageFile]]:
    """List the images in a namespace's folder, the newest first, as their manifests describe them."""
    (before,) = paging.decode(cursor, "")
    paging.fetch(limit)  # refused before anything is read
    if context.database.backend.facts().get("path") == MEMORY:
        return Page([])
    folder = folder_of(context, None, ns)
    return (yield from ask(Call(lambda: _list(folder, before, limit))))


def _list(folder: Path, before: str, limit: int) -> Page[ImageFile]:
    # Names begin with the rev, so their order is that of time, and the sort key is simply the name.
    paths = [path for path in image_files.manifests(folder) if not before or path.name < before]
    return paging.page(map(_describe, paths[: paging.fetch(limit)]), limit, lambda image: (image.name,))


def _describe(path: Path) -> ImageFile:
    try:
        manifest, _ = image_files.read_manifest(path)
    except (HoldproofError, OSError) as error:
        return ImageFile(path.name, "", "", "", 0, 0, str(error))
    size = sum(part.size for part in manifest.parts)
    return ImageFile(path.name, manifest.head, manifest.rev, manifest.made_at, len(manifest.parts), size, None)
