"""Search in the server: the extension `vector` of PostgreSQL has an HNSW index beside the rows.

Rules:
- The index is on a table of its own, `vector_index` in the schema `holdproof_application`, that follows the rows like a
  matrix does: `vector_index_mark` says up to which change, and of which key. Writers need not know of it; a search
  brings it up to date first.
- The mark is read from the server before the changes are: a transaction that commits in between is read once more, and
  never skipped.
- It only proposes rows; distances are computed from them.
- With a filter, or for more results than the index gives, the server compares all vectors instead.
"""

import json
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from holdproof.db import Query, Read, Tx, Work, Write, ask, lock_exclusive
from holdproof.db.sql import sql_postgres
from holdproof.db.tx import APPLICATION_SCHEMA
from holdproof.errors import ConfigError, HoldproofError, UnavailableError
from holdproof.model.storage import SearchResult
from holdproof.storage.vectors import ranking, vector_rows
from holdproof.storage.vectors.finders import Unit
from holdproof.storage.vectors.replica import VectorStoreState
from holdproof.storage.vectors.vector_rows import VectorChange, VectorRow
from holdproof.storage.vectors.vector_validation import matches

_PAGE: Final = 500
_MORE: Final = 32
_MOST_BY_INDEX: Final = 400
_WIDEST: Final = 2000  # numbers that the server's index takes
_INDEX_TABLE: Final = f"{APPLICATION_SCHEMA}.vector_index"
_MARK_TABLE: Final = f"{APPLICATION_SCHEMA}.vector_index_mark"


class _Texts(NamedTuple):
    """Statements on tables that exist only with the extension, for the schema it is installed in."""

    mark: Query
    lock: Query
    follow: Query
    put: Query
    drop: Query
    nearest: Query


@lru_cache(maxsize=16)
def _texts(schema: str) -> _Texts:
    return _Texts(
        mark=sql_postgres(f"SELECT key, mark FROM {_MARK_TABLE}"),  # noqa: S608 (names of ours)
        lock=sql_postgres(f"SELECT key, mark FROM {_MARK_TABLE} FOR UPDATE"),  # noqa: S608
        follow=sql_postgres(f"UPDATE {_MARK_TABLE} SET mark = :mark"),  # noqa: S608
        put=sql_postgres(
            f"INSERT INTO {_INDEX_TABLE} (id, embedding) VALUES (:id, :vector::text::{schema}.vector)"  # noqa: S608
            " ON CONFLICT (id) DO UPDATE SET embedding = excluded.embedding"
        ),
        drop=sql_postgres(f"DELETE FROM {_INDEX_TABLE} WHERE id = :id"),  # noqa: S608
        nearest=sql_postgres(
            f"SELECT id FROM {_INDEX_TABLE} ORDER BY embedding OPERATOR({schema}.<=>)"  # noqa: S608
            f" :vector::text::{schema}.vector LIMIT :limit OFFSET :offset"
        ),
    )


_SCHEMA = sql_postgres(
    "SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace"
    " WHERE e.extname = 'vector'"
)
_TABLES = f"""
CREATE TABLE IF NOT EXISTS {_MARK_TABLE} (key TEXT NOT NULL, mark BIGINT NOT NULL);
DELETE FROM {_MARK_TABLE};
INSERT INTO {_MARK_TABLE} (key, mark) VALUES ('{{key}}', 0);
DROP TABLE IF EXISTS {_INDEX_TABLE};
CREATE TABLE {_INDEX_TABLE}
  (id TEXT COLLATE "C" PRIMARY KEY, embedding {{schema}}.vector({{dimensions}}) NOT NULL)
"""  # noqa: S608
_INDEX = f"CREATE INDEX vector_index_near ON {_INDEX_TABLE} USING hnsw (embedding {{schema}}.vector_cosine_ops)"
_MADE = sql_postgres(f"SELECT 1 WHERE to_regclass('{_MARK_TABLE}') IS NOT NULL")


def ensure_extension(tx: Tx) -> str:
    """Create the extension if it is missing; return its schema."""
    if tx.dialect != "postgres":
        raise ConfigError("pgvector needs the relational store on PostgreSQL; set providers.relational")
    lock_exclusive(tx, vector_rows.WRITERS)
    row = tx.one(_SCHEMA)
    if row is None:
        try:
            tx.script("CREATE EXTENSION vector")
        except HoldproofError as error:
            raise UnavailableError(
                f"the extension vector is missing, or this role may not create it: {error}"
            ) from error
        row = tx.one(_SCHEMA)
    assert row is not None
    (schema,) = row
    return str(schema)


