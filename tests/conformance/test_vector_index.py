"""How the index of the server follows the rows, on a server without the extension: a type of its name is enough."""

from collections.abc import Iterator
from contextlib import closing
from threading import Event

import pytest

from holdproof.db import Database, Tx, open_database
from holdproof.db.sql import sql_postgres
from holdproof.db.tx import APPLICATION_SCHEMA
from holdproof.storage.vectors import pgvector, vector_rows
from holdproof.storage.vectors.pgvector import ServerFinder
from holdproof.storage.vectors.replica import VectorStoreState
from holdproof.storage.vectors.vector_rows import Facts, NewVector, VectorChange

_STAND_IN = f"""
CREATE DOMAIN {APPLICATION_SCHEMA}.vector AS text;
CREATE TABLE {APPLICATION_SCHEMA}.vector_index_mark (key TEXT NOT NULL, mark BIGINT NOT NULL);
CREATE TABLE {APPLICATION_SCHEMA}.vector_index (id TEXT PRIMARY KEY, embedding {APPLICATION_SCHEMA}.vector NOT NULL)
"""
_MARK = sql_postgres(f"INSERT INTO {APPLICATION_SCHEMA}.vector_index_mark (key, mark) VALUES (:key, 0)")
_IDS = sql_postgres(f"SELECT id FROM {APPLICATION_SCHEMA}.vector_index ORDER BY id")
_AHEAD = sql_postgres(f"UPDATE {APPLICATION_SCHEMA}.vector_index_mark SET mark = 9000000000")


@pytest.fixture
def database(postgres_url: str) -> Iterator[Database]:
    with closing(open_database(postgres_url, space="membrane")) as opened:
        yield opened


@pytest.fixture
def facts(database: Database) -> Facts:
    """The vectors' facts, beside an index that follows none of them yet."""

    def act(tx: Tx) -> Facts:
        facts = vector_rows.begin(tx, dimensions=2, model=None)
        tx.script(_STAND_IN)
        tx.execute(_MARK, key=facts.key)
        return facts

    return database.write(act).result()


VECTOR = b"\0\0\x80\x3f\0\0\0\0"


def put(database: Database, id: str, key: str) -> None:
    database.write(lambda tx: vector_rows.put(tx, NewVector(id, VECTOR, "{}"), key=key)).result()


def test_a_vector_that_commits_while_the_index_is_brought_up_to_date_is_found_by_the_next_search(
    database: Database, facts: Facts, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finder = ServerFinder(VectorStoreState(facts), APPLICATION_SCHEMA)
    put(database, "first", facts.key)
    read = vector_rows.changes
    written = Event()
    overtakes = Event()

    def put_slowly(tx: Tx) -> None:
        vector_rows.put(tx, NewVector("late", VECTOR, "{}"), key=facts.key)
        assert vector_rows.count(tx) == 2  # it was sent and has its number; it commits long after
        written.set()
        assert overtakes.wait(30)

    with closing(open_database(postgres_url, space="membrane")) as other:
        late = other.write(put_slowly)
        assert written.wait(30)

        def overtaken(tx: Tx, change: int, id: str, *, limit: int) -> list[VectorChange]:
            page = read(tx, change, id, limit=limit)
            # Everything was read: now the other commits, before this transaction writes down how far it came.
            if not page:
                overtakes.set()
                late.result()
            return page

        with monkeypatch.context() as patch:
            patch.setattr(vector_rows, "changes", overtaken)
            database.write(finder._follow).result()
    assert database.read(finder._behind).result(), "the late vector is not taken for one that was read"
    database.write(finder._follow).result()
    assert database.read(lambda tx: tx.all(_IDS)).result() == [("first",), ("late",)]
    assert not database.read(finder._behind).result()


def test_a_mark_of_another_server_is_not_believed(
    database: Database, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    finder = ServerFinder(VectorStoreState(facts), APPLICATION_SCHEMA)
    put(database, "first", facts.key)
    database.write(finder._follow).result()
    database.write(finder.prepare).result()  # one that fits is left alone: the domain could not be made anew
    database.write(lambda tx: tx.execute(_AHEAD)).result()
    put(database, "second", facts.key)
    tables = pgvector._TABLES.replace("({dimensions})", "")  # a domain takes no length
    monkeypatch.setattr(pgvector, "_TABLES", tables)
    monkeypatch.setattr(pgvector, "_INDEX", "SELECT 1")
    database.write(finder.prepare).result()
    assert database.read(lambda tx: tx.all(_IDS)).result() == [("first",), ("second",)]
