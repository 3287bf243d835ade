"""The operations of a vector store.

Rules:
- A write is durable when it returns; adds of many callers share a commit.
- `add` and `upsert` are the same: the new vector replaces the one that the id had.
- A vector of another length, or with NaN or infinity, is refused before anything is written, and so is a query.
- Results come nearest first, equals by id; the distance is one minus the cosine. Filters apply before `k`.
"""

import builtins
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from holdproof import paging, validation
from holdproof.db import Call, Give, Read, Stream, Tx, Work, Write, ask
from holdproof.model.page import Page
from holdproof.model.storage import SearchResult, StoredVector, VectorFacts
from holdproof.storage.vectors import embedding, vector_rows, vector_validation
from holdproof.storage.vectors.embedding import Embedder
from holdproof.storage.vectors.finders import Finder
from holdproof.storage.vectors.replica import VectorStoreState
from holdproof.storage.vectors.vector_rows import NewVector

_TOGETHER = 1000

Numbers = Sequence[float] | NDArray[Any]
Item = tuple[str, Numbers, Mapping[str, Any] | None]


class OpenVectors(VectorStoreState):
    """An open store and its finder, which `build` makes for the present vectors."""

    build: Callable[["OpenVectors"], Work[Finder]]
    finder: Finder


def add(
    opened: OpenVectors,
    id: str,
    vector: Numbers,
    metadata: Mapping[str, Any] | None = None,
) -> Callable[[Tx], None]:
    """Store a vector under an id, replacing the one that was there; the next search sees it."""
    checked = _checked(opened, id, vector, metadata)
    key = opened.facts.key
    return lambda tx: vector_rows.put(tx, checked, key=key)


def add_many(opened: OpenVectors, items: Iterable[Item]) -> Work[int]:
    """Store vectors, a thousand in a commit; return how many."""
    count = 0
    batch: builtins.list[NewVector] = []
    # Checked one by one, so that an iterator of any length needs no more memory than a batch.
    for id, vector, metadata in items:
        batch.append(_checked(opened, id, vector, metadata))
        count += 1
        if len(batch) == _TOGETHER:
            yield from _put(opened, batch)
            batch = []
    if batch:
        yield from _put(opened, batch)
    return count


def _checked(opened: OpenVectors, id: str, vector: Numbers, metadata: Mapping[str, Any] | None) -> NewVector:
    opened.check_open()
    return NewVector(
        vector_validation.identity(id),
        vector_validation.vector(vector, opened.facts.dimensions),
        vector_validation.metadata(metadata),
    )


def _put(opened: OpenVectors, vectors: builtins.list[NewVector]) -> Work[None]:
    key = opened.facts.key
    yield Write(lambda tx: vector_rows.put_all(tx, vectors, key=key))


def search(
    opened: OpenVectors,
    query: Numbers,
    k: int = 10,
    *,
    limit: int | None = None,
    filter: Mapping[str, Any] | None = None,
) -> Work[builtins.list[SearchResult]]:
    """Return the nearest vectors whose metadata match the filter, nearest first; `limit` is another name for `k`."""
    opened.check_open()
    number = vector_validation.results(k, limit)
    conditions = vector_validation.conditions(filter)
    # A query of zeros has no direction, so nothing is near to it.
    unit = vector_validation.query(query, opened.facts.dimensions)
    if unit is None:
        return []
    return (yield from opened.finder.search(unit, number, conditions))


def delete(opened: OpenVectors, id: str) -> Work[bool]:
    """Delete a vector; return whether it existed."""
    opened.check_open()
    return (yield from ask(Write(lambda tx: vector_rows.drop(tx, vector_validation.identity(id)))))


def count(opened: OpenVectors) -> Work[int]:
    """Return the number of vectors."""
    opened.check_open()
    return (yield from ask(Read(vector_rows.count)))


def export(opened: OpenVectors) -> Stream[StoredVector]:
    """Stream every vector with its metadata, by id, in bounded memory; concurrent changes may be missed."""
    opened.check_open()
    after = ""
    while page := (yield from ask(Read(partial(vector_rows.page, after=after, limit=_TOGETHER)))):
        for id, vector, metadata in page:
            yield Give(StoredVector(id, vector_validation.numbers(vector), json.loads(metadata)))
            after = id


def list(
    opened: OpenVectors, *, prefix: str = "", cursor: str | None = None, limit: int = 100
) -> Work[Page[VectorFacts]]:
    """List the vectors whose ids begin with a text, by id, with their metadata and without their numbers."""
    opened.check_open()
    validation.words("prefix", prefix)
    (after,) = paging.decode(cursor, "")
    rows = yield from ask(Read(lambda tx: vector_rows.describe_all(tx, after, prefix, paging.fetch(limit))))
    return paging.page(rows, limit, lambda facts: (facts.id,))


def embed(opened: OpenVectors, id: str, content: str, metadata: Mapping[str, Any] | None = None) -> Work[None]:
    """Embed a text with the embedder of this store, and store vector and text under an id."""
    opened.check_open()
    vector = yield from embedding.embed_vector(opened.embedder, id, content, metadata, opened.facts.dimensions)
    yield from _put(opened, [vector])


def find(
    opened: OpenVectors, content: str, k: int = 10, *, filter: Mapping[str, Any] | None = None
) -> Work[builtins.list[SearchResult]]:
    """Embed a text and return the vectors nearest to it."""
    vector = yield from embedding.embed_text(opened.embedder, content)
    return (yield from search(opened, vector, k, filter=filter))


def reembed(opened: OpenVectors, model: str, dimensions: int, embedder: Embedder | None = None) -> Work[int]:
    """Embed every text anew with another model, and exchange all vectors at once; return how many.

    Other open stores get EmbeddingMismatchError from then on, until they are opened for the new model.
    """
    opened.check_open()
    # From now on texts are embedded by the new model, or queries would not match.
    chosen = embedder or opened.embedder
    opened.facts = yield from embedding.move(model, vector_validation.length(dimensions), chosen)
    opened.embedder = chosen
    yield from ask(Call(opened.finder.close))
    opened.finder = yield from opened.build(opened)
    return (yield from count(opened))


def index(opened: OpenVectors) -> Work[int]:
    """Build the graph of a store of the type `hnsw`, or bring it up to date; return how many vectors it holds."""
    opened.check_open()
    return (yield from opened.finder.index())


def close(opened: OpenVectors) -> Work[None]:
    """Save the matrix for the next opening if it is large, and close; may be called twice. The database stays open."""
    if not opened.closed:
        opened.closed = True
        yield from ask(Call(opened.finder.close))
