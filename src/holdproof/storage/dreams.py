"""Dreams: insights that services consolidate from shapes, found by a vector.

    dreams = Dreams(storage)
    dream = await dreams.consolidate("Work comes in bursts.", source_shapes=[shape.id], vector=embedding)
    await dreams.sources(dream.id)

Rules:
- A dream names the shapes it was consolidated from, one at least, each once; all of them are there when it is kept.
- The row is the truth, its vector (under the dream's id) the way to find it. A dream whose vector is refused is not
  kept.
"""

import json
from collections.abc import Sequence
from typing import Final

from holdproof.db import Row, Tx, sql
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.executors import AsyncExecutor, Reads, Resource
from holdproof.model.shapes import Dream, FoundDream, Shape
from holdproof.storage import shapes, values
from holdproof.storage.provider import StorageProvider

_OF: Final = "dreams"
_MOST_SOURCES: Final = 1_000

_KEEP = sql(
    "INSERT INTO dreams (id, content, source_shapes, confidence, dreamed_at)"
    " VALUES (:id, :content, :source_shapes, :confidence, :now)"
)


def consolidate(tx: Tx, content: str, *, source_shapes: Sequence[str], confidence: float = 1.0) -> Dream:
    """Keep an insight, linked to the shapes it comes from."""
    values.words("content", content)
    sure = values.number("confidence", confidence, least=0, most=1)
    sources = tuple(dict.fromkeys(source_shapes))
    if isinstance(source_shapes, str) or not 1 <= len(sources) <= _MOST_SOURCES:
        raise InvalidInputError(f"a dream comes from 1 to {_MOST_SOURCES} shapes, by their ids", field="source_shapes")
    there = shapes.known(tx, sources)
    if missing := [id for id in sources if id not in there]:
        raise NotFoundError(f"there is no shape {missing[0]}", shape_id=missing[0])
    id, linked = tx.new_id(), values.dump("source_shapes", sources)
    tx.execute(_KEEP, id=id, content=content, source_shapes=linked, confidence=sure, now=tx.now, expect=1)
    return Dream(id, content, sources, sure, tx.now)


_GET = sql("SELECT id, content, source_shapes, confidence, dreamed_at FROM dreams WHERE id = :id")


def get(tx: Tx, dream_id: str) -> Dream:
    """One dream."""
    row = tx.one(_GET, id=dream_id)
    if row is None:
        raise NotFoundError(f"there is no dream {dream_id}", dream_id=dream_id)
    return _dream(row)


def known(tx: Tx, ids: Sequence[str]) -> dict[str, Dream]:
    """Those of them that are there."""
    found = (tx.one(_GET, id=id) for id in ids)
    return {row[0]: _dream(row) for row in found if row is not None}


def _dream(row: Row) -> Dream:
    id, content, linked, confidence, dreamed_at = row
    try:
        sources = json.loads(linked)
    except ValueError:  # another program's way to name them
        sources = [linked]
    named = tuple(map(str, sources)) if isinstance(sources, list) else (str(sources),)
    return Dream(id, content, named, 1.0 if confidence is None else float(confidence), dreamed_at)


def sources(tx: Tx, dream_id: str) -> tuple[Shape, ...]:
    """The shapes that a dream was consolidated from, as far as they are still there."""
    linked = get(tx, dream_id).source_shapes
    there = shapes.known(tx, linked)
    return tuple(there[id] for id in linked if id in there)


_RECENT = sql(
    "SELECT id, content, source_shapes, confidence, dreamed_at FROM dreams"
    " WHERE (CAST(:shape AS TEXT) = '' OR instr(source_shapes, :shape) > 0)"
    " AND (CAST(:after AS TEXT) = '' OR (dreamed_at, id) < (SELECT a.dreamed_at, a.id FROM dreams a"
    " WHERE a.id = :after)) ORDER BY dreamed_at DESC, id DESC LIMIT :limit",
    postgres="SELECT id, content, source_shapes, confidence, dreamed_at FROM dreams"
    " WHERE (CAST(:shape AS TEXT) = '' OR strpos(source_shapes, :shape) > 0)"
    " AND (CAST(:after AS TEXT) = '' OR (dreamed_at, id) < (SELECT a.dreamed_at, a.id FROM dreams a"
    " WHERE a.id = :after)) ORDER BY dreamed_at DESC, id DESC LIMIT :limit",
)


def recent(tx: Tx, *, shape_id: str | None = None, limit: int = 100, after: str = "") -> tuple[Dream, ...]:
    """Dreams, newest first, all or those of one shape; `after` is the id of the last one of the page before."""
    shape = "" if shape_id is None else json.dumps(shape_id)
    return tuple(_dream(row) for row in tx.all(_RECENT, shape=shape, limit=values.limited(limit), after=after))


_FORGET = sql("DELETE FROM dreams WHERE id = :id")


def forget(tx: Tx, dream_id: str) -> bool:
    """Remove a dream; whether it was there."""
    return tx.count(_FORGET, id=dream_id) > 0


class Dreams(Resource[AsyncExecutor]):
    """The dreams of a storage, and their vectors."""

    get = Reads(get)
    list = Reads(recent)
    sources = Reads(sources)

    def __init__(self, storage: StorageProvider) -> None:
        super().__init__(storage.membrane)
        self._vectors = storage.vector

    async def consolidate(
        self,
        content: str,
        *,
        source_shapes: Sequence[str],
        confidence: float = 1.0,
        vector: Sequence[float] | None = None,
    ) -> Dream:
        """Keep an insight, linked to the shapes it comes from, with the vector that it is to be found by."""
        dream = await self._face.write(
            lambda tx: consolidate(tx, content, source_shapes=source_shapes, confidence=confidence)
        )
        if vector is not None:
            try:
                await self._vectors.add(dream.id, vector, {"of": _OF})
            except Exception:
                await self._face.write(lambda tx: forget(tx, dream.id))
                raise
        return dream

    async def search(self, vector: Sequence[float], k: int = 10) -> tuple[FoundDream, ...]:
        """The dreams nearest to a vector, nearest first."""
        near = await self._vectors.search(vector, k, filter={"of": _OF})
        there = await self._face.read(lambda tx: known(tx, [each.id for each in near]))
        return tuple(FoundDream(there[each.id], each.distance) for each in near if each.id in there)

    async def forget(self, dream_id: str) -> bool:
        """Remove a dream and its vector; whether it was there."""
        await self._vectors.delete(dream_id)
        return await self._face.write(lambda tx: forget(tx, dream_id))
