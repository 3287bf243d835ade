"""Shapes: patterns that services observe, searched by a vector.

    shapes = Shapes(storage)
    shape = await shapes.observe("rhythm", intensity=0.8, vector=embedding)
    await shapes.search(question, 5, shape_type="rhythm")

Rules:
- The row is authoritative, its vector only an index: a search leaves out vectors without a row.
- A vector is stored under the shape's id. Until then the shape is `pending`, also after a crash; `embed` adds it.
- A shape whose vector is refused is not stored.
"""

from collections.abc import Sequence
from typing import Any, Final

from holdproof import validation
from holdproof.db import Row, Tx, sql
from holdproof.errors import NotFoundError
from holdproof.executors import AsyncExecutor, Reads, Resource
from holdproof.model.shapes import EmbeddingStatus, FoundShape, Shape
from holdproof.storage.provider import StorageProvider

_OF: Final = "shapes"

_OBSERVE = sql(
    "INSERT INTO shapes (id, shape_type, intensity, persistence, interpretation, project_hash, instance_id,"
    " observed_at, embedding_status) VALUES (:id, :shape_type, :intensity, :persistence, :interpretation,"
    " :project_hash, :instance_id, :observed_at, :embedding_status)"
)


def observe(
    tx: Tx,
    shape_type: str,
    *,
    intensity: float = 1.0,
    persistence: float = 1.0,
    interpretation: str | None = None,
    project_hash: str | None = None,
    instance_id: str | None = None,
    embedding_status: EmbeddingStatus = EmbeddingStatus.NONE,
) -> Shape:
    """Store an observation."""
    row: dict[str, Any] = {"id": tx.new_id(), "shape_type": validation.name("shape_type", shape_type)}
    row |= {"intensity": validation.number("intensity", intensity, least=0)}
    row |= {"persistence": validation.number("persistence", persistence, least=0)}
    row |= {"interpretation": validation.optional_words("interpretation", interpretation)}
    row |= {"project_hash": validation.optional_words("project_hash", project_hash)}
    row |= {"instance_id": validation.optional_words("instance_id", instance_id), "observed_at": tx.now}
    row |= {"embedding_status": embedding_status.value}
    tx.execute(_OBSERVE, **row, expect=1)
    return Shape(**row)


_GET = sql(
    "SELECT id, shape_type, intensity, persistence, interpretation, project_hash, instance_id, observed_at,"
    " embedding_status FROM shapes WHERE id = :id"
)


def get(tx: Tx, shape_id: str) -> Shape:
    """One shape."""
    row = tx.one(_GET, id=shape_id)
    if row is None:
        raise NotFoundError(f"there is no shape {shape_id}", shape_id=shape_id)
    return _shape(row)


def existing(tx: Tx, ids: Sequence[str]) -> dict[str, Shape]:
    """Those of these ids that exist."""
    rows = (tx.one(_GET, id=id) for id in ids)
    shape_list = [_shape(row) for row in rows if row is not None]
    return {each.id: each for each in shape_list}


def _shape(row: Row) -> Shape:
    id, shape_type, intensity, persistence, *texts, embedding_status = row
    # Other programs leave numbers and statuses empty.
    strengths = (1.0 if number is None else float(number) for number in (intensity, persistence))
    return Shape(*(id, shape_type, *strengths, *texts, embedding_status or EmbeddingStatus.NONE.value))


_RECENT = sql(
    "SELECT id, shape_type, intensity, persistence, interpretation, project_hash, instance_id, observed_at,"
    " embedding_status FROM shapes WHERE (CAST(:shape_type AS TEXT) IS NULL OR shape_type = :shape_type)"
    " AND (CAST(:project_hash AS TEXT) IS NULL OR project_hash = :project_hash)"
    " AND (CAST(:status AS TEXT) IS NULL OR embedding_status = :status)"
    " AND (CAST(:after AS TEXT) = '' OR (observed_at, id) < (SELECT a.observed_at, a.id FROM shapes a"
    " WHERE a.id = :after)) ORDER BY observed_at DESC, id DESC LIMIT :limit"
)


