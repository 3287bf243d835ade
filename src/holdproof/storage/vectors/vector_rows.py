"""Vectors as rows: the truth, of which everything in memory or in the cache is a copy.

Rules:
- A row has the vector as it was given (float32, little-endian) and its metadata as JSON text.
- Every write gives a row a larger `change`, so a reader asks for what changed since it last looked. On SQLite numbers
  are given by the only writer there is; on PostgreSQL it is the transaction's id, and a reader looks again at whatever
  was still under way when it last looked.
- Every write draws a new `stamp`. Equal stamps mean the same vector; their sum tells whether a copy fits the rows.
- A deleted row stays as a tombstone, stamp 0, so that others see it go. Old tombstones are swept; `swept` says up to
  where, and a reader that is further behind begins anew.
- A writer names the `key` it knows. When all vectors were replaced by those of another model there is a new one, and
  whoever does not know it is refused.
"""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdproof.db import Row, Tx, sql
from holdproof.db.sql import sql_postgres
from holdproof.errors import EmbeddingMismatchError

DEFAULT_DIMENSIONS = 384
_MANY_TOMBSTONES = 10_000


class Facts(NamedTuple):
    """What holds for all vectors of a store."""

    key: str
    dimensions: int
    model: str | None
    swept: int


class Vector(NamedTuple):
    """A vector to be kept."""

    id: str
    vector: bytes
    metadata: str
    content: str | None = None


class Kept(NamedTuple):
    """A row, whole."""

    id: str
    stamp: int
    vector: bytes
    metadata: str


_FACTS = sql("SELECT key, dimensions, model, swept FROM vector_facts")


def facts(tx: Tx) -> Facts:
    """What holds for all vectors."""
    [row] = tx.all(_FACTS)
    return Facts(*row)


def known(tx: Tx, key: str) -> Facts:
    """What holds for all vectors, if they are still those of that key."""
    found = facts(tx)
    if found.key != key:
        raise EmbeddingMismatchError("all vectors were replaced by those of another model; open them again")
    return found


_BEGIN = sql(
    "INSERT INTO vector_facts (one, key, dimensions, model, created_at) VALUES (1, :key, :dimensions, :model, :now)"
    " ON CONFLICT (one) DO NOTHING"
)
_NAME = sql("UPDATE vector_facts SET model = :model WHERE model IS NULL")


def begin(tx: Tx, *, dimensions: int | None, model: str | None) -> Facts:
    """Lay down what is not yet laid down: how long vectors are, and whose; says what holds, which may be other."""
    tx.execute(_BEGIN, key=new_key(tx), dimensions=dimensions or DEFAULT_DIMENSIONS, model=model, now=tx.now)
    if model is not None:
        tx.execute(_NAME, model=model)
    _heal(tx)
    _sweep(tx)
    return facts(tx)


def new_key(tx: Tx) -> str:
    """A name for these vectors that no others have."""
    return tx.random(12).hex()


def fits(known: Facts, *, dimensions: int | None, model: str | None) -> None:
    """Refuse to go on with vectors of another length or another model."""
    if dimensions not in (None, known.dimensions):
        raise EmbeddingMismatchError(
            f"the vectors kept here have {known.dimensions} numbers, not {dimensions}", dimensions=known.dimensions
        )
    if model is not None and model != known.model:
        raise EmbeddingMismatchError(
            f"the vectors kept here were made by {known.model}, not {model}", model=known.model
        )


# Numbers of a server that a dump was taken from may be ahead of this one's.
_AHEAD = sql_postgres(
    "UPDATE vectors SET change = pg_current_xact_id()::text::bigint WHERE change > pg_current_xact_id()::text::bigint"
)


def _heal(tx: Tx) -> None:
    if tx.dialect == "postgres":
        tx.execute(_AHEAD)


