"""Snapshots of a schema: read table by table, loaded into a second schema, exchanged by renaming.

Rules:
- Everything is read from one REPEATABLE READ snapshot while writers continue. No program but the server is needed.
- A copy is loaded into a schema of its own, so nothing live is touched before `exchange`, which is one transaction.
- Nobody can open the store while its schema is exchanged; an open store prevents the exchange.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, LiteralString, NamedTuple

import psycopg
from psycopg import sql as text
from psycopg.conninfo import make_conninfo

from holdproof.db.clock import system_random
from holdproof.db.postgres import conninfo
from holdproof.db.postgres.connection import Connector, PostgresTx, ServerClock
from holdproof.db.postgres.liveness import MonitoredConnection
from holdproof.db.postgres.wire import words
from holdproof.db.tx import Tx
from holdproof.errors import CorruptError, DatabaseError, HoldproofError, UnavailableError

STAGED: Final = "kernel_restoring"
_CHUNK = 1 << 20
OWN: Final = "commit_marks"
"""A table of the connections, not of the store: never copied."""


class Exclusions(NamedTuple):
    """What a copy excludes: columns read as NULL, rows by a condition (both from code, never from a user)."""

    columns: frozenset[tuple[str, str]] = frozenset()
    where: Mapping[str, LiteralString] = {}


class SchemaSnapshot:
    """One snapshot of a schema: for reading through `tx`, and for copying out."""

    def __init__(self, connection: "psycopg.Connection[Any]", space: str, tx: Tx) -> None:
        self._connection = connection
        self._space = space
        self.tx = tx

    def dump(
        self, folder: Path, without: Exclusions, progress: Callable[[int, int], None]
    ) -> tuple[dict[str, list[str]], dict[str, int]]:
        """Write a file for each table; returns the columns of each table and the values of the sequences."""
        tables = columns(self._connection, self._space)
        for number, (table, listed) in enumerate(tables.items(), 1):
            handle = os.open(folder / f"{table}.copy", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file, translated():
                for chunk in self._rows(table, listed, without):
                    file.write(chunk)
            progress(number, len(tables))
        return tables, sequences(self._connection, self._space)

    def _rows(self, table: str, columns: list[str], without: Exclusions) -> Iterator[bytes]:
        listed = [
            text.SQL("NULL") if (table, column) in without.columns else text.Identifier(column) for column in columns
        ]
        where = text.SQL(without.where.get(table, "true"))
        statement = text.SQL("COPY (SELECT {} FROM {} WHERE {} ORDER BY 1) TO STDOUT").format(
            text.SQL(", ").join(listed), text.Identifier(self._space, table), where
        )
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for data in copy:
                yield bytes(data)


@contextmanager
def snapshot(url: str, *, space: str = "kernel") -> Iterator[SchemaSnapshot]:
    """Open a snapshot that includes everything acknowledged before."""
    connector = Connector(url, space, connect_s=10, lock_s=10, read_s=600)
    with connect(url) as connection, translated():
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        # Two connections, one snapshot: psycopg's COPY on one, `Tx` with its pipeline on the other.
        [(name,)] = connection.execute("SELECT pg_export_snapshot()").fetchall()
        wire = connector.wire("holdproof-backup", reads=True)
        try:
            clock = ServerClock()
            clock.measure(wire)
            tx = PostgresTx(clock, system_random)
            tx.wire = wire
            wire.text("SET idle_in_transaction_session_timeout = 0")
            wire.text("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            wire.text(f"SET TRANSACTION SNAPSHOT '{name}'")
            wire.sync()
            yield SchemaSnapshot(connection, space, tx)
        finally:
            wire.close()


# --- loading -----------------------------------------------------------------------------------------------------


def prepare(url: str) -> None:
    """Create an empty schema for a copy; the remains of an earlier attempt are dropped."""
    with connect(url) as connection, translated(), connection.transaction():
        connection.execute(f"DROP SCHEMA IF EXISTS {STAGED} CASCADE")
        connection.execute(f"CREATE SCHEMA {STAGED}")
        connection.execute(f"REVOKE ALL ON SCHEMA {STAGED} FROM PUBLIC")
        connection.execute(
            f"CREATE TABLE {STAGED}.{OWN} (worker TEXT PRIMARY KEY, mark TEXT NOT NULL, at TIMESTAMPTZ NOT NULL)"
        )


def discard(url: str) -> None:
    """Drop what was loaded; failures are ignored."""
    with suppress(HoldproofError), connect(url) as connection, translated():
        connection.execute(f"DROP SCHEMA IF EXISTS {STAGED} CASCADE")


def load(
    url: str,
    tables: Mapping[str, list[str]],
    sequences: Mapping[str, int],
    read: Callable[[str], Iterable[bytes]],
) -> None:
    """Fill the tables of the prepared schema; `read` yields the chunks of a table and raises if they are damaged."""
    with connect(url) as connection, translated(), connection.transaction():
        for table in ordered(connection, STAGED, list(columns(connection, STAGED))):
            connection.execute(text.SQL("DELETE FROM {}").format(text.Identifier(STAGED, table)))
        existing = columns(connection, STAGED)
        for table in reversed(ordered(connection, STAGED, list(tables))):
            if not set(tables[table]) <= set(existing.get(table, ())):
                raise CorruptError(f"the backup has columns of {table} that its schema does not have", table=table)
            listed = text.SQL(", ").join(map(text.Identifier, tables[table]))
            statement = text.SQL("COPY {} ({}) FROM STDIN").format(text.Identifier(STAGED, table), listed)
            with connection.cursor() as cursor, cursor.copy(statement) as copy:
                for chunk in read(table):
                    copy.write(chunk)
        for name, value in sequences.items():
            table, _, column = name.partition(".")
            connection.execute(
                "SELECT setval(pg_get_serial_sequence(%s, %s), %s)", (f"{STAGED}.{table}", column, value)
            )


def exchange(url: str, aside: str) -> None:
    """Replace the live schema by the loaded one in one transaction; the old one is renamed to `aside`."""
    with connect(url) as connection, translated(), connection.transaction():
        if has(connection, "kernel"):
            if has_marks(connection, "kernel"):
                lock_schema(connection, "kernel")
            connection.execute(text.SQL("ALTER SCHEMA kernel RENAME TO {}").format(text.Identifier(aside)))
        connection.execute(f"ALTER SCHEMA {STAGED} RENAME TO kernel")
        connection.execute(_GRANTS)


_GRANTS = """
DO $$ BEGIN
  GRANT USAGE ON SCHEMA kernel TO holdproof_kernel;
  GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kernel TO holdproof_kernel;
  ALTER DEFAULT PRIVILEGES IN SCHEMA kernel GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO holdproof_kernel;
EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL;
END $$
"""


def lock_schema(connection: "psycopg.Connection[Any]", space: str) -> None:
    """Wait for everybody who opens or migrates this schema, and keep others from it until the transaction ends."""
    marks = text.Identifier(space, OWN)
    connection.execute(text.SQL("LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE").format(marks))


def opened(url: str) -> int:
    """Return how many connections of open stores a database has."""
    with connect(url) as connection, translated():
        return in_use(connection)


def exists(url: str, space: str = "kernel") -> bool:
    """Return whether a database has that schema."""
    with connect(url) as connection, translated():
        return has(connection, space)


# --- what the server knows of a schema ---------------------------------------------------------------------------


def connect(url: str, name: str = "holdproof-copy") -> "psycopg.Connection[Any]":
    """Open a connection that commits each statement and waits ten seconds at most for locks."""
    try:
        # The owner's rights are used here: nothing that somebody else may create in is on its search path.
        options = "-c search_path=pg_catalog -c TimeZone=UTC -c DateStyle=ISO -c bytea_output=hex"
        options += " -c extra_float_digits=1 -c lock_timeout=10s"
        parts: dict[str, Any] = {**conninfo.parse(url), "application_name": name, "options": options}
        address = make_conninfo(**parts, client_encoding="utf8")
        connection = MonitoredConnection.connect(address, autocommit=True)
        connection.conninfo = address
    except psycopg.Error as error:
        raise UnavailableError(f"cannot connect to PostgreSQL: {words(error)}") from error
    return connection


@contextmanager
def translated() -> Iterator[None]:
    """Translate the driver's errors into Holdproof's."""
    try:
        yield
    except psycopg.OperationalError as error:
        raise UnavailableError(f"PostgreSQL: {words(error)}") from error
    except psycopg.Error as error:
        raise DatabaseError(f"PostgreSQL: {words(error)}") from error


def in_use(connection: "psycopg.Connection[Any]") -> int:
    """Return how many other connections of open stores there are."""
    [(count,)] = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND application_name LIKE 'holdproof%'"
    ).fetchall()
    return int(count)


def has(connection: "psycopg.Connection[Any]", space: str) -> bool:
    """Return whether there is such a schema."""
    return bool(connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (space,)).fetchall())


def has_marks(connection: "psycopg.Connection[Any]", space: str) -> bool:
    """Return whether the schema is one of ours: it has the table of its connections' marks."""
    return bool(connection.execute("SELECT 1 WHERE to_regclass(%s) IS NOT NULL", (f"{space}.{OWN}",)).fetchall())


