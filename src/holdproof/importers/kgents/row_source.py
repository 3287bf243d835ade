"""`RowSource`: a source that becomes rows of application tables, blobs, and files in the cache; most sources are.

Rules:
- Bytes are stored first, then all rows are written in one transaction, those of blobs too.
- A blob that exists with the same bytes is known; one with other bytes is a conflict, never overwritten.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from holdproof import folders
from holdproof.content import disk
from holdproof.db import Tx
from holdproof.errors import BusyError, ConflictError, FormatError
from holdproof.executors import SyncExecutor
from holdproof.importers import driver
from holdproof.importers.kgents import files, tables
from holdproof.importers.kgents.files import SourceFile
from holdproof.importers.kgents.source import Contents, LegacyData, Report, differs
from holdproof.importers.kgents.tables import TABLES, Row
from holdproof.storage.blobs import BlobStoreConfig, blob_rows
from holdproof.storage.blobs.blob_rows import StoredBytes
from holdproof.storage.blobs.bodies import Body, Intake
from holdproof.storage.blobs.writing import store_bytes
from holdproof.storage.open_stores import OpenStores

Rows = Iterable[tuple[str, Row]]
_TRIES: Final = 12


class RowSource(LegacyData):
    """Rows, blobs and cached files of one source; subclasses yield them."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name)
        self._files: list[SourceFile] = []
        self._cached: list[SourceFile] = []
        self._stored: dict[str, tuple[StoredBytes, bytes | None]] = {}

    # --- for subclasses -----------------------------------------------------------------------------------

    def rows(self, contents: Contents) -> Rows:
        """Table and row of each record, read anew each time; parents before their children."""
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

    def read(self, report: Report) -> Contents:
        """See LegacyData."""
        contents = Contents()
        for number, (table, row) in enumerate(self.rows(contents), 1):
            contents.add(table, json.dumps(row))
            report("read rows", number, 0)
        self._files = []
        self._cached = []
        for path, key, content_type in self.blobs(contents):
            file = files.hashed(path, key, content_type)
            self._files.append(file)
            contents.add("blobs", f"{file.key}\0{file.size}\0{file.sha256}")
            report("read files", len(self._files), 0)
        for path, name in self.cached():
            file = files.hashed(path, name)
            self._cached.append(file)
            contents.add("cached", f"{file.key}\0{file.sha256}")
        # Two names that differ only in what a key cannot hold would overwrite each other.
        if len({file.key for file in self._files}) < len(self._files):
            raise FormatError(f"{self.path} has two files with the same key", path=str(self.path))
        return contents

    def executor(self, stores: OpenStores) -> SyncExecutor:
        """See LegacyData."""
        executor: SyncExecutor = stores.open("relational").held
        return executor

    def prepare(self, stores: OpenStores, report: Report) -> None:
        """See LegacyData."""
        for file in self._cached:
            _cache(file, stores.paths.cache / "legacy")
        if self._files:
            blobs = stores.open("blobs")
            self._conflicts(blobs)
            for number, file in enumerate(self._files, 1):
                if file.key not in self._stored:
                    self._stored[file.key] = _store(self.executor(stores), blobs.held, file)
                report("keep files", number, len(self._files))

    def _conflicts(self, blobs: Any) -> None:
        """Raise ConflictError if a key has other bytes, before anything is stored."""
        for file in self._files:
            existing = blobs.stat(file.key)
            if existing is not None and existing.sha256 != file.sha256:
                raise _conflict(file.key)

    def write(self, tx: Tx) -> Counter[str]:
        """See LegacyData."""
        moved: Counter[str] = Counter()
        for table, row in self.rows(Contents()):
            moved[table] += tables.insert_row(tx, TABLES[table], row)
        for file in self._files:
            moved["blobs"] += self._enter(tx, file)
        moved["cached"] = len(self._cached)
        return +moved

    def _enter(self, tx: Tx, file: SourceFile) -> bool:
        existing = blob_rows.stat(tx, file.key)
        if existing is not None:
            if existing.sha256 != file.sha256:
                raise _conflict(file.key)
            return False
        stored, data = self._stored[file.key]
        body = Body(file.size, file.sha256, data)
        entered, _ = blob_rows.enter(tx, file.key, body, file.content_type, stored)
        if not entered:
            # The transaction is rolled back, and the driver stores the bytes again.
            raise DoomedError(file.key)
        return True

    def forget(self, key: str) -> None:
        """Have the bytes of a key stored again: they were swept before their row was written."""
        self._stored.pop(key, None)

    def verify(self, stores: OpenStores, report: Report) -> None:
        """See LegacyData."""
        executor = self.executor(stores)
        count = 0
        for batch in driver.batches(self.rows(Contents())):
            wrong = executor.read(lambda tx, b=batch: _wrong(tx, b))  # type: ignore[misc]
            if wrong:
                raise differs(wrong)
            count += len(batch)
            report("verify rows", count, 0)
        if self._files:
            self._verify_blobs(stores.open("blobs"), report)
        for file in self._cached:
            if disk.entry(stores.paths.cache / "legacy" / file.key).sha256 != file.sha256:
                raise differs(f"the cached file {file.key}")

    def _verify_blobs(self, blobs: Any, report: Report) -> None:
        for number, file in enumerate(self._files, 1):
            existing = blobs.stat(file.key)
            if existing is None or (existing.size, existing.sha256) != (file.size, file.sha256):
                raise differs(f"the blob {file.key}")
            for _ in blobs.open_read(file.key):
                pass
            report("verify files", number, len(self._files))


class DoomedError(Exception):
    """Bytes were swept between storing them and writing their row."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _conflict(key: str) -> ConflictError:
    return ConflictError(f"the blob {key} exists with other bytes", key=key)


def _wrong(tx: Tx, batch: list[tuple[str, Row]]) -> str:
    for table, row in batch:
        if not tables.same(tx, TABLES[table], row):
            return f"{table} {row[TABLES[table].key]}"
    return ""


def _store(executor: SyncExecutor, config: BlobStoreConfig, file: SourceFile) -> tuple[StoredBytes, bytes | None]:
    """Put the bytes of a file to their place, durably and in pieces."""
    intake = Intake(0, config.spool)
    try:
        for piece in files.pieces(file.path):
            if intake.add(piece):
                intake.flush()
        body = intake.finish()
        if (body.size, body.sha256) != (file.size, file.sha256):
            raise FormatError(f"{file.path} changed while it was read", path=str(file.path))
        if body.data is not None:  # it is empty
            return StoredBytes(), body.data
        return _store_outside(executor, config.backend, body), None
    finally:
        intake.drop()


def _store_outside(executor: SyncExecutor, place: Any, body: Body) -> StoredBytes:
    for _ in range(_TRIES):
        stored = executor.run(store_bytes(place, body))
        if stored is not None:
            return stored
    raise BusyError(
        f"equal bytes are being removed from {place.kind} again and again; run this again later", place=place.kind
    )


def _cache(file: SourceFile, folder: Path) -> None:
    """Copy a file to the cache; an existing equal one stays, a different one is a conflict."""
    target = folder / file.key
    with disk.translated(target):
        if target.exists():
            if disk.entry(target).sha256 != file.sha256:
                raise ConflictError(f"{target} exists with other bytes", path=str(target))
            return
        folders.make(folder)
        temporary = target.with_name(f".{target.name}.new")
        with open(temporary, "wb", opener=disk.private) as copy:
            for piece in files.pieces(file.path):
                copy.write(piece)
            copy.flush()
            os.fsync(copy.fileno())
        temporary.replace(target)
        folders.sync(folder)
