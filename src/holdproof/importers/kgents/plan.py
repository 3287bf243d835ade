"""A source that becomes rows of the membrane, blobs, and files of the cache: most of them are this.

Rules:
- Bytes are put to their place first, in pieces, then all rows are written by one transaction, those of blobs too.
- A blob that is there already with the same bytes is known; one with other bytes is a conflict, never overwritten.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from holdproof import folders
from holdproof.content import disk
from holdproof.db import Tx
from holdproof.errors import BusyError, ConflictError, FormatError
from holdproof.executors import SyncExecutor
from holdproof.importers.kgents import files, tables
from holdproof.importers.kgents.files import Found
from holdproof.importers.kgents.source import Contents, Source, Tell, differs
from holdproof.importers.kgents.tables import TABLES, Row
from holdproof.storage.blobs import BlobStoreConfig, blob_rows
from holdproof.storage.blobs.blob_rows import Kept
from holdproof.storage.blobs.bodies import Body, Intake
from holdproof.storage.blobs.writing import placed
from holdproof.storage.lazy_stores import LazyStores

Rows = Iterable[tuple[str, Row]]
_BATCH: Final = 200
_TRIES: Final = 12


class Plan(Source):
    """Rows, blobs and cached files of one source; subclasses say which."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name)
        self._files: list[Found] = []
        self._cached: list[Found] = []
        self._kept: dict[str, tuple[Kept, bytes | None]] = {}

    # --- what subclasses say -----------------------------------------------------------------------------------

    def rows(self, contents: Contents) -> Rows:
        """Table and row of everything that becomes one, read anew each time; parents before their children."""
        del contents
        return ()

    def blobs(self, contents: Contents) -> Iterator[tuple[Path, str, str | None]]:
        """File, key and content type of everything that becomes a blob."""
        del contents
        yield from ()

    def cached(self) -> Iterator[tuple[Path, str]]:
        """File and name of everything that goes to the cache."""
        yield from ()

    # --- the steps ---------------------------------------------------------------------------------------------

    def read(self, tell: Tell) -> Contents:
        """See Source."""
        contents = Contents()
        for number, (table, row) in enumerate(self.rows(contents), 1):
            contents.add(table, json.dumps(row))
            tell("read rows", number, 0)
        self._files, self._cached = [], []
        for path, key, content_type in self.blobs(contents):
            found = files.hashed(path, key, content_type)
            self._files.append(found)
            contents.add("blobs", f"{found.key}\0{found.size}\0{found.sha256}")
            tell("read files", len(self._files), 0)
        for path, name in self.cached():
            found = files.hashed(path, name)
            self._cached.append(found)
            contents.add("cached", f"{found.key}\0{found.sha256}")
        if len({found.key for found in self._files}) < len(self._files):
            raise FormatError(f"{self.path} has two files for one key", path=str(self.path))
        return contents

    def face(self, stores: LazyStores) -> SyncExecutor:
        """See Source."""
        held: SyncExecutor = stores.open("relational").held
        return held

    def prepare(self, stores: LazyStores, tell: Tell) -> None:
        """See Source."""
        for found in self._cached:
            _cache(found, stores.paths.cache / "legacy")
        if self._files:
            blobs = stores.open("blobs")
            self._conflicts(blobs)
            for number, found in enumerate(self._files, 1):
                if found.key not in self._kept:
                    self._kept[found.key] = _keep(self.face(stores), blobs.held, found)
                tell("keep files", number, len(self._files))

    def _conflicts(self, blobs: Any) -> None:
        """Before any byte is kept: whether a key has other bytes."""
        for found in self._files:
            there = blobs.stat(found.key)
            if there is not None and there.sha256 != found.sha256:
                raise _taken(found.key)

    def write(self, tx: Tx) -> Counter[str]:
        """See Source."""
        moved: Counter[str] = Counter()
        for table, row in self.rows(Contents()):
            moved[table] += tables.take(tx, TABLES[table], row)
        for found in self._files:
            moved["blobs"] += self._enter(tx, found)
        moved["cached"] = len(self._cached)
        return +moved

    def _enter(self, tx: Tx, found: Found) -> bool:
        there = blob_rows.stat(tx, found.key)
        if there is not None:
            if there.sha256 != found.sha256:
                raise _taken(found.key)
            return False
        kept, data = self._kept[found.key]
        body = Body(found.size, found.sha256, data)
        entered, _ = blob_rows.enter(tx, found.key, body, found.content_type, kept)
        if not entered:
            raise DoomedError(found.key)
        return True

    def forget(self, key: str) -> None:
        """Bytes that were swept before their row was written have to be kept anew."""
        self._kept.pop(key, None)

    def verify(self, stores: LazyStores, tell: Tell) -> None:
        """See Source."""
        walk, face, done = iter(self.rows(Contents())), self.face(stores), 0
        while batch := list(islice(walk, _BATCH)):
            wrong = face.read(lambda tx, b=batch: _wrong(tx, b))  # type: ignore[misc]
            if wrong:
                raise differs(wrong)
            done += len(batch)
            tell("verify rows", done, 0)
        if self._files:
            self._verify_blobs(stores.open("blobs"), tell)
        for found in self._cached:
            if disk.entry(stores.paths.cache / "legacy" / found.key).sha256 != found.sha256:
                raise differs(f"the cached file {found.key}")

    def _verify_blobs(self, blobs: Any, tell: Tell) -> None:
        for number, found in enumerate(self._files, 1):
            there = blobs.stat(found.key)
            if there is None or (there.size, there.sha256) != (found.size, found.sha256):
                raise differs(f"the blob {found.key}")
            for _ in blobs.open_read(found.key):
                pass
            tell("verify files", number, len(self._files))


class DoomedError(Exception):
    """Bytes were swept between keeping them and writing their row."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _taken(key: str) -> ConflictError:
    return ConflictError(f"there is a blob {key} already, with other bytes", key=key)


def _wrong(tx: Tx, batch: list[tuple[str, Row]]) -> str:
    for table, row in batch:
        if not tables.same(tx, TABLES[table], row):
            return f"{table} {row[TABLES[table].key]}"
    return ""


def _keep(face: SyncExecutor, shelf: BlobStoreConfig, found: Found) -> tuple[Kept, bytes | None]:
    """Put the bytes of a file to their place, durably and in pieces."""
    intake = Intake(0, shelf.spool)
    try:
        for piece in files.pieces(found.path):
            if intake.add(piece):
                intake.flush()
        body = intake.finish()
        if (body.size, body.sha256) != (found.size, found.sha256):
            raise FormatError(f"{found.path} changed while it was read", path=str(found.path))
        if body.data is not None:  # it is empty
            return Kept(), body.data
        return _placed(face, shelf.place, body), None
    finally:
        intake.drop()


def _placed(face: SyncExecutor, place: Any, body: Body) -> Kept:
    for _ in range(_TRIES):
        kept = face.run(placed(place, body))
        if kept is not None:
            return kept
    raise BusyError(f"equal bytes are being removed from {place.kind} all the time", place=place.kind)


def _cache(found: Found, folder: Path) -> None:
    """Copy a file to the cache; one that is there as it is stays, another one is a conflict."""
    target = folder / found.key
    with disk.translated(target):
        if target.exists():
            if disk.entry(target).sha256 != found.sha256:
                raise ConflictError(f"{target} is there already, with other bytes", path=str(target))
            return
        folders.make(folder)
        aside = target.with_name(f".{target.name}.new")
        with open(aside, "wb", opener=disk.private) as file:
            for piece in files.pieces(found.path):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(target)
        folders.sync(folder)