def recent(
    tx: Tx,
    *,
    shape_type: str | None = None,
    project_hash: str | None = None,
    embedding_status: str | None = None,
    limit: int = 100,
    after: str = "",
) -> tuple[Shape, ...]:
    """Shapes, newest first; `after` is the id of the last one of the page before."""
    status = None
    if embedding_status is not None:
        status = validation.member("embedding_status", EmbeddingStatus, embedding_status).value
    conditions = {"shape_type": shape_type, "project_hash": project_hash, "status": status, "after": after}
    return tuple(_shape(row) for row in tx.all(_RECENT, **conditions, limit=validation.limited(limit)))


_MARK = sql("UPDATE shapes SET embedding_status = :status WHERE id = :id")


def mark(tx: Tx, shape_id: str, status: EmbeddingStatus) -> Shape:
    """Record whether a shape has its vector."""
    tx.count(_MARK, id=shape_id, status=status.value)
    return get(tx, shape_id)


_FORGET = sql("DELETE FROM shapes WHERE id = :id")


def forget(tx: Tx, shape_id: str) -> bool:
    """Delete a shape; return whether it existed. Dreams keep the ids they were consolidated from."""
    return tx.count(_FORGET, id=shape_id) > 0


class Shapes(Resource[AsyncExecutor]):
    """The shapes of a storage, and their vectors."""

    get = Reads(get)
    list = Reads(recent)

    def __init__(self, storage: StorageProvider) -> None:
        super().__init__(storage.membrane)
        self._vectors = storage.vector

    async def observe(
        self,
        shape_type: str,
        *,
        intensity: float = 1.0,
        persistence: float = 1.0,
        interpretation: str | None = None,
        project_hash: str | None = None,
        instance_id: str | None = None,
        vector: Sequence[float] | None = None,
    ) -> Shape:
        """Store an observation, and its vector for searches."""
        status = EmbeddingStatus.NONE if vector is None else EmbeddingStatus.PENDING
        shape = await self._executor.write(
            lambda tx: observe(
                tx,
                shape_type,
                intensity=intensity,
                persistence=persistence,
                interpretation=interpretation,
                project_hash=project_hash,
                instance_id=instance_id,
                embedding_status=status,
            )
        )
        if vector is None:
            return shape
        try:
            return await self.embed(shape.id, vector)
        except Exception:
            # Vectors may be in another database, so this is not one transaction: undo the row.
            await self._executor.write(lambda tx: forget(tx, shape.id))
            raise

    async def embed(self, shape_id: str, vector: Sequence[float]) -> Shape:
        """Store the vector of a shape, replacing the one it had."""
        shape = await self._executor.read(lambda tx: get(tx, shape_id))
        facts = {"of": _OF, "shape_type": shape.shape_type, "project_hash": shape.project_hash}
        await self._vectors.add(shape_id, vector, {name: fact for name, fact in facts.items() if fact is not None})
        try:
            return await self._executor.write(lambda tx: mark(tx, shape_id, EmbeddingStatus.EMBEDDED))
        except NotFoundError:  # it was deleted meanwhile
            await self._vectors.delete(shape_id)
            raise

    async def search(
        self,
        vector: Sequence[float],
        k: int = 10,
        *,
        shape_type: str | None = None,
        project_hash: str | None = None,
    ) -> tuple[FoundShape, ...]:
        """Return the shapes nearest to a vector, nearest first."""
        facts = {"of": _OF, "shape_type": shape_type, "project_hash": project_hash}
        conditions = {name: fact for name, fact in facts.items() if fact is not None}
        # A vector whose row is gone is left out, so that the result may be shorter than k.
        near = await self._vectors.search(vector, k, filter=conditions)
        rows_by_id = await self._executor.read(lambda tx: existing(tx, [each.id for each in near]))
        return tuple(FoundShape(rows_by_id[each.id], each.distance) for each in near if each.id in rows_by_id)

    async def forget(self, shape_id: str) -> bool:
        """Delete a shape and its vector; return whether it existed. Dreams keep the ids they were consolidated from."""
        await self._vectors.delete(shape_id)
        return await self._executor.write(lambda tx: forget(tx, shape_id))
