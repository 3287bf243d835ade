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

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from holdproof import folders
from holdproof.config import Paths
from holdproof.content import blocks, disk
from holdproof.crypto import commit as formats
from holdproof.crypto import didkey
from holdproof.crypto.car import Blocks
from holdproof.crypto.cid import CID
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
from holdproof.evidence import keys, prunings
from holdproof.memory.images import image_files
from holdproof.memory.images.image_files import MANIFEST, Manifest, Part
from holdproof.memory.images.image_view import Image
from holdproof.memory.objects import commit_chain, commits, records, snapshot_import, tree_transaction
from holdproof.memory.objects.commit_chain import ChainStep, CommitChain
from holdproof.memory.objects.commits import Note
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.model.memory import Dumped, Loaded, Snapshot
from holdproof.model.progress import Progress
from holdproof.store.context import Context

KEEP: Final = 3
_DELTAS: Final = 16
_PAGE: Final = 2_000
_TRIES: Final = 5

Verify = Literal["full", "lazy"]


def folder_of(context: Context, path: str | Path | None, ns: str) -> Path:
    """Where the images of a namespace lie."""
    if path is not None:
        return Path(path)
    if context.database.backend.facts().get("path") == MEMORY:
        raise InvalidInputError("a store in memory has no place for images: say where")
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
    signer = yield from keys.use(context, "memory")
    note = Note(author=author, message=message)
    head = yield from ask(Write(lambda tx: _settled(tx, signer, note, ns)))
    store_id, now = yield from ask(Read(_facts))
    wanted = _Wanted(context.database, folder, signer, head, store_id, now, keep, ns, progress)
    return (yield from ask(Call(lambda: _dump(wanted))))


class _Wanted(NamedTuple):
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


def _settled(tx: Tx, signer: Signer, note: Note, ns: str) -> Snapshot:
    """The newest snapshot, taken now if anything is in none."""
    if snapshot_import.unsaved(tx, ns) or commits.head(tx, ns) is None:
        return commits.create(tx, signer, note, ns=ns)
    return commits.get(tx, ns=ns)


def _dump(wanted: _Wanted) -> Dumped:
    with disk.translated(wanted.folder), disk.locked(wanted.folder / ".lock"):
        last = _last(wanted)
        path = wanted.folder / (wanted.head.rev + MANIFEST)
        if last is not None and (last.head == wanted.head.cid or _covers(wanted, last)):
            folders.sync(wanted.folder)  # it may be one whose name could not be made durable when it was written
            return Dumped(str(wanted.folder / last.name), last.head, last.rev, "nothing", 0, 0, len(last.parts))
        line, kept = _plan(wanted, last)
        kind = "delta" if kept else "base"
        before = commits.parse(last.root) if last is not None and kept else EMPTY_ROOT
        part, count = _write(wanted, line, before, kind)
        head = wanted.head
        did = didkey.encode(wanted.signer.public)
        since = last.since if last is not None and kept else commit_chain.since(line)
        parts = (*kept, part)
        made = Manifest(wanted.store_id, wanted.ns, head.cid, head.rev, head.root, did, wanted.now, parts, since)
        image_files.write_manifest(wanted.folder, made, wanted.signer)
        image_files.tidy(wanted.folder, wanted.keep, made)
        return Dumped(str(path), head.cid, head.rev, kind, part.size, count, len(made.parts))


def _last(wanted: _Wanted) -> Manifest | None:
    """The newest image of ours here whose files are there; their content is left to whoever loads it."""
    for path in image_files.manifests(wanted.folder):
        try:
            made, envelope = image_files.read_manifest(path)
            image_files.check_name(path, made)
            image_files.verify(made, envelope, [wanted.signer.public])
        except (FormatError, ImageCorruptError, NotFoundError, UnknownKeyError):
            continue
        files = [wanted.folder / part.name for part in made.parts]
        whole = all(
            file.is_file() and file.stat().st_size == part.size for file, part in zip(files, made.parts, strict=True)
        )
        if whole and (made.store_id, made.ns) == (wanted.store_id, wanted.ns):
            return made
    return None


def _covers(wanted: _Wanted, last: Manifest) -> bool:
    """Whether an image goes on from what is wanted: another dump was faster, and took a newer snapshot with it."""
    if last.rev <= wanted.head.rev:
        return False
    head, newer = commits.parse(wanted.head.cid), commits.parse(last.head)
    try:
        line = _read(wanted, lambda tx: commit_chain.back(tx, newer, ns=wanted.ns, until=head))
    except NotFoundError:  # a store that was brought back from an older copy of itself
        return False
    return bool(line) and line[0].commit.prev == head