_TOMBSTONES = sql("SELECT count(*), (SELECT max(change) FROM vectors) FROM vectors WHERE stamp = 0")
_SWEEP = sql("DELETE FROM vectors WHERE stamp = 0 AND change < :newest")
_SWEPT = sql("UPDATE vector_facts SET swept = :newest")


def _sweep(tx: Tx) -> None:
    """Remove tombstones once there are many; the newest stays, or its number would be given again."""
    [(count, newest)] = tx.all(_TOMBSTONES)
    if count > _MANY_TOMBSTONES:
        tx.execute(_SWEEP, newest=newest)
        tx.execute(_SWEPT, newest=newest, expect=1)


_BESIDE = sql_postgres("SELECT pg_advisory_xact_lock_shared(hashtext('holdproof vectors'))")
_ALONE = sql_postgres("SELECT pg_advisory_xact_lock(hashtext('holdproof vectors'))")


def _beside(tx: Tx) -> None:
    """Write beside others, but not while all vectors are exchanged; on SQLite there is one writer anyway."""
    if tx.dialect == "postgres":
        tx.execute(_BESIDE)


def alone(tx: Tx) -> None:
    """Wait until nobody writes vectors, and keep it so to the end of the transaction."""
    if tx.dialect == "postgres":
        tx.all(_ALONE)


# With a key that is not the present one there is no row at all.
_PUT = sql(
    "INSERT INTO vectors (change, id, stamp, vector, metadata)"
    " SELECT coalesce((SELECT max(change) FROM vectors), 0) + 1, :id, :stamp, :vector, :metadata"
    " FROM vector_facts WHERE key = :key"
    " ON CONFLICT (id) DO UPDATE SET change = excluded.change, stamp = excluded.stamp, vector = excluded.vector,"
    " metadata = excluded.metadata",
    postgres="INSERT INTO vectors (change, id, stamp, vector, metadata)"
    " SELECT pg_current_xact_id()::text::bigint, :id, :stamp, :vector, :metadata FROM vector_facts WHERE key = :key"
    " ON CONFLICT (id) DO UPDATE SET change = excluded.change, stamp = excluded.stamp, vector = excluded.vector,"
    " metadata = excluded.metadata",
)
_SAY = sql(
    "INSERT INTO embedding_metadata (source_id, model_name, dimensions, created_at, needs_reembed, content)"
    " SELECT :id, coalesce(model, ''), dimensions, :now, 0, :content FROM vector_facts WHERE key = :key"
    " ON CONFLICT (source_id) DO UPDATE SET model_name = excluded.model_name, dimensions = excluded.dimensions,"
    " created_at = excluded.created_at, needs_reembed = 0, content = excluded.content"
)
_UNSAY = sql("DELETE FROM embedding_metadata WHERE source_id = :id")


def put_all(tx: Tx, vectors: Iterable[Vector], *, key: str) -> None:
    """Keep vectors, in the place of those that had their ids; refused if the key is not the present one."""
    _beside(tx)
    for vector in vectors:
        _put(tx, vector, key)


def put(tx: Tx, vector: Vector, *, key: str) -> None:
    """Keep a vector, in the place of the one that had its id; refused if the key is not the present one."""
    _beside(tx)
    _put(tx, vector, key)


def _put(tx: Tx, vector: Vector, key: str) -> None:
    id, data, metadata, content = vector
    tx.guard(_PUT, _past, id=id, stamp=stamp(tx), vector=data, metadata=metadata, key=key)
    if content is None:
        tx.execute(_UNSAY, id=id)
    else:
        tx.guard(_SAY, _past, id=id, now=tx.now, content=content, key=key)


def _past(_: str) -> EmbeddingMismatchError:
    return EmbeddingMismatchError("the vectors kept here are of another model by now; open them again")


def stamp(tx: Tx) -> int:
    """A new stamp: never 0, and small enough that the sum of very many is exact."""
    return int.from_bytes(tx.random(4), "big") or 1