class ServerFinder:
    """Searches in the server."""

    def __init__(self, state: VectorStoreState, schema: str) -> None:
        self._state = state
        self._schema = schema
        self._texts = _texts(schema)

    def prepare(self, tx: Tx) -> None:
        """Create and fill the table for the present key, then build its index, which is faster in that order."""
        lock_exclusive(tx, vector_rows.WRITERS)
        key = self._state.facts.key
        dimensions = self._state.facts.dimensions
        if tx.one(_MADE) is not None:
            [(table_key, mark)] = tx.all(self._texts.mark)
            # A mark ahead of this server's transactions came from another one: it would hide everything written here.
            if table_key == key and mark <= vector_rows.moment(tx).horizon:
                return
        tx.script(_TABLES.format(schema=self._schema, key=key, dimensions=dimensions))
        self._follow(tx)
        # Wider vectors have no index; the server then compares all of them, which is correct but slow.
        if dimensions <= _WIDEST:
            tx.script(_INDEX.format(schema=self._schema))

    def search(self, unit: Unit, k: int, conditions: dict[str, str]) -> Work[list[SearchResult]]:
        """See Finder."""
        if (yield from ask(Read(self._behind))):
            yield Write(self._follow)
        return (yield from ask(Read(lambda tx: self._nearest(tx, unit, k, conditions))))

    def index(self) -> Work[int]:
        """See Finder: the server maintains its index."""
        yield from ()
        return 0

    def close(self) -> None:
        """See Finder: there is nothing to release."""

    def _behind(self, tx: Tx) -> bool:
        vector_rows.require_key(tx, self._state.facts.key)
        [(_, mark)] = tx.all(self._texts.mark)
        return bool(vector_rows.changes(tx, mark + 1, "", limit=1))

    def _follow(self, tx: Tx) -> None:
        """Bring the table up to date; the lock on the mark lets one transaction do it at a time."""
        [(_, mark)] = tx.all(self._texts.lock)
        # Each statement sees what was committed before it. Taken after the changes, the horizon would cover a vector
        # that was committed after they were read; taken first, it can only be too low.
        horizon = vector_rows.moment(tx).horizon
        change = mark + 1
        id = ""
        while page := vector_rows.changes(tx, change, id, limit=_PAGE):
            deleted = [{"id": each.id} for each in page if not each.stamp]
            added = [{"id": each.id, "vector": _text(_numbers(each))} for each in page if each.stamp]
            tx.many(self._texts.drop, deleted)
            tx.many(self._texts.put, added)
            change = page[-1].number
            id = page[-1].id
        tx.execute(self._texts.follow, mark=horizon, expect=1)

    def _nearest(self, tx: Tx, unit: Unit, k: int, conditions: dict[str, str]) -> list[SearchResult]:
        direct = not conditions and k <= _MOST_BY_INDEX
        tx.all(_ASK, far=str(2 * k + 100), index="on" if direct else "off")
        rows: list[VectorRow] = []
        # The index is approximate and may be slightly behind: a few more candidates than needed.
        size = k + _MORE if direct else max(4 * k, 1000)
        offset = 0
        query = _text(unit)
        while ids := tx.all(self._texts.nearest, vector=query, limit=size, offset=offset):
            offset += size
            rows += [row for row in vector_rows.fetch(tx, [id for (id,) in ids]) if matches(row.metadata, conditions)]
            if direct or len(rows) >= k:
                break
        # The settings last until the end of the transaction, which may be the caller's.
        tx.all(_ASK, far="40", index="on")
        return ranking.rank(rows, unit, k)


_ASK = sql_postgres("SELECT set_config('hnsw.ef_search', :far, true), set_config('enable_indexscan', :index, true)")


def _numbers(change: VectorChange) -> np.ndarray[Any, Any]:
    assert change.vector is not None
    return np.frombuffer(change.vector, "<f4")


def _text(numbers: np.ndarray[Any, Any]) -> str:
    return json.dumps(numbers.tolist())
