"""Vectors as rows: authoritative; everything in memory or in the cache is a copy of them.

Rules:
- A row has the vector as it was passed (float32, little-endian) and its metadata as JSON text.
- Every write gives a row a larger `change`, so a reader asks for what changed since it last looked. On SQLite there
  is one writer, which counts; on PostgreSQL it is the transaction's id, and a reader looks again at all transactions
  that were open when it last looked.
- Every write draws a new `stamp`. Equal stamps mean the same vector; their sum tells whether a copy fits the rows.
- A deleted row stays as a tombstone, stamp 0, so that others notice. Old tombstones are swept; `swept` says up to
  where, and a reader that is further behind starts again.
- A writer names the `key` it knows. Replacing all vectors by those of another model makes a new key, and writers with
  the old one are refused.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from holdproof.db import Row, Tx, lock_shared, sql
from holdproof.db.sql import sql_postgres
from holdproof.errors import EmbeddingMismatchError
from holdproof.model.storage import VectorFacts

DEFAULT_DIMENSIONS = 384
_MANY_TOMBSTONES = 10_000


class Facts(NamedTuple):
    """What holds for all vectors of a store."""

    key: str
    dimensions: int
    model: str | None
    swept: int


class NewVector(NamedTuple):
    """A vector to be stored."""

    id: str
    vector: bytes
    metadata: str
    content: str | None = None


class VectorChange(NamedTuple):
    """A row that changed; a tombstone has the stamp 0 and no vector."""

    number: int
    id: str
    stamp: int
    vector: bytes | None


class VectorRow(NamedTuple):
    """A complete row."""

    id: str
    stamp: int
    vector: bytes
    metadata: str


_FACTS = sql("SELECT key, dimensions, model, swept FROM vector_facts")


def facts(tx: Tx) -> Facts:
    """Read what holds for all vectors."""
    [row] = tx.all(_FACTS)
    return Facts(*row)


def require_key(tx: Tx, key: str) -> Facts:
    """Read what holds for all vectors; raises EmbeddingMismatchError if they have another key by now."""
    current = facts(tx)
    if current.key != key:
        raise EmbeddingMismatchError("all vectors were replaced by those of another model; open them again")
    return current


_BEGIN = sql(
    "INSERT INTO vector_facts (one, key, dimensions, model, created_at) VALUES (1, :key, :dimensions, :model, :now)"
    " ON CONFLICT (one) DO NOTHING"
)
_NAME = sql("UPDATE vector_facts SET model = :model WHERE model IS NULL")


def begin(tx: Tx, *, dimensions: int | None, model: str | None) -> Facts:
    """Record dimensions and model unless they are recorded already; return what is recorded, which may differ."""
    tx.execute(_BEGIN, key=new_key(tx), dimensions=dimensions or DEFAULT_DIMENSIONS, model=model, now=tx.now)
    if model is not None:
        tx.execute(_NAME, model=model)
    _fix_numbers(tx)
    _sweep(tx)
    return facts(tx)


def new_key(tx: Tx) -> str:
    """A new random key."""
    return tx.random(12).hex()


def require_fit(facts: Facts, *, dimensions: int | None, model: str | None) -> None:
    """Raise EmbeddingMismatchError for vectors of another length or another model."""
    if dimensions not in (None, facts.dimensions):
        raise EmbeddingMismatchError(
            f"the stored vectors have {facts.dimensions} numbers, not {dimensions}; open them with"
            f" dimensions={facts.dimensions}, or with `reembed=True`",
            dimensions=facts.dimensions,
        )
    if model is not None and model != facts.model:
        raise EmbeddingMismatchError(
            f"the stored vectors were made by {facts.model}, not {model}; open them with that model, or with"
            " `reembed=True`",
            model=facts.model,
        )


# After a restore from another server its transaction ids may be ahead of ours.
_AHEAD = sql_postgres(
    "UPDATE vectors SET change = pg_current_xact_id()::text::bigint WHERE change > pg_current_xact_id()::text::bigint"
)


def _fix_numbers(tx: Tx) -> None:
    if tx.dialect == "postgres":
        tx.execute(_AHEAD)


_TOMBSTONES = sql("SELECT count(*), (SELECT max(change) FROM vectors) FROM vectors WHERE stamp = 0")
_SWEEP = sql("DELETE FROM vectors WHERE stamp = 0 AND change < :newest")
_SWEPT = sql("UPDATE vector_facts SET swept = :newest")


def _sweep(tx: Tx) -> None:
    """Delete tombstones once there are many; the newest stays, or its number would be used again."""
    [(count, newest)] = tx.all(_TOMBSTONES)
    if count > _MANY_TOMBSTONES:
        tx.execute(_SWEEP, newest=newest)
        tx.execute(_SWEPT, newest=newest, expect=1)


WRITERS: Final = "holdproof vectors"
"""The advisory lock: shared by writers, exclusive while all vectors are exchanged."""


# With an old key the SELECT has no row, so nothing is inserted, and `tx.guard` raises.
# On SQLite the single writer makes max(change) + 1 safe; see the module docstring for PostgreSQL.
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
_PUT_TEXT = sql(
    "INSERT INTO embedding_metadata (source_id, model_name, dimensions, created_at, needs_reembed, content)"
    " SELECT :id, coalesce(model, ''), dimensions, :now, 0, :content FROM vector_facts WHERE key = :key"
    " ON CONFLICT (source_id) DO UPDATE SET model_name = excluded.model_name, dimensions = excluded.dimensions,"
    " created_at = excluded.created_at, needs_reembed = 0, content = excluded.content"
)
_DROP_TEXT = sql("DELETE FROM embedding_metadata WHERE source_id = :id")


def put_all(tx: Tx, vectors: Iterable[NewVector], *, key: str) -> None:
    """Store vectors, replacing those with the same ids; raises EmbeddingMismatchError for an old key."""
    lock_shared(tx, WRITERS)
    for vector in vectors:
        _put(tx, vector, key)


def put(tx: Tx, vector: NewVector, *, key: str) -> None:
    """Store a vector, replacing the one with its id; raises EmbeddingMismatchError for an old key."""
    lock_shared(tx, WRITERS)
    _put(tx, vector, key)


def _put(tx: Tx, vector: NewVector, key: str) -> None:
    id, data, metadata, content = vector
    tx.guard(_PUT, _replaced, id=id, stamp=stamp(tx), vector=data, metadata=metadata, key=key)
    # A vector that was added without a text must not keep the text of its predecessor.
    if content is None:
        tx.execute(_DROP_TEXT, id=id)
    else:
        tx.guard(_PUT_TEXT, _replaced, id=id, now=tx.now, content=content, key=key)


def _replaced(_: str) -> EmbeddingMismatchError:
    return EmbeddingMismatchError("the vectors were replaced by those of another model; open them again")


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
    """Delete a vector and its text; return whether it existed."""
    lock_shared(tx, WRITERS)
    existed = tx.count(_DROP, id=id) > 0
    if existed:
        tx.execute(_DROP_TEXT, id=id)
    return existed


_COUNT = sql("SELECT count(*) FROM vectors WHERE stamp > 0")


def count(tx: Tx) -> int:
    """How many vectors there are."""
    [(number,)] = tx.all(_COUNT)
    return int(number)


_PAGE = sql("SELECT id, vector, metadata FROM vectors WHERE stamp > 0 AND id > :after ORDER BY id LIMIT :limit")


def page(tx: Tx, after: str, *, limit: int) -> list[Row]:
    """Id, vector and metadata of the vectors after an id, by code point."""
    return tx.all(_PAGE, after=after, limit=limit)


# `substr` and not LIKE: an id may hold the signs that LIKE would read.
_LIST = sql(
    "SELECT v.id, v.metadata, t.model_name, t.created_at FROM vectors v LEFT JOIN embedding_metadata t"
    " ON t.source_id = v.id WHERE v.stamp > 0 AND v.id > :after AND v.id >= :prefix"
    " AND substr(v.id, 1, length(:prefix)) = :prefix ORDER BY v.id LIMIT :limit"
)


def describe_all(tx: Tx, after: str, prefix: str, limit: int) -> list[VectorFacts]:
    """Return what is known of the vectors after an id that begin with a prefix, without their numbers."""
    rows = tx.all(_LIST, after=after, prefix=prefix, limit=limit)
    return [VectorFacts(id, json.loads(metadata), model or None, at) for id, metadata, model, at in rows]


_TOTALS = sql("SELECT count(*), coalesce(sum(stamp), 0) FROM vectors WHERE stamp > 0")


def totals(tx: Tx) -> tuple[int, int]:
    """The number of vectors and the sum of their stamps: a copy with the same two is complete."""
    [(number, total)] = tx.all(_TOTALS)
    return int(number), int(total)


_CHANGES = sql(
    "SELECT change, id, stamp, vector FROM vectors WHERE (change, id) > (:change, :id) ORDER BY change, id LIMIT :limit"
)


def changes(tx: Tx, change: int, id: str, *, limit: int) -> list[VectorChange]:
    """Read what changed after that number and id, in order."""
    return [VectorChange._make(row) for row in tx.all(_CHANGES, change=change, id=id, limit=limit)]


class Description(NamedTuple):
    """A row without its vector."""

    id: str
    stamp: int
    metadata: str


class Moment(NamedTuple):
    """What a snapshot of PostgreSQL shows."""

    horizon: int
    """Up to this number nothing more can appear."""
    order: tuple[int, int]
    """Larger in later snapshots."""


_SNAPSHOT = sql_postgres("SELECT pg_current_snapshot()::text")


def moment(tx: Tx) -> Moment:
    """Read which transactions the snapshot shows: all that had ended when it was taken, whatever their numbers."""
    [(text,)] = tx.all(_SNAPSHOT)
    # xmin:xmax:list of open transactions. Of two snapshots with the same xmax, that with fewer open ones is later.
    oldest, upcoming, still_open = text.split(":")
    open_count = len(still_open.split(",")) if still_open else 0
    return Moment(int(oldest) - 1, (int(upcoming), -open_count))


_FETCH = sql(
    "SELECT id, stamp, vector, metadata FROM vectors WHERE stamp > 0 AND id IN (SELECT value FROM json_each(:ids))",
    postgres="SELECT id, stamp, vector, metadata FROM vectors"
    " WHERE stamp > 0 AND id IN (SELECT json_array_elements_text(:ids::json))",
)


def fetch(tx: Tx, ids: Sequence[str]) -> list[VectorRow]:
    """Read the rows of these ids that exist."""
    return [VectorRow(*row) for part in _parts(ids) for row in tx.all(_FETCH, ids=part)]


_DESCRIBE = sql(
    "SELECT id, stamp, metadata FROM vectors WHERE stamp > 0 AND id IN (SELECT value FROM json_each(:ids))",
    postgres="SELECT id, stamp, metadata FROM vectors"
    " WHERE stamp > 0 AND id IN (SELECT json_array_elements_text(:ids::json))",
)


def describe(tx: Tx, ids: Sequence[str]) -> list[Description]:
    """Read id, stamp and metadata of these ids that exist."""
    return [Description._make(row) for part in _parts(ids) for row in tx.all(_DESCRIBE, ids=part)]


def _parts(ids: Sequence[str]) -> Iterable[str]:
    # Ids travel as one JSON parameter, so that each statement is prepared once.
    return (json.dumps(ids[at : at + 500]) for at in range(0, len(ids), 500))
