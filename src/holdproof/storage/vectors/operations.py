"""What can be done with vectors.

Rules:
- What was answered is durable; adds of many callers share a commit.
- `add` and `upsert` are the same: the id has the new vector, in the place of the one it had.
- A vector of another length, or with a number that is none, is refused before anything is written, and so is a query.
- Results come nearest first, equals by id; the distance is one minus the cosine. A filter counts before `k` does.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from holdproof.db import Call, Give, Read, Stream, Tx, Work, Write, ask
from holdproof.model.storage import SearchResult, StoredVector
from holdproof.storage.vectors import embedding, vector_rows, vector_validation
from holdproof.storage.vectors.finding import Finder
from holdproof.storage.vectors.vector_rows import Vector
from holdproof.storage.vectors.vector_state import Embedder, VectorStoreState

_TOGETHER = 1000

Numbers = Sequence[float] | NDArray[Any]
Item = tuple[str, Numbers, Mapping[str, Any] | None]


class Opened(VectorStoreState):
    """An open store and its way of finding, which `build` makes for what holds now."""

    build: Callable[["Opened"], Work[Finder]]
    finder: Finder


def add(
    opened: Opened,
    id: str,
    vector: Numbers,
    metadata: Mapping[str, Any] | None = None,
) -> Callable[[Tx], None]:
    """Keep a vector under an id, in the place of the one that was there; seen by the next search."""
    checked, key = _checked(opened, id, vector, metadata), opened.facts.key
    return lambda tx: vector_rows.put(tx, checked, key=key)


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


def _checked(opened: Opened, id: str, vector: Numbers, metadata: Mapping[str, Any] | None) -> Vector:
    opened.check_open()
    return Vector(
        vector_validation.identity(id),
        vector_validation.vector(vector, opened.facts.dimensions),
        vector_validation.metadata(metadata),
    )


def _put(opened: Opened, vectors: list[Vector]) -> Work[None]:
    key = opened.facts.key
    yield Write(lambda tx: vector_rows.put_all(tx, vectors, key=key))


def search(
    opened: Opened,
    query: Numbers,
    k: int = 10,
    *,
    limit: int | None = None,
    filter: Mapping[str, Any] | None = None,
) -> Work[list[SearchResult]]:
    """The nearest ones whose metadata match the filter, nearest first; `limit` is another name for `k`."""
    opened.check_open()
    number, wanted = vector_validation.results(k, limit), vector_validation.wanted(filter)
    unit = vector_validation.query(query, opened.facts.dimensions)
    if unit is None:
        return []
    return (yield from opened.finder.search(unit, number, wanted))


def delete(opened: Opened, id: str) -> Work[bool]:
    """Remove a vector; whether it was there."""
    opened.check_open()
    return (yield from ask(Write(lambda tx: vector_rows.drop(tx, vector_validation.identity(id)))))


def count(opened: Opened) -> Work[int]:
    """How many vectors there are."""
    opened.check_open()
    return (yield from ask(Read(vector_rows.count)))


def export(opened: Opened) -> Stream[StoredVector]:
    """Every vector with its metadata, by id, in bounded memory; what comes or goes meanwhile may be missed."""
    opened.check_open()
    after = ""
    while page := (yield from ask(Read(partial(vector_rows.page, after=after, limit=_TOGETHER)))):
        for id, vector, metadata in page:
            yield Give(StoredVector(id, vector_validation.numbers(vector), json.loads(metadata)))
        after = page[-1][0]


def embed(opened: Opened, id: str, content: str, metadata: Mapping[str, Any] | None = None) -> Work[None]:
    """Embed a text with the embedder of this store, and keep vector and text under an id."""
    opened.check_open()
    vector = yield from embedding.embedded(opened.embedder, id, content, metadata, opened.facts.dimensions)
    yield from _put(opened, [vector])


def find(
    opened: Opened, content: str, k: int = 10, *, filter: Mapping[str, Any] | None = None
) -> Work[list[SearchResult]]:
    """Search for what is nearest to a text."""
    vector = yield from embedding.asked(opened.embedder, content)
    return (yield from search(opened, vector, k, filter=filter))


def reembed(opened: Opened, model: str, dimensions: int, embedder: Embedder | None = None) -> Work[int]:
    """Embed every text anew with another model, and exchange all vectors at once; how many.

    Other openings are refused from then on, until they are opened for the new model.
    """
    opened.check_open()
    chosen = embedder or opened.embedder
    opened.facts = yield from embedding.move(model, vector_validation.length(dimensions), chosen)
    opened.embedder = chosen
    yield from ask(Call(opened.finder.close))
    opened.finder = yield from opened.build(opened)
    return (yield from count(opened))


def index(opened: Opened) -> Work[int]:
    """Build the graph of a store of kind `hnsw` anew, or bring it up to date; how many vectors it holds."""
    opened.check_open()
    return (yield from opened.finder.index())


def close(opened: Opened) -> Work[None]:
    """Keep the matrix for the next opening where that pays, and close; may be called twice. The database stays open."""
    if not opened.closed:
        opened.closed = True
        yield from ask(Call(opened.finder.close))
