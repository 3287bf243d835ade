"""Shapes: patterns that services observe, searched by a vector.

    shapes = Shapes(storage)
    shape = await shapes.observe("rhythm", intensity=0.8, vector=embedding)
    await shapes.search(question, 5, shape_type="rhythm")

Rules:
- The row is authoritative, its vector only an index: a search leaves out vectors without a row.
- A vector is stored under the shape's id. Until then the shape is `pending`, also after a crash; `embed` adds it.
- A shape whose vector is refused is not stored.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from holdproof import paging, validation
from holdproof.db import Read, Row, Tx, Work, Write, ask, sql
from holdproof.errors import NotFoundError
from holdproof.executors import AsyncExecutor, Executor, Reads, Resource, RunsWith
from holdproof.executors.exit_codes import exit_absent
from holdproof.model.page import Page
from holdproof.model.shapes import EmbeddingStatus, FoundShape, Shape
from holdproof.model.times import END
from holdproof.storage.provider import StorageProvider
from holdproof.storage.vector_link import VectorLink

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
        raise NotFoundError(f"there is no shape {shape_id}", listed_by="shapes list", shape_id=shape_id)
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
    " AND (observed_at, id) < (:at, :before) ORDER BY observed_at DESC, id DESC LIMIT :limit"
)


def recent(
    tx: Tx,
    *,
    shape_type: str | None = None,
    project_hash: str | None = None,
    embedding_status: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[Shape]:
    """List shapes, newest first."""
    at, before = paging.decode(cursor, END, "")
    status = None
    if embedding_status is not None:
        status = validation.member("embedding_status", EmbeddingStatus, embedding_status).value
    conditions = {"shape_type": shape_type, "project_hash": project_hash, "status": status}
    rows = tx.all(_RECENT, **conditions, at=at, before=before, limit=paging.fetch(limit))
    return paging.page(map(_shape, rows), limit, lambda shape: (shape.observed_at, shape.id))


_MARK = sql("UPDATE shapes SET embedding_status = :status WHERE id = :id")


def mark(tx: Tx, shape_id: str, status: EmbeddingStatus) -> Shape:
    """Record whether a shape has its vector."""
    tx.count(_MARK, id=shape_id, status=status.value)
    return get(tx, shape_id)


_FORGET = sql("DELETE FROM shapes WHERE id = :id")


def forget(tx: Tx, shape_id: str) -> bool:
    """Delete a shape; return whether it existed. Dreams keep the ids they were consolidated from."""
    return tx.count(_FORGET, id=shape_id) > 0


# --- rows and their vectors --------------------------------------------------------------------------------------


def _observe(
    vectors: VectorLink,
    shape_type: str,
    *,
    intensity: float = 1.0,
    persistence: float = 1.0,
    interpretation: str | None = None,
    project_hash: str | None = None,
    instance_id: str | None = None,
    vector: Sequence[float] | None = None,
) -> Work[Shape]:
    """Store an observation, and its vector for searches."""
    write: Write[Shape] = Write(
        partial(
            observe,
            shape_type=shape_type,
            intensity=intensity,
            persistence=persistence,
            interpretation=interpretation,
            project_hash=project_hash,
            instance_id=instance_id,
            embedding_status=EmbeddingStatus.NONE if vector is None else EmbeddingStatus.PENDING,
        )
    )
    shape = yield from ask(write)
    if vector is None:
        return shape
    try:
        return (yield from _embed(vectors, shape.id, vector))
    except Exception:
        # Vectors may be in another database, so this is not one transaction: undo the row.
        yield Write(lambda tx: forget(tx, shape.id))
        raise


def _embed(vectors: VectorLink, shape_id: str, vector: Sequence[float]) -> Work[Shape]:
    """Store the vector of a shape, replacing the one it had."""
    shape = yield from ask(Read(lambda tx: get(tx, shape_id)))
    facts = {"of": _OF, "shape_type": shape.shape_type, "project_hash": shape.project_hash}
    yield vectors.call("add", shape_id, vector, {name: fact for name, fact in facts.items() if fact is not None})
    try:
        return (yield from ask(Write(lambda tx: mark(tx, shape_id, EmbeddingStatus.EMBEDDED))))
    except NotFoundError:  # it was deleted meanwhile
        yield vectors.call("delete", shape_id)
        raise


def _search(
    vectors: VectorLink,
    vector: Sequence[float],
    k: int = 10,
    *,
    shape_type: str | None = None,
    project_hash: str | None = None,
) -> Work[tuple[FoundShape, ...]]:
    """Return the shapes nearest to a vector, nearest first."""
    facts = {"of": _OF, "shape_type": shape_type, "project_hash": project_hash}
    conditions = {name: fact for name, fact in facts.items() if fact is not None}
    # A vector whose row is gone is left out, so that the result may be shorter than k.
    near = yield from ask(vectors.call("search", vector, k, filter=conditions))
    rows_by_id = yield from ask(Read(lambda tx: existing(tx, [each.id for each in near])))
    return tuple(FoundShape(rows_by_id[each.id], each.distance) for each in near if each.id in rows_by_id)


def _forget(vectors: VectorLink, shape_id: str) -> Work[bool]:
    """Delete a shape and its vector; return whether it existed. Dreams keep the ids they were consolidated from."""
    yield vectors.call("delete", shape_id)
    return (yield from ask(Write(lambda tx: forget(tx, shape_id))))


class ShapesResource(Resource[Executor]):
    """Patterns that services observe, searched by a vector."""

    group = "Inspect"

    observe = RunsWith(_observe, example="rhythm --intensity 0.8 --vector '[0.1, 0.9]'", creates=True)
    embed = RunsWith(_embed, example="SHAPE '[0.1, 0.9]'")
    search = RunsWith(_search, reads=True, example="'[0.1, 0.9]' --k 5 --shape-type rhythm")
    forget = RunsWith(_forget, example="SHAPE", exit_code=exit_absent)
    get = Reads(get)
    list = Reads(
        recent, columns=("id", "shape_type", "intensity", "persistence", "interpretation", "observed_at"), example=""
    )

    def __init__(self, executor: Executor, vectors: Callable[[], Any]) -> None:
        super().__init__(executor)
        self._link = VectorLink(executor, vectors)

    @property
    def held(self) -> VectorLink:
        """The vector store, opened at its first use."""
        return self._link


class Shapes(ShapesResource[AsyncExecutor]):
    """The shapes of a storage provider, and their vectors."""

    def __init__(self, storage: StorageProvider) -> None:
        super().__init__(storage.membrane, lambda: storage.vector)
