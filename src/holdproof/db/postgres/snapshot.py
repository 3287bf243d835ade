"""A snapshot of a store's schemas, read table by table: for backups, copies and moves.

Rules:
- Every schema is read from one exported snapshot, so rows of different schemas belong together. No program but the
  server is needed.
- A backup reads while writers go on. A move locks every table first, and seals the source in the same transaction.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final, LiteralString, NamedTuple

import psycopg
from psycopg import sql as text

from holdproof.db.clock import system_random
from holdproof.db.migrate import MOVED, applied
from holdproof.db.postgres.catalogue import (
    COMMIT_MARKS,
    TableColumn,
    columns,
    connect,
    has,
    in_use,
    sequences,
    translated,
)
from holdproof.db.postgres.connection import PostgresTx, ServerClock
from holdproof.db.postgres.connector import Connector
from holdproof.db.postgres.login import SERVED
from holdproof.db.postgres.text import loader
from holdproof.db.row_stream import RowStream
from holdproof.db.tx import APPLICATION_SCHEMA, DERIVED_TABLES, Row, Tx
from holdproof.errors import BusyError

MOVING: Final = "moving-holdproof"  # does not start with "holdproof", so `in_use` does not count it
_PATIENCE_S: Final = 3.0


class Exclusions(NamedTuple):
    """What a snapshot withholds of the kernel: columns read as NULL, rows by a condition (never from a user)."""

    columns: frozenset[tuple[str, str]] = frozenset()
    where: Mapping[str, LiteralString] = {}


class PostgresSnapshot:
    """Schemas of a store as they were at one moment; see TableSnapshot."""

    def __init__(
        self, connection: "psycopg.Connection[Any]", name: str, txs: Mapping[str, Tx], without: Exclusions
    ) -> None:
        self.connection = connection
        self.name = name
        """The server's name of the snapshot; another connection can import it while this one is open."""
        self._txs = txs
        self._without = without
        self.spaces = list(txs)

    def ledger(self, space: str) -> dict[str, str]:
        """See TableSnapshot."""
        return applied(self._txs[space])

    def tx(self, space: str) -> Tx:
        """See TableSnapshot."""
        return self._txs[space]

    def columns(self, space: str) -> dict[str, list[TableColumn]]:
        """Return every table with the names and types of its columns."""
        with translated():
            return columns(self.connection, space)

    def tables(self, space: str) -> dict[str, list[str]]:
        """See TableSnapshot; views and foreign tables are listed too, so that nothing is left out unnoticed.

        Tables that applications created belong to the space that they use; they are listed with their schema.
        """
        with translated():
            tables = columns(self.connection, space, kinds="rvmpf")
            if space == SERVED:
                created = columns(self.connection, APPLICATION_SCHEMA, kinds="rvmpf")
                tables |= {f"{APPLICATION_SCHEMA}.{name}": created[name] for name in created.keys() - DERIVED_TABLES}
            return {table: [column.name for column in listed] for table, listed in tables.items()}

    def count(self, space: str, table: str) -> int:
        """See TableSnapshot."""
        with translated():
            query = text.SQL("SELECT count(*) FROM {}").format(text.Identifier(space, table))
            [(number,)] = self.connection.execute(query).fetchall()
            return int(number)

    def rows(self, space: str, table: str, columns: list[str]) -> RowStream:
        """See TableSnapshot."""
        without = self._without if space == "kernel" else Exclusions()
        # By the first column: entries of the log are read back in this order.
        return read_table(self.connection, text.Identifier(space, table), columns, without, table=table, order=1)

    def counters(self, space: str) -> dict[str, int]:
        """See TableSnapshot."""
        return {name.partition(".")[0]: last for name, last in self.sequences(space).items()}

    def sequences(self, space: str) -> dict[str, int]:
        """Return the last value of each identity column, by `table.column`."""
        with translated():
            return sequences(self.connection, space)

    def seal(self, to: str) -> None:
        """See TableSnapshot; all spaces in one commit."""
        with translated():
            for space in self.spaces:
                self.connection.execute(
                    text.SQL(
                        "INSERT INTO {} (name, sha256, applied_at) VALUES (%s, %s, now()) ON CONFLICT DO NOTHING"
                    ).format(text.Identifier(space, "schema_migrations")),
                    (MOVED, to),
                )
            self.connection.execute("COMMIT")