def _plan(wanted: _Wanted, last: Manifest | None) -> tuple[list[ChainStep], tuple[Part, ...]]:
    """The commits to write, and the files that stay: none where everything is written anew."""
    head = commits.parse(wanted.head.cid)
    if last is not None and not _read(wanted, lambda tx: prunings.since(tx, "snapshots", last.made_at, ns=wanted.ns)):
        base, *deltas = last.parts
        until = commits.parse(last.head)
        line = _read(wanted, lambda tx: commit_chain.back(tx, head, ns=wanted.ns, until=until))
        small = len(deltas) < _DELTAS and sum(part.size for part in deltas) <= base.size
        if small and line and line[0].commit.prev == until:
            return line, last.parts
    return _read(wanted, lambda tx: commit_chain.back(tx, head, ns=wanted.ns)), ()


def _read(wanted: _Wanted, fn: Callable[[Tx], Any]) -> Any:
    return wanted.database.read(fn).result()


def _write(wanted: _Wanted, line: list[ChainStep], before: CID, kind: str) -> tuple[Part, int]:
    """One CAR, its blocks read a page at a time; nothing is left behind if that fails."""
    head = commits.parse(wanted.head.cid)
    pages = commit_chain.paged(wanted.database, lambda source: commit_chain.stream(source, line, before), _PAGE)
    writer = image_files.Writer(wanted.folder / f"{wanted.head.rev}.{kind}.car", head)
    count = 0
    try:
        for page in pages:
            for cid, data in page:
                writer.add(cid, data)
            count += len(page)
            if wanted.progress is not None:
                wanted.progress("image", count, 0)
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
    signer = yield from keys.use(context, "memory")
    trusted, now, known, empty = yield from ask(Read(lambda tx: _trusted(tx, did, ns)))
    seen = frozenset(known) if verify == "lazy" else frozenset()
    search = _Search(place, trusted, None if force else ns, now, seen, progress)
    looking: Call[_Found] = Call(lambda: _find(search))
    found = yield from ask(looking)
    if found.manifest is None:
        raise _none_good(place, found.aside, empty)
    if (line := found.line) is None:
        return Loaded(str(found.path), found.manifest.head, found.manifest.rev, "same", 0, 0, found.degraded)
    note = Note(message=f"image {line.head.commit.rev}")
    arrived = yield from ask(Write(lambda tx: snapshot_import.arrive(tx, line, signer, note, force=force, ns=ns)))
    return Loaded(
        str(found.path), arrived.head, arrived.rev, arrived.how, arrived.snapshots, arrived.blocks, found.degraded
    )


class _Search(NamedTuple):
    place: Path
    trusted: list[PublicKey]
    ns: str | None
    now: str
    known: frozenset[str]
    progress: Progress | None


class _Found(NamedTuple):
    """The image to load, if any is good, and what was put aside on the way."""

    path: Path | None
    manifest: Manifest | None
    line: CommitChain | None
    aside: list[str]

    @property
    def degraded(self) -> tuple[str, ...]:
        """What is not as it should be."""
        return tuple(f"an image is damaged and was put aside: {what}" for what in self.aside)


def _trusted(tx: Tx, did: str | None, ns: str) -> tuple[list[PublicKey], str, set[str], bool]:
    """Keys that may sign an image, the moment, the head that is here, and whether nothing is."""
    ring = keys.active_keys(tx, "memory")
    head = commits.head(tx, ns)
    known = {str(head)} if head is not None and not snapshot_import.unsaved(tx, ns) else set()
    named = [] if did is None else [didkey.parse(did)]
    return [*ring, *named], tx.now, known, tree_transaction.root(tx, ns) == EMPTY_ROOT


def _find(search: _Search) -> _Found:
    """The newest image that is whole; those that are not are put aside."""
    aside: list[str] = []
    for _ in range(_TRIES):
        with suppress(_GoneError):
            return _search(search, aside)
    raise UnavailableError("images come and go faster than they can be read", path=str(search.place))


class _GoneError(Exception):
    """An image was tidied away while it was looked at."""


def _search(search: _Search, aside: list[str]) -> _Found:
    paths, folder = _paths(search.place)
    strange: HoldproofError | None = None
    for path in paths:
        try:
            with _quiet_collector(), disk.translated(path):
                made, line = _open(search, folder, path)
        except (UnknownKeyError, InvalidInputError) as error:
            strange = strange or error
        except (FormatError, ImageCorruptError, NotFoundError) as error:
            if not path.exists() and path != search.place:
                raise _GoneError from error
            if isinstance(error, NotFoundError):
                raise
            aside.append(f"{_put_aside(path, error, search.now)} ({error})")
        else:
            return _Found(path, made, line, aside)
    if strange is not None and not aside:
        raise strange
    return _Found(None, None, None, aside)


