"""Dreams: insights that services consolidate from shapes, searched by a vector.

    dreams = Dreams(storage)
    dream = await dreams.consolidate("Work comes in bursts.", source_shapes=[shape.id], vector=embedding)
    await dreams.sources(dream.id)

Rules:
- A dream names the shapes it was consolidated from, at least one, each once; all of them exist when it is stored.
- The row is authoritative, its vector (under the dream's id) only an index. A dream whose vector is refused is not
  stored.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdproof import paging, validation
from holdproof.db import Read, Row, Tx, Work, Write, ask, sql
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.executors import AsyncExecutor, Executor, Reads, Resource, RunsWith
from holdproof.executors.exit_codes import exit_absent
from holdproof.model.page import Page
from holdproof.model.shapes import Dream, FoundDream, Shape
from holdproof.model.times import END
from holdproof.storage import shapes
from holdproof.storage.provider import StorageProvider
from holdproof.storage.vector_link import VectorLink

_OF: Final = "dreams"
_MOST_SOURCES: Final = 1_000

_KEEP = sql(
    "INSERT INTO dreams (id, content, source_shapes, confidence, dreamed_at)"
    " VALUES (:id, :content, :source_shapes, :confidence, :now)"
)


def consolidate(tx: Tx, content: str, *, source_shapes: Sequence[str], confidence: float = 1.0) -> Dream:
    """Store an insight, linked to the shapes it comes from; raises NotFoundError for a missing shape."""
    validation.words("content", content)
    sure = validation.number("confidence", confidence, least=0, most=1)
    sources = tuple(dict.fromkeys(source_shapes))
    # A text is a sequence of texts too, and surely not what was meant.
    if isinstance(source_shapes, str) or not 1 <= len(sources) <= _MOST_SOURCES:
        raise InvalidInputError(f"a dream comes from 1 to {_MOST_SOURCES} shapes, by their ids", field="source_shapes")
    rows_by_id = shapes.existing(tx, sources)
    if missing := [id for id in sources if id not in rows_by_id]:
        raise NotFoundError(f"there is no shape {missing[0]}", listed_by="shapes list", shape_id=missing[0])
    id = tx.new_id()
    linked = validation.to_json("source_shapes", sources)
    tx.execute(_KEEP, id=id, content=content, source_shapes=linked, confidence=sure, now=tx.now, expect=1)
    return Dream(id, content, sources, sure, tx.now)


_GET = sql("SELECT id, content, source_shapes, confidence, dreamed_at FROM dreams WHERE id = :id")


def get(tx: Tx, dream_id: str) -> Dream:
    """One dream."""
    row = tx.one(_GET, id=dream_id)
    if row is None:
        raise NotFoundError(f"there is no dream {dream_id}", listed_by="dreams list", dream_id=dream_id)
    return _dream(row)


def existing(tx: Tx, ids: Sequence[str]) -> dict[str, Dream]:
    """Those of these ids that exist."""
    rows = (tx.one(_GET, id=id) for id in ids)
    dream_list = [_dream(row) for row in rows if row is not None]
    return {each.id: each for each in dream_list}


def _dream(row: Row) -> Dream:
    id, content, linked, confidence, dreamed_at = row
    try:
        sources = json.loads(linked)
    except ValueError:  # another program wrote a plain id
        sources = [linked]
    named = tuple(map(str, sources)) if isinstance(sources, list) else (str(sources),)
    return Dream(id, content, named, 1.0 if confidence is None else float(confidence), dreamed_at)


def sources(tx: Tx, dream_id: str) -> tuple[Shape, ...]:
    """Return the shapes that a dream was consolidated from and that still exist."""
    linked = get(tx, dream_id).source_shapes
    rows_by_id = shapes.existing(tx, linked)
    return tuple(rows_by_id[id] for id in linked if id in rows_by_id)


_RECENT = sql(
    "SELECT id, content, source_shapes, confidence, dreamed_at FROM dreams"
    " WHERE (CAST(:shape AS TEXT) = '' OR instr(source_shapes, :shape) > 0)"
    " AND (dreamed_at, id) < (:at, :before) ORDER BY dreamed_at DESC, id DESC LIMIT :limit",
    postgres="SELECT id, content, source_shapes, confidence, dreamed_at FROM dreams"
    " WHERE (CAST(:shape AS TEXT) = '' OR strpos(source_shapes, :shape) > 0)"
    " AND (dreamed_at, id) < (:at, :before) ORDER BY dreamed_at DESC, id DESC LIMIT :limit",
)


def recent(tx: Tx, *, shape_id: str | None = None, cursor: str | None = None, limit: int = 100) -> Page[Dream]:
    """List dreams, newest first: all, or those of one shape."""
    at, before = paging.decode(cursor, END, "")
    shape = "" if shape_id is None else json.dumps(shape_id)
    rows = tx.all(_RECENT, shape=shape, at=at, before=before, limit=paging.fetch(limit))
    return paging.page(map(_dream, rows), limit, lambda dream: (dream.dreamed_at, dream.id))


_FORGET = sql("DELETE FROM dreams WHERE id = :id")


def forget(tx: Tx, dream_id: str) -> bool:
    """Delete a dream; return whether it existed."""
    return tx.count(_FORGET, id=dream_id) > 0


# --- rows and their vectors --------------------------------------------------------------------------------------


def _consolidate(
    vectors: VectorLink,
    content: str,
    *,
    source_shapes: Sequence[str],
    confidence: float = 1.0,
    vector: Sequence[float] | None = None,
) -> Work[Dream]:
    """Store an insight, linked to the shapes it comes from, and its vector for searches."""
    write: Write[Dream] = Write(lambda tx: consolidate(tx, content, source_shapes=source_shapes, confidence=confidence))
    dream = yield from ask(write)
    if vector is not None:
        try:
            # Vectors may be in another database, so this is not one transaction: undo the row on failure.
            yield vectors.call("add", dream.id, vector, {"of": _OF})
        except Exception:
            yield Write(lambda tx: forget(tx, dream.id))
            raise
    return dream


def _search(vectors: VectorLink, vector: Sequence[float], k: int = 10) -> Work[tuple[FoundDream, ...]]:
    """Return the dreams nearest to a vector, nearest first."""
    near = yield from ask(vectors.call("search", vector, k, filter={"of": _OF}))
    rows_by_id = yield from ask(Read(lambda tx: existing(tx, [each.id for each in near])))
    return tuple(FoundDream(rows_by_id[each.id], each.distance) for each in near if each.id in rows_by_id)


def _forget(vectors: VectorLink, dream_id: str) -> Work[bool]:
    """Delete a dream and its vector; return whether it existed."""
    # The vector first: a crash in between leaves a dream that is not found, not a vector without a row.
    yield vectors.call("delete", dream_id)
    return (yield from ask(Write(lambda tx: forget(tx, dream_id))))


class DreamsResource(Resource[Executor]):
    """Insights that services consolidate from shapes, searched by a vector."""

    group = "Inspect"

    consolidate = RunsWith(_consolidate, example="'Work comes in bursts.' --source-shapes '[\"SHAPE\"]'", creates=True)
    search = RunsWith(_search, reads=True, example="'[0.1, 0.9]' --k 5")
    forget = RunsWith(_forget, example="DREAM", exit_code=exit_absent)
    get = Reads(get)
    list = Reads(recent, columns=("id", "content", "confidence", "dreamed_at"), example="")
    sources = Reads(sources)

    def __init__(self, executor: Executor, vectors: Callable[[], Any]) -> None:
        super().__init__(executor)
        self._link = VectorLink(executor, vectors)

    @property
    def held(self) -> VectorLink:
        """The vector store, opened at its first use."""
        return self._link


class Dreams(DreamsResource[AsyncExecutor]):
    """The dreams of a storage provider, and their vectors."""

    def __init__(self, storage: StorageProvider) -> None:
        super().__init__(storage.membrane, lambda: storage.vector)
