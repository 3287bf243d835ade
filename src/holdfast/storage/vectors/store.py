"""`Vectors`: vectors by id, found by nearness, on both faces.

Rules:
- What was answered is durable; adds of many callers share a commit.
- `add` and `upsert` are the same: the id has the new vector, in the place of the one it had.
- A vector of another length, or with a number that is none, is refused before anything is written, and so is a query.
- Results come nearest first, equals by id; the distance is one minus the cosine. A filter counts before `k` does.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.db import Call, Read, Work, Write, ask
from holdfast.errors import EmbeddingMismatchError, ExpectationError
from holdfast.faces import Face, Noun, RunsWith
from holdfast.model.storage import SearchResult
from holdfast.storage.vectors import given, rows
from holdfast.storage.vectors.finding import Finder
from holdfast.storage.vectors.rows import Vector
from holdfast.storage.vectors.shelf import Shelf

_TOGETHER = 1000

Item = tuple[str, Sequence[float], Mapping[str, Any] | None]


class Opened(Shelf):
    """An open store and its way of finding."""

    finder: Finder


def add(
    opened: Opened,
    id: str,
    vector: Sequence[float],
    metadata: Mapping[str, Any] | None = None,
) -> Work[None]:
    """Keep a vector under an id, in the place of the one that was there; seen by the next search."""
    yield from _put(opened, [_checked(opened, id, vector, metadata)])


def add_many(opened: Opened, items: Iterable[Item]) -> Work[int]:
    """Keep vectors, a thousand a commit; how many."""
    count, batch = 0, list[Vector]()
    for id, vector, metadata in items:
        batch.append(_checked(opened, id, vector, metadata))
        count += 1
        if len(batch) == _TOGETHER:
            yield from _put(opened, batch)
            batch = []
    if batch:
        yield from _put(opened, batch)
    return count


def _checked(opened: Opened, id: str, vector: Sequence[float], metadata: Mapping[str, Any] | None) -> Vector:
    opened.check_open()
    return Vector(given.identity(id), given.vector(vector, opened.facts.dimensions), given.metadata(metadata))


def _put(opened: Opened, vectors: list[Vector]) -> Work[None]:
    key = opened.facts.key
    try:
        yield Write(lambda tx: [rows.put(tx, vector, key=key) for vector in vectors] and None)
    except ExpectationError as error:
        raise EmbeddingMismatchError("the vectors kept here are of another model by now; open them again") from error


def search(
    opened: Opened,
    query: Sequence[float],
    k: int = 10,
    *,
    limit: int | None = None,
    filter: Mapping[str, Any] | None = None,
) -> Work[list[SearchResult]]:
    """The nearest ones whose metadata match the filter, nearest first; `limit` is another name for `k`."""
    opened.check_open()
    number, wanted = given.results(k, limit), given.wanted(filter)
    unit = given.query(query, opened.facts.dimensions)
    if unit is None:
        return []
    return (yield from opened.finder.search(unit, number, wanted))


def delete(opened: Opened, id: str) -> Work[bool]:
    """Remove a vector; whether it was there."""
    opened.check_open()
    return (yield from ask(Write(lambda tx: rows.drop(tx, given.identity(id)))))


def count(opened: Opened) -> Work[int]:
    """How many vectors there are."""
    opened.check_open()
    return (yield from ask(Read(rows.count)))


def close(opened: Opened) -> Work[None]:
    """Keep the matrix for the next opening where that pays, and close; may be called twice. The database stays open."""
    if not opened.closed:
        opened.closed = True
        yield from ask(Call(opened.finder.close))


class Vectors(Noun[Face]):
    """Vectors by id, found by nearness."""

    add = RunsWith(add)
    add_many = RunsWith(add_many)
    upsert = RunsWith(add)
    search = RunsWith(search)
    delete = RunsWith(delete)
    count = RunsWith(count)
    close = RunsWith(close)

    def __init__(self, face: Face, opened: Opened) -> None:
        super().__init__(face)
        self._opened = opened

    @property
    def held(self) -> Opened:
        """The open store."""
        return self._opened

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        return self._opened.facts.dimensions

    @property
    def model(self) -> str | None:
        """Which model made the vectors, where that was said."""
        return self._opened.facts.model