def read_table(
    connection: "psycopg.Connection[Any]",
    named: text.Identifier,
    columns: list[str],
    without: Exclusions | None = None,
    *,
    table: str = "",
    order: int | None = None,
) -> RowStream:
    """Return the rows of a table: as COPY's text, or parsed into plain tuples; `order` is the number of a column."""
    without = without or Exclusions()
    listed = text.SQL(", ").join(
        text.SQL("NULL") if (table, column) in without.columns else text.Identifier(column) for column in columns
    )
    where = text.SQL(without.where.get(table, "true"))
    sorting = text.SQL("" if order is None else "ORDER BY {}").format(text.Literal(order))
    statement = text.SQL("COPY (SELECT {} FROM {} WHERE {} {}) TO STDOUT").format(listed, named, where, sorting)

    def chunks() -> Iterator[bytes]:
        with translated(), connection.cursor() as cursor, cursor.copy(statement) as copy:
            for data in copy:
                yield bytes(data)

    def rows() -> Iterator[Row]:
        with translated(), connection.cursor() as cursor:
            # A query of no rows tells the types, which COPY does not.
            cursor.execute(text.SQL("SELECT {} FROM {} LIMIT 0").format(listed, named))
            loaders = [loader(column.type_code) for column in cursor.description or ()]
            with cursor.copy(statement) as copy:
                for row in copy.rows():
                    yield _plain(loaders, row)

    return RowStream(rows, chunks)


def _plain(loaders: list[Callable[[bytes], Any]], row: tuple[Any, ...]) -> Row:
    return tuple(
        None if value is None else load(value.encode() if isinstance(value, str) else value)
        for load, value in zip(loaders, row, strict=True)
    )


@contextmanager
def open_snapshot(url: str, spaces: list[str], without: Exclusions | None = None) -> Iterator[PostgresSnapshot]:
    """Open a snapshot of those schemas that exist; it includes everything acknowledged before."""
    with connect(url) as connection, translated():
        connection.execute("SET idle_in_transaction_session_timeout = 0")
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        with _shared(connection, url, spaces, without or Exclusions()) as snapshot:
            yield snapshot


@contextmanager
def open_source(url: str, spaces: list[str]) -> Iterator[PostgresSnapshot]:
    """Lock the existing schemas: others may read, but nobody can write or open the store until this ends."""
    with connect(url, MOVING) as connection, translated():
        connection.execute("SET idle_in_transaction_session_timeout = 0")
        connection.execute("BEGIN")
        for space in spaces:
            if has(connection, space):
                names = [*columns(connection, space), COMMIT_MARKS]
                listed = text.SQL(", ").join(text.Identifier(space, name) for name in names)
                connection.execute(text.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(listed))
        _refuse_open(connection)
        with _shared(connection, url, spaces, Exclusions()) as snapshot:
            yield snapshot


@contextmanager
def _shared(
    connection: "psycopg.Connection[Any]", url: str, spaces: list[str], without: Exclusions
) -> Iterator[PostgresSnapshot]:
    """Share the snapshot of a connection with one `Tx` for each schema: COPY runs on the one, `Tx` on the others."""
    with ExitStack() as ends:
        [(name,)] = connection.execute("SELECT pg_export_snapshot()").fetchall()
        txs = {space: _import(ends, url, space, name) for space in spaces if has(connection, space)}
        yield PostgresSnapshot(connection, name, txs, without)


def _import(ends: ExitStack, url: str, space: str, name: str) -> Tx:
    wire = Connector(url, space, connect_s=10, lock_s=10, read_s=600).wire("holdproof-backup", reads=True)
    ends.callback(wire.close)
    clock = ServerClock()
    clock.measure(wire)
    tx = PostgresTx(clock, system_random)
    tx.wire = wire
    wire.text("SET idle_in_transaction_session_timeout = 0")
    wire.text("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    wire.text(f"SET TRANSACTION SNAPSHOT '{name}'")
    wire.sync()
    return tx


def _refuse_open(connection: "psycopg.Connection[Any]") -> None:
    """Raise BusyError while the store is open elsewhere; connections that are being closed get a few seconds."""
    deadline = time.monotonic() + _PATIENCE_S
    while others := in_use(connection):
        if time.monotonic() >= deadline:
            raise BusyError(
                "the store is open elsewhere; close it there first. Where a pooler keeps sessions that nobody uses,"
                " RECONNECT on its console closes them",
                connections=others,
            )
        time.sleep(0.05)
