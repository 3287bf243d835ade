"""Search by the server: the extension `vector` of PostgreSQL keeps an HNSW index beside the rows.

Rules:
- The index is on a table of its own, `vector_index`, that follows the rows like a matrix does: `vector_index_mark` says
  up to which change, and of which key. Whoever adds need not know of it; a search brings it up to date first.
- It only proposes: what is answered is reckoned from the rows.
- With a filter, or for more results than the index gives, the server compares all vectors instead.
"""

import json
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from holdproof.db import Query, Read, Tx, Work, Write, ask
from holdproof.db.sql import sql_postgres
from holdproof.errors import ConfigError, HoldproofError, UnavailableError
from holdproof.model.storage import SearchResult
from holdproof.storage.vectors import ranking, vector_rows
from holdproof.storage.vectors.finding import Unit
from holdproof.storage.vectors.vector_rows import Kept
from holdproof.storage.vectors.vector_state import VectorStoreState
from holdproof.storage.vectors.vector_validation import matches

_PAGE: Final = 500
_MORE: Final = 32
_MOST_BY_INDEX: Final = 400
_WIDEST: Final = 2000  # numbers that the server's index takes


class _Texts(NamedTuple):
    """Statements on tables that are there only where the extension is, under the schema it lives in."""

    mark: Query
    lock: Query
    follow: Query
    put: Query
    drop: Query
    nearest: Query


@lru_cache(maxsize=16)
def _texts(schema: str) -> _Texts:
    return _Texts(
        mark=sql_postgres("SELECT key, mark FROM vector_index_mark"),
        lock=sql_postgres("SELECT key, mark FROM vector_index_mark FOR UPDATE"),
        follow=sql_postgres("UPDATE vector_index_mark SET mark = :mark"),
        put=sql_postgres(
            f"INSERT INTO vector_index (id, embedding) VALUES (:id, :vector::text::{schema}.vector)"  # noqa: S608
            " ON CONFLICT (id) DO UPDATE SET embedding = excluded.embedding"
        ),
        drop=sql_postgres("DELETE FROM vector_index WHERE id = :id"),
        nearest=sql_postgres(
            f"SELECT id FROM vector_index ORDER BY embedding OPERATOR({schema}.<=>)"  # noqa: S608
            f" :vector::text::{schema}.vector LIMIT :limit OFFSET :offset"
        ),
    )


_SCHEMA = sql_postgres(
    "SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace"
    " WHERE e.extname = 'vector'"
)
_TABLES = """
CREATE TABLE IF NOT EXISTS vector_index_mark (key TEXT NOT NULL, mark BIGINT NOT NULL);
DELETE FROM vector_index_mark;
INSERT INTO vector_index_mark (key, mark) VALUES ('{key}', 0);
DROP TABLE IF EXISTS vector_index;
CREATE TABLE vector_index (id TEXT COLLATE "C" PRIMARY KEY, embedding {schema}.vector({dimensions}) NOT NULL)
"""
_INDEX = "CREATE INDEX vector_index_near ON vector_index USING hnsw (embedding {schema}.vector_cosine_ops)"
_MADE = sql_postgres("SELECT 1 WHERE to_regclass('vector_index_mark') IS NOT NULL")


def extended(tx: Tx) -> str:
    """The schema of the extension, which is made where it is missing."""
    if tx.dialect != "postgres":
        raise ConfigError("pgvector needs a membrane on PostgreSQL")
    vector_rows.alone(tx)
    found = tx.one(_SCHEMA)
    if found is None:
        try:
            tx.script("CREATE EXTENSION vector")
        except HoldproofError as error:
            raise UnavailableError(f"the server has no extension vector, or does not let us use it: {error}") from error
        found = tx.one(_SCHEMA)
    assert found is not None
    return str(found[0])


class ServerFinder:
    """Finds by asking the server."""

    def __init__(self, shelf: VectorStoreState, schema: str) -> None:
        self._shelf, self._schema, self._texts = shelf, schema, _texts(schema)

    def prepare(self, tx: Tx) -> None:
        """Make the table for the present key, fill it, then build its index: that is faster than the other order."""
        vector_rows.alone(tx)
        key, dimensions = self._shelf.facts.key, self._shelf.facts.dimensions
        if tx.one(_MADE) is not None and tx.all(self._texts.mark)[0][0] == key:
            return
        tx.script(_TABLES.format(schema=self._schema, key=key, dimensions=dimensions))
        self._follow(tx)
        if dimensions <= _WIDEST:
            tx.script(_INDEX.format(schema=self._schema))

    def search(self, unit: Unit, k: int, wanted: dict[str, str]) -> Work[list[SearchResult]]:
        """See Finder."""
        if (yield from ask(Read(self._behind))):
            yield Write(self._follow)
        return (yield from ask(Read(lambda tx: self._nearest(tx, unit, k, wanted))))

    def index(self) -> Work[int]:
        """See Finder: the server keeps its index by itself."""
        yield from ()
        return 0

    def close(self) -> None:
        """See Finder: the server keeps everything."""

    def _behind(self, tx: Tx) -> bool:
        vector_rows.known(tx, self._shelf.facts.key)
        [(_, mark)] = tx.all(self._texts.mark)
        return bool(vector_rows.changes(tx, mark + 1, "", limit=1))

    def _follow(self, tx: Tx) -> None:
        """Bring the table up to date, one at a time."""
        [(_, mark)] = tx.all(self._texts.lock)
        change, id = mark + 1, ""
        while page := vector_rows.changes(tx, change, id, limit=_PAGE):
            gone = [{"id": id} for _, id, stamp, _ in page if not stamp]
            came = [{"id": id, "vector": _text(np.frombuffer(vector, "<f4"))} for _, id, stamp, vector in page if stamp]
            tx.many(self._texts.drop, gone)
            tx.many(self._texts.put, came)
            change, id = page[-1][:2]
        tx.execute(self._texts.follow, mark=vector_rows.moment(tx).horizon, expect=1)

    def _nearest(self, tx: Tx, unit: Unit, k: int, wanted: dict[str, str]) -> list[SearchResult]:
        direct = not wanted and k <= _MOST_BY_INDEX
        tx.all(_ASK, far=str(2 * k + 100), index="on" if direct else "off")
        found: list[Kept] = []
        size, offset, asked = k + _MORE if direct else max(4 * k, 1000), 0, _text(unit)
        while ids := tx.all(self._texts.nearest, vector=asked, limit=size, offset=offset):
            offset += size
            found += [row for row in vector_rows.fetch(tx, [id for (id,) in ids]) if matches(row.metadata, wanted)]
            if direct or len(found) >= k:
                break
        tx.all(_ASK, far="40", index="on")
        return ranking.rank(found, unit, k)


_ASK = sql_postgres("SELECT set_config('hnsw.ef_search', :far, true), set_config('enable_indexscan', :index, true)")


def _text(numbers: np.ndarray[Any, Any]) -> str:
    return json.dumps(numbers.tolist())
