"""Embedding of texts, and moving all vectors to another model.

Rules:
- Embedded texts are stored in `embedding_metadata`; `needs_reembed` marks those that a move has not reached yet.
- Vectors of two models are never mixed: those of the new one wait in `vector_moves`, and replace the old ones in one
  transaction, under a new key. Until then searches use the old ones.
- An interrupted move continues where it stopped. What changed meanwhile is embedded again before the exchange.
- A vector without a text cannot be moved: the move is refused before it begins.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from holdproof.db import Call, Read, Row, Tx, Work, Write, ask, lock_exclusive, sql
from holdproof.errors import EmbedderMissingError, EmbeddingMismatchError, InvalidInputError
from holdproof.storage.vectors import vector_rows, vector_validation
from holdproof.storage.vectors.vector_rows import Facts, NewVector

_PAGE = 64

Embedder = Callable[[str], Any]
"""From a text to its vector: any callable; on the async client a coroutine function too."""


class _Target(NamedTuple):
    model: str
    dimensions: int
    embedder: Embedder


def embed_vector(
    embedder: Embedder | None, id: str, content: str, metadata: Mapping[str, Any] | None, dimensions: int
) -> Work[NewVector]:
    """Embed a text; return the vector to be stored."""
    # Everything that can be refused is checked before the embedder, which may be slow and cost money.
    id = vector_validation.identity(id)
    text = vector_validation.metadata(metadata)
    numbers = yield from embed_text(embedder, content)
    return NewVector(id, vector_validation.vector(numbers, dimensions), text, content)


def embed_text(embedder: Embedder | None, content: str) -> Work[Any]:
    """Call the embedder; return what it makes of a text."""
    function = _require_embedder(embedder)
    if not content:
        raise InvalidInputError("content must be a text that is not empty", field="content")
    return (yield from ask(Call(lambda: function(content))))


def _require_embedder(embedder: Embedder | None) -> Embedder:
    if embedder is None:
        raise EmbedderMissingError("texts need an embedder; pass `embedder=` when the vectors are opened")
    return embedder


_SILENT = sql(
    "SELECT count(*) FROM vectors v LEFT JOIN embedding_metadata m ON m.source_id = v.id"
    " WHERE v.stamp > 0 AND m.content IS NULL"
)
_OTHERS = sql("DELETE FROM vector_moves WHERE model <> :model")
_NEEDED = sql(
    "UPDATE embedding_metadata SET needs_reembed = 1 WHERE model_name <> :model"
    " AND source_id IN (SELECT id FROM vectors WHERE stamp > 0)"
)


def move(model: str, dimensions: int, embedder: Embedder | None) -> Work[Facts]:
    """Embed every text anew and exchange all vectors in one transaction; return the new facts."""
    target = _Target(model, dimensions, _require_embedder(embedder))
    yield Write(lambda tx: _start(tx, target.model))
    while True:
        page = yield from ask(Read(_waiting))
        if not page:
            # None means that rows changed after the page was read: there is more to embed.
            facts = yield from ask(Write(lambda tx: _exchange(tx, target)))
            if facts is not None:
                return facts
            continue
        rows = []
        for id, stamp, content in page:
            vector = yield from embed_text(target.embedder, content)
            rows.append({"id": id, "stamp": stamp, "vector": vector_validation.vector(vector, target.dimensions)})
        yield Write(lambda tx: tx.many(_MOVED, [{"model": target.model, **each} for each in rows]))  # noqa: B023


def _start(tx: Tx, model: str) -> None:
    [(silent,)] = tx.all(_SILENT)
    if silent:
        raise EmbeddingMismatchError(
            f"{silent} vectors have no text and cannot be embedded anew; delete them, or add them again with `embed`"
        )
    # Vectors of an interrupted move to another model are useless now.
    tx.execute(_OTHERS, model=model)
    tx.execute(_NEEDED, model=model)


_WAITING = sql(
    "SELECT v.id, v.stamp, m.content FROM vectors v JOIN embedding_metadata m ON m.source_id = v.id"
    " LEFT JOIN vector_moves w ON w.id = v.id AND w.stamp = v.stamp WHERE v.stamp > 0 AND w.id IS NULL LIMIT :limit"
)
_MOVED = sql(
    "INSERT INTO vector_moves (id, model, stamp, vector) VALUES (:id, :model, :stamp, :vector)"
    " ON CONFLICT (id) DO UPDATE SET stamp = excluded.stamp, vector = excluded.vector"
)


def _waiting(tx: Tx) -> list[Row]:
    return tx.all(_WAITING, limit=_PAGE)


_BURIED = sql("DELETE FROM vectors WHERE stamp = 0")
# Every row gets a new change number and stamp: replicas and sidecars of the old vectors must notice.
_EXCHANGE = sql(
    "UPDATE vectors SET change = change + (SELECT max(change) FROM vectors), stamp = (stamp + :salt) % 4294967295 + 1,"
    " vector = (SELECT w.vector FROM vector_moves w WHERE w.id = vectors.id) WHERE stamp > 0",
    postgres="UPDATE vectors SET change = pg_current_xact_id()::text::bigint,"
    " stamp = (stamp + :salt) % 4294967295 + 1,"
    " vector = (SELECT w.vector FROM vector_moves w WHERE w.id = vectors.id) WHERE stamp > 0",
)
_RENAME = sql("UPDATE vector_facts SET key = :key, dimensions = :dimensions, model = :model, swept = 0")
_RECORD = sql(
    "UPDATE embedding_metadata SET model_name = :model, dimensions = :dimensions, created_at = :now, needs_reembed = 0"
    " WHERE source_id IN (SELECT id FROM vectors)"
)
_DONE = sql("DELETE FROM vector_moves")


def _exchange(tx: Tx, target: _Target) -> Facts | None:
    """Replace the old vectors by the new; None if some changed meanwhile and must be embedded first."""
    lock_exclusive(tx, vector_rows.WRITERS)
    if _waiting(tx):
        return None
    tx.execute(_RENAME, key=vector_rows.new_key(tx), dimensions=target.dimensions, model=target.model, expect=1)
    tx.execute(_BURIED)
    tx.execute(_EXCHANGE, salt=vector_rows.stamp(tx))
    tx.execute(_RECORD, model=target.model, dimensions=target.dimensions, now=tx.now)
    tx.execute(_DONE)
    return vector_rows.facts(tx)
