"""`vectors.json` of kgents: all vectors in one document.

Rules:
- Vectors of another length were accepted there. Those that differ from most are counted and left; if most differ from
  what the settings say, the whole source waits until they agree.
- An id that is there already with the same vector is known; with another one it is a conflict.
"""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from holdproof.db import Tx
from holdproof.errors import ConflictError, DimensionError, FormatError, InvalidInputError, MissingExtraError
from holdproof.executors import SyncExecutor
from holdproof.importers.kgents import tables
from holdproof.importers.kgents.documents import document
from holdproof.importers.kgents.source import Contents, Source, Tell, differs
from holdproof.storage.lazy_stores import LazyStores

_BATCH: Final = 200
_SAID: Final = tables.TABLES["embedding_metadata"]
Item = tuple[str, list[float], dict[str, Any]]


class Vectors(Source):
    """`vectors.json`."""

    kind = "vectors"

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name)
        self._items: list[Item] = []
        self._opened: Any = None

    def read(self, tell: Tell) -> Contents:
        """See Source."""
        contents = Contents()
        items = list(_items(self.path, document(self.path)[1]))
        lengths = Counter(len(vector) for _, vector, _ in items)
        most = lengths.most_common(1)[0][0] if lengths else 0
        self._items = []
        for id, vector, metadata in items:
            if len(vector) != most or not any(vector):
                contents.skipped["vectors of another length than most, or of zeros"] += 1
                continue
            self._items.append((id, vector, metadata))
            contents.add("vectors", json.dumps([id, vector, metadata]))
            tell("read vectors", len(self._items), len(items))
        return contents

    def face(self, stores: LazyStores) -> SyncExecutor:
        """See Source."""
        self._fits(stores)
        self._opened = stores.open("vectors").held
        face: SyncExecutor = stores.open("vectors")._face
        return face

    def _fits(self, stores: LazyStores) -> None:
        """Before the store is opened, since a new one settles on a length."""
        wanted = stores.settings.providers["vector"].dimensions
        if self._items and len(self._items[0][1]) != wanted:
            length = len(self._items[0][1])
            message = f"{self.path} has vectors of {length} numbers: set providers.vector.dimensions, which is {wanted}"
            raise DimensionError(message, dimensions=wanted, length=length)

    def write(self, tx: Tx) -> Counter[str]:
        """See Source."""
        given, rows = _parts()
        fresh, dimensions = [], self._opened.facts.dimensions
        for id, vector, metadata in self._items:
            kept = rows.Vector(given.identity(id), given.vector(vector, dimensions), given.metadata(metadata))
            there = rows.fetch(tx, [id])
            if not there:
                fresh.append(kept)
            elif (there[0].vector, there[0].metadata) != (kept.vector, kept.metadata):
                raise ConflictError(f"there is a vector {id} already, and it is another", id=id)
        said = [row for vector in fresh if (row := tx.one(_SAID.select, key=vector.id)) is not None]
        rows.put_all(tx, fresh, key=self._opened.facts.key)
        names = [column.name for column in _SAID.columns]
        for row in said:  # a vector without a text takes away what is said of the one before it
            tables.take(tx, _SAID, dict(zip(names, row, strict=True)))
        return Counter({"vectors": len(fresh)})

    def verify(self, stores: LazyStores, tell: Tell) -> None:
        """See Source."""
        given, rows = _parts()
        walk, face, done = iter(self._items), self.face(stores), 0
        while batch := list(islice(walk, _BATCH)):
            ids = [id for id, _, _ in batch]
            there = {each.id: each for each in face.read(lambda tx, i=ids: rows.fetch(tx, i))}  # type: ignore[misc]
            for id, vector, metadata in batch:
                kept = (given.vector(vector, len(vector)), given.metadata(metadata))
                if id not in there or (there[id].vector, there[id].metadata) != kept:
                    raise differs(f"the vector {id}")
            done += len(batch)
            tell("verify vectors", done, len(self._items))


def _parts() -> tuple[Any, Any]:
    try:
        from holdproof.storage.vectors import vector_rows, vector_validation  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("vectors need numpy: pip install 'holdproof[vectors]'") from error
    return vector_validation, vector_rows


def _items(path: Path, said: Any) -> Iterator[Item]:
    """Id, vector and metadata, however they are laid out: by id or as a list, with metadata inside or beside."""
    vectors = said.get("vectors", said) if isinstance(said, dict) else said
    beside = said.get("metadata", {}) if isinstance(said, dict) and vectors is not said else {}
    if isinstance(vectors, list):
        vectors = {each.get("id"): each for each in vectors if isinstance(each, dict)}
    if not isinstance(vectors, dict):
        raise FormatError(f"{path} holds no vectors", path=str(path))
    for id, each in vectors.items():
        vector = each.get("vector", each.get("embedding")) if isinstance(each, dict) else each
        metadata = each.get("metadata") if isinstance(each, dict) else beside.get(id)
        yield _item(path, id, vector, metadata)


def _item(path: Path, id: Any, vector: Any, metadata: Any) -> Item:
    numbers = isinstance(vector, list) and all(type(each) in (int, float) for each in vector)
    if not isinstance(id, str) or not numbers or not isinstance(metadata, dict | None):
        raise FormatError(f"{path}: {str(id)[:100]!r} is no vector", path=str(path))
    try:
        return id, [float(each) for each in vector], metadata or {}
    except OverflowError as error:
        raise InvalidInputError(f"{path}: {id!r} has a number that is too large", path=str(path)) from error