def columns(connection: "psycopg.Connection[Any]", space: str, kinds: str = "r") -> dict[str, list[str]]:
    """Return the tables of a schema and their columns, without the connections' own."""
    rows = connection.execute(
        "SELECT c.relname, a.attname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN pg_attribute a ON a.attrelid = c.oid WHERE n.nspname = %s AND c.relkind = ANY(%s) AND c.relname <> %s"
        " AND a.attnum > 0 AND NOT a.attisdropped ORDER BY c.relname, a.attnum",
        (space, list(kinds), OWN),
    ).fetchall()
    tables: dict[str, list[str]] = {}
    for table, column in rows:
        tables.setdefault(table, []).append(column)
    return tables


def sequences(connection: "psycopg.Connection[Any]", space: str) -> dict[str, int]:
    """Return the last value of each identity column, by `table.column`; unused ones are omitted."""
    rows = connection.execute(
        "SELECT c.relname, a.attname, pg_sequence_last_value(pg_get_serial_sequence(n.nspname || '.' || c.relname,"
        " a.attname)::regclass) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN pg_attribute a ON a.attrelid = c.oid WHERE n.nspname = %s AND c.relkind = 'r' AND a.attidentity <> ''",
        (space,),
    ).fetchall()
    return {f"{table}.{column}": int(value) for table, column, value in rows if value is not None}


def ordered(connection: "psycopg.Connection[Any]", space: str, tables: list[str]) -> list[str]:
    """Sort tables so that rows can be deleted in this order, and inserted in the reverse one (foreign keys)."""
    rows = connection.execute(
        "SELECT c.conrelid::regclass::text, c.confrelid::regclass::text FROM pg_constraint c"
        " JOIN pg_namespace n ON n.oid = c.connamespace WHERE n.nspname = %s AND c.contype = 'f'",
        (space,),
    ).fetchall()
    needs = {(child.rpartition(".")[2], parent.rpartition(".")[2]) for child, parent in rows}
    remaining = sorted(tables)
    order: list[str] = []
    while remaining:
        # Free: no other remaining table refers to it.
        free = [name for name in remaining if not any((child, name) in needs and child != name for child in remaining)]
        if not free:
            raise DatabaseError("tables whose foreign keys form a cycle cannot be loaded")
        order += free
        remaining = [name for name in remaining if name not in free]
    return order