_DROP = sql(
    "UPDATE vectors SET change = (SELECT max(change) FROM vectors) + 1, stamp = 0, vector = NULL, metadata = NULL"
    " WHERE id = :id AND stamp > 0",
    postgres="UPDATE vectors SET change = pg_current_xact_id()::text::bigint, stamp = 0, vector = NULL, metadata = NULL"
    " WHERE id = :id AND stamp > 0",
)


def drop(tx: Tx, id: str) -> bool:
    """Remove a vector and what is said of it; whether it was there."""
    _beside(tx)
    gone = tx.count(_DROP, id=id) > 0
    if gone:
        tx.execute(_UNSAY, id=id)
    return gone


_COUNT = sql("SELECT count(*) FROM vectors WHERE stamp > 0")


def count(tx: Tx) -> int:
    """How many vectors there are."""
    [(number,)] = tx.all(_COUNT)
    return int(number)


_PAGE = sql("SELECT id, vector, metadata FROM vectors WHERE stamp > 0 AND id > :after ORDER BY id LIMIT :limit")


def page(tx: Tx, after: str, *, limit: int) -> list[Row]:
    """Id, vector and metadata of the vectors after an id, by code point."""
    return tx.all(_PAGE, after=after, limit=limit)


_TOTALS = sql("SELECT count(*), coalesce(sum(stamp), 0) FROM vectors WHERE stamp > 0")


def totals(tx: Tx) -> tuple[int, int]:
    """How many vectors there are and the sum of their stamps: a copy that has the same fits."""
    [(number, total)] = tx.all(_TOTALS)
    return int(number), int(total)


_CHANGES = sql(
    "SELECT change, id, stamp, vector FROM vectors WHERE (change, id) > (:change, :id) ORDER BY change, id LIMIT :limit"
)


def changes(tx: Tx, change: int, id: str, *, limit: int) -> list[Row]:
    """What changed after that place, in order: number, id, stamp (0 if it went) and vector."""
    return tx.all(_CHANGES, change=change, id=id, limit=limit)


class Moment(NamedTuple):
    """What a snapshot of PostgreSQL shows."""

    horizon: int
    """Up to this number nothing more can appear."""
    order: tuple[int, int]
    """Larger in later snapshots."""


_SNAPSHOT = sql_postgres("SELECT pg_current_snapshot()::text")


def moment(tx: Tx) -> Moment:
    """Which transactions the snapshot shows: all that had ended when it was taken, whatever their numbers."""
    [(text,)] = tx.all(_SNAPSHOT)
    oldest, next_, under_way = text.split(":")
    return Moment(int(oldest) - 1, (int(next_), -len(under_way.split(",")) if under_way else 0))


_FETCH = sql(
    "SELECT id, stamp, vector, metadata FROM vectors WHERE stamp > 0 AND id IN (SELECT value FROM json_each(:ids))",
    postgres="SELECT id, stamp, vector, metadata FROM vectors"
    " WHERE stamp > 0 AND id IN (SELECT json_array_elements_text(:ids::json))",
)


def fetch(tx: Tx, ids: Sequence[str]) -> list[Kept]:
    """The rows of these ids, as far as there are any."""
    return [Kept(*row) for part in _parts(ids) for row in tx.all(_FETCH, ids=part)]


_DESCRIBE = sql(
    "SELECT id, stamp, metadata FROM vectors WHERE stamp > 0 AND id IN (SELECT value FROM json_each(:ids))",
    postgres="SELECT id, stamp, metadata FROM vectors"
    " WHERE stamp > 0 AND id IN (SELECT json_array_elements_text(:ids::json))",
)


def describe(tx: Tx, ids: Sequence[str]) -> list[Row]:
    """Id, stamp and metadata of these ids, as far as there are any."""
    return [row for part in _parts(ids) for row in tx.all(_DESCRIBE, ids=part)]


def _parts(ids: Sequence[str]) -> Iterable[str]:
    return (json.dumps(ids[at : at + 500]) for at in range(0, len(ids), 500))