def _paths(place: Path) -> tuple[list[Path], Path]:
    """The manifests at a place, the newest first, and their folder."""
    if place.is_file():
        return [place], place.parent
    paths = image_files.manifests(place)
    if not paths:
        raise NotFoundError(f"there is no image in {place}", path=str(place))
    return paths, place


def _open(search: _Search, folder: Path, path: Path) -> tuple[Manifest, CommitChain | None]:
    made = _manifest(search, path)
    if made.head in search.known:
        return made, None
    return made, check(made, gather(folder, made), search.progress)


def _manifest(search: _Search, path: Path) -> Manifest:
    """A manifest that is signed by somebody who counts, and of the namespace that is asked for."""
    made, envelope = image_files.read_manifest(path)
    if path != search.place:  # who names a file may call it what they like
        image_files.check_name(path, made)
    image_files.verify(made, envelope, search.trusted)
    if search.ns not in (None, made.ns):
        raise InvalidInputError(
            f"the image is of the namespace {made.ns}, not of {search.ns}: name that one", ns=made.ns, path=str(path)
        )
    return made


def gather(folder: Path, made: Manifest) -> Blocks:
    """All blocks of an image, each hashed."""
    held: dict[bytes, bytes] = {}
    for part in made.parts:
        held.update(image_files.read_part(folder, part).raw)
    return Blocks(held)


def check(made: Manifest, held: Blocks, progress: Progress | None = None) -> CommitChain:
    """The line of an image, whole and as its manifest says; nothing of the store is needed for it."""
    tell = None if progress is None else lambda done, total: progress("image", done, total)
    since = commits.parse(made.since) if made.since else None
    line = commit_chain.verify(commits.parse(made.head), held, lambda _: None, since=since, progress=tell)
    newest = line.head.commit
    if (newest.rev, str(newest.data)) != (made.rev, made.root):
        raise FormatError("the manifest is not what its head says", head=made.head)
    return line


def _put_aside(path: Path, error: Exception, now: str) -> Path:
    """Rename what is damaged: the file that the error names, and the manifest that relies on it."""
    named = Path(str(error.fields.get("path", path))) if isinstance(error, HoldproofError) else path
    if named != path and named.parent == path.parent:
        image_files.put_aside(named, now)
    return image_files.put_aside(path, now)


def _none_good(place: Path, aside: list[str], empty: bool) -> ImageCorruptError:
    left = "memory is EMPTY" if empty else "memory is what the store holds, untouched"
    return ImageCorruptError(
        f"no image in {place} is good ({'; '.join(aside)}): {left}", path=str(place), aside=aside, empty=empty
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
        with suppress(_GoneError), disk.translated(search.place):
            return _look_once(search, verify)
    raise UnavailableError("images come and go faster than they can be read", path=str(search.place))


def _look_once(search: _Search, verify: Verify) -> Image:
    paths, folder = _paths(search.place)
    strange: HoldproofError | None = None
    for path in paths:
        try:
            return _shown(folder, _manifest(search, path), verify)
        except (UnknownKeyError, InvalidInputError) as error:
            strange = strange or error
        except (FormatError, ImageCorruptError, NotFoundError) as error:
            if not path.exists() and path != search.place:
                raise _GoneError from error
            if "own" not in error.fields:  # a manifest under another's name hides none that has its own
                raise
            strange = strange or error
    assert strange is not None, "there was at least one"
    raise strange


def _shown(folder: Path, made: Manifest, verify: Verify) -> Image:
    if verify == "full":
        with _quiet_collector():
            held = gather(folder, made)
            check(made, held)
        return Image(made, held.get, lambda: None)
    lazy = image_files.Lazy(folder, made)
    head = blocks.held(lazy, commits.parse(made.head))
    if str(formats.parse(head).data) != made.root:
        raise FormatError("the manifest is not what its head says", head=made.head)
    return Image(made, lazy, lazy.close)


def warnings(paths: Paths) -> list[str]:
    """What is degraded: images that were put aside and not looked after yet."""
    if not paths.images.is_dir():
        return []
    found = sorted(path for path in paths.images.rglob(f"*{MANIFEST}.corrupt-*") if path.is_file())
    return [f"an image is damaged and was put aside: {path}; look at it, then remove it" for path in found]
