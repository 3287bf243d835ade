"""`vectors.json` of kgents: all vectors in one document.

Rules:
- kgents accepted vectors of any length. Those that differ from most are counted and not imported; if most differ from
  the settings, the source is not imported until they agree.
- An id that exists with the same vector is known; with another one it is a conflict.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from holdproof.db import Tx
from holdproof.errors import ConflictError, DimensionError, FormatError, InvalidInputError, MissingExtraError
from holdproof.executors import SyncExecutor
from holdproof.importers import driver
from holdproof.importers.kgents import tables
from holdproof.importers.kgents.documents import document
from holdproof.importers.kgents.source import Contents, LegacyData, Report, differs
from holdproof.storage.open_stores import OpenStores

_TEXTS: Final = tables.TABLES["embedding_metadata"]
Item = tuple[str, list[float], dict[str, Any]]


class VectorDocument(LegacyData):
    """`vectors.json`."""

    kind = "vectors"

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name)
        self._items: list[Item] = []
        self._opened: Any = None

    def read(self, report: Report) -> Contents:
        """See LegacyData."""
        contents = Contents()
        _, value = document(self.path)
        items = list(_items(self.path, value))
        lengths = Counter(len(vector) for _, vector, _ in items)
        most = lengths.most_common(1)[0][0] if lengths else 0
        self._items = []
        for id, vector, metadata in items:
            if len(vector) != most or not any(vector):
                contents.skipped["vectors of another length than most, or of zeros"] += 1
                continue
            self._items.append((id, vector, metadata))
            contents.add("vectors", json.dumps([id, vector, metadata]))
            report("read vectors", len(self._items), len(items))
        return contents

    def executor(self, stores: OpenStores) -> SyncExecutor:
        """See LegacyData."""
        self._fits(stores)
        self._opened = stores.open("vectors").held
        executor: SyncExecutor = stores.open("vectors")._executor
        return executor

    def _fits(self, stores: OpenStores) -> None:
        """Raise DimensionError before the store is opened: a new store would fix its dimensions."""
        dimensions = stores.settings.providers["vector"].dimensions
        # All of them have the same length by now.
        length = next((len(vector) for _, vector, _ in self._items), dimensions)
        if length != dimensions:
            message = (
                f"{self.path} has vectors of {length} numbers; providers.vector.dimensions is {dimensions}: set it"
            )
            raise DimensionError(message, dimensions=dimensions, length=length)

    def write(self, tx: Tx) -> Counter[str]:
        """See LegacyData."""
        check, rows = _modules()
        new = []
        dimensions = self._opened.facts.dimensions
        for id, numbers, metadata in self._items:
            vector = rows.NewVector(check.identity(id), check.vector(numbers, dimensions), check.metadata(metadata))
            existing = next(iter(rows.fetch(tx, [id])), None)
            if existing is None:
                new.append(vector)
            elif (existing.vector, existing.metadata) != (vector.vector, vector.metadata):
                raise ConflictError(f"the vector {id} exists with other values", id=id)
        # Storing a vector without a text deletes the text of its id, which `membrane.db` may have brought: put it back.
        texts = [row for vector in new if (row := tx.one(_TEXTS.select, key=vector.id)) is not None]
        rows.put_all(tx, new, key=self._opened.facts.key)
        names = [column.name for column in _TEXTS.columns]
        for row in texts:
            tables.insert_row(tx, _TEXTS, dict(zip(names, row, strict=True)))
        return Counter({"vectors": len(new)})

    def verify(self, stores: OpenStores, report: Report) -> None:
        """See LegacyData."""
        check, rows = _modules()
        executor = self.executor(stores)
        count = 0
        for batch in driver.batches(self._items):
            ids = [id for id, _, _ in batch]
            existing = {each.id: each for each in executor.read(lambda tx, i=ids: rows.fetch(tx, i))}  # type: ignore[misc]
            for id, numbers, metadata in batch:
                expected = (check.vector(numbers, len(numbers)), check.metadata(metadata))
                if id not in existing or (existing[id].vector, existing[id].metadata) != expected:
                    raise differs(f"the vector {id}")
            count += len(batch)
            report("verify vectors", count, len(self._items))


def _modules() -> tuple[Any, Any]:
    try:
        from holdproof.storage.vectors import vector_rows, vector_validation  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("vectors need numpy: pip install 'holdproof[vectors]'") from error
    return vector_validation, vector_rows


def _items(path: Path, value: Any) -> Iterator[Item]:
    """Id, vector and metadata, in any of the layouts: by id or as a list, with metadata inside or beside."""
    vectors = value.get("vectors", value) if isinstance(value, dict) else value
    beside = value.get("metadata", {}) if isinstance(value, dict) and vectors is not value else {}
    # Several layouts were in use; all of them become pairs of an id and what it names.
    pairs: list[tuple[Any, Any]]
    if isinstance(vectors, list):
        pairs = [(each.get("id"), each) for each in vectors if isinstance(each, dict)]
    elif isinstance(vectors, dict):
        pairs = [*vectors.items()]
    else:
        raise FormatError(f"{path} holds no vectors", path=str(path))
    if not isinstance(beside, dict):
        raise FormatError(f"{path}: the metadata are no mapping by id", path=str(path))
    named: set[str] = set()
    for id, each in pairs:
        # Of two vectors under one id the first would be lost without a word.
        if isinstance(id, str) and id in named:
            raise FormatError(f"{path}: {id[:100]!r} names two vectors", path=str(path))
        named.update([id] if isinstance(id, str) else ())
        vector = each.get("vector", each.get("embedding")) if isinstance(each, dict) else each
        metadata = each.get("metadata") if isinstance(each, dict) else beside.get(id)
        yield _item(path, id, vector, metadata)


def _item(path: Path, id: Any, vector: Any, metadata: Any) -> Item:
    numbers = isinstance(vector, list) and all(type(each) in (int, float) for each in vector)
    if not isinstance(id, str) or not numbers or not isinstance(metadata, dict | None):
        raise FormatError(f"{path}: {str(id)[:100]!r} is not a vector", path=str(path))
    try:
        return id, [float(each) for each in vector], metadata or {}
    except OverflowError as error:
        raise InvalidInputError(f"{path}: {id!r} has a number that is too large", path=str(path)) from error
