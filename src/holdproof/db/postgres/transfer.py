"""Transfer from and to the schemas of a PostgreSQL database; the contract is in db/transfer.py."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import psycopg
from psycopg import sql as text

from holdproof.db.migrate import COPY_IN_PROGRESS, MOVED, applied
from holdproof.db.postgres.login import SERVED
from holdproof.db.postgres.snapshot import (
    OWN,
    SchemaSnapshot,
    columns,
    connect,
    has,
    has_marks,
    in_use,
    lock_schema,
    ordered,
    sequences,
    snapshot,
    translated,
)
from holdproof.db.postgres.text import loader
from holdproof.db.postgres.wire import APPLICATION_SCHEMA
from holdproof.db.tx import Row, Tx
from holdproof.errors import AlreadyExistsError, BusyError, InvalidInputError

_NAME: Final = "moving-holdproof"  # does not start with "holdproof", so `in_use` does not count it
_PATIENCE_S: Final = 3.0


class PostgresSource:
    """The locked schemas of a store that is read; see TransferSource."""

    def __init__(self, connection: "psycopg.Connection[Any]", snapshots: Mapping[str, SchemaSnapshot]) -> None:
        self._connection = connection
        self._snapshots = snapshots
        self.spaces = list(snapshots)

    def ledger(self, space: str) -> dict[str, str]:
        """See TransferSource."""
        return applied(self._snapshots[space].tx)

    def tx(self, space: str) -> Tx:
        """See TransferSource."""
        return self._snapshots[space].tx

    def tables(self, space: str) -> dict[str, list[str]]:
        """See TransferSource."""
        with translated():
            tables = columns(self._connection, space, kinds="rvmpf")
            # Tables that applications created belong to the space that they use.
            return tables | columns(self._connection, APPLICATION_SCHEMA, kinds="rvmpf") if space == SERVED else tables

    def count(self, space: str, table: str) -> int:
        """See TransferSource."""
        with translated():
            query = text.SQL("SELECT count(*) FROM {}").format(text.Identifier(space, table))
            [(number,)] = self._connection.execute(query).fetchall()
            return int(number)

    def rows(self, space: str, table: str, columns: list[str]) -> Iterator[Row]:
        """See TransferSource."""
        return _rows(self._connection, space, table, columns)

    def counters(self, space: str) -> dict[str, int]:
        """See TransferSource."""
        with translated():
            return {name.partition(".")[0]: last for name, last in sequences(self._connection, space).items()}

    def seal(self, to: str) -> None:
        """See TransferSource; all spaces in one commit."""
        with translated():
            for space in self.spaces:
                self._connection.execute(
                    text.SQL(
                        "INSERT INTO {} (name, sha256, applied_at) VALUES (%s, %s, now()) ON CONFLICT DO NOTHING"
                    ).format(text.Identifier(space, "schema_migrations")),
                    (MOVED, to),
                )
            self._connection.execute("COMMIT")


@contextmanager
def open_source(url: str, spaces: list[str]) -> Iterator[PostgresSource]:
    """Lock the existing schemas: others may read, but nobody can write or open the store until this ends."""
    with connect(url, _NAME) as connection, ExitStack() as ends, translated():
        existing = [space for space in spaces if has(connection, space)]
        connection.execute("SET idle_in_transaction_session_timeout = 0")
        connection.execute("BEGIN")
        for space in existing:
            names = [*columns(connection, space), OWN]
            listed = text.SQL(", ").join(text.Identifier(space, name) for name in names)
            connection.execute(text.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(listed))
        _refuse_open(connection)
        yield PostgresSource(connection, {space: ends.enter_context(snapshot(url, space=space)) for space in existing})


def _refuse_open(connection: "psycopg.Connection[Any]") -> None:
    """Raise BusyError while the store is open elsewhere; connections that are being closed get a few seconds."""
    deadline = time.monotonic() + _PATIENCE_S
    while others := in_use(connection):
        if time.monotonic() >= deadline:
            raise BusyError("the store is open elsewhere; close it there first", connections=others)
        time.sleep(0.05)


class PostgresTarget:
    """The schemas of a store that is being filled; see TransferTarget."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ledger(self, space: str) -> dict[str, str] | None:
        """See TransferTarget; a schema that somebody else filled has an empty one."""
        with connect(self._url, _NAME) as connection, translated():
            return _ledger(connection, space)

    def discard(self, space: str) -> None:
        """See TransferTarget."""
        with connect(self._url, _NAME) as connection, translated(), connection.transaction():
            if has_marks(connection, space):
                lock_schema(connection, space)
            ledger = _ledger(connection, space)
            if ledger is not None and COPY_IN_PROGRESS.name not in ledger:
                raise AlreadyExistsError(f"the target is not empty: it has a {space} already", space=space)
            connection.execute(text.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(text.Identifier(space)))

    def fill(
        self,
        space: str,
        tables: Mapping[str, list[str]],
        rows: Mapping[str, Iterable[Row]],
        counters: Mapping[str, int],
    ) -> None:
        """See TransferTarget."""
        with connect(self._url, _NAME) as connection, translated(), connection.transaction():
            order = ordered(connection, space, list(tables))
            for table in order:
                is_ledger = table == "schema_migrations"
                removable = text.SQL("name <> {}").format(COPY_IN_PROGRESS.name) if is_ledger else text.SQL("true")
                named = text.Identifier(space, table)
                connection.execute(text.SQL("DELETE FROM {} WHERE {}").format(named, removable))
            for table in reversed(order):
                _load(connection, space, table, tables[table], rows[table])
            for name, last in counters.items():
                _set_counter(connection, space, name, last)

    def rows(self, space: str, tables: Mapping[str, list[str]]) -> Iterator[tuple[str, Iterator[Row]]]:
        """See TransferTarget."""
        with connect(self._url, _NAME) as connection:
            for table, listed in tables.items():
                yield table, _rows(connection, space, table, listed)

    def tables(self, space: str) -> dict[str, list[str]]:
        """See TransferTarget."""
        with connect(self._url, _NAME) as connection, translated():
            return columns(connection, space)

    def remove_mark(self, space: str) -> None:
        """See TransferTarget."""
        with connect(self._url, _NAME) as connection, translated():
            connection.execute(
                text.SQL("DELETE FROM {} WHERE name = {}").format(
                    text.Identifier(space, "schema_migrations"), COPY_IN_PROGRESS.name
                )
            )


def _ledger(connection: "psycopg.Connection[Any]", space: str) -> dict[str, str] | None:
    tables = columns(connection, space, kinds="rvmpf")
    if "schema_migrations" not in tables:
        # Tables of others are an empty ledger; a schema without tables was created a moment ago and counts as missing.
        return {} if tables else None
    query = text.SQL("SELECT name, sha256 FROM {}").format(text.Identifier(space, "schema_migrations"))
    return dict(connection.execute(query).fetchall())


def _load(
    connection: "psycopg.Connection[Any]", space: str, table: str, columns: list[str], rows: Iterable[Row]
) -> None:
    listed = text.SQL(", ").join(map(text.Identifier, columns))
    statement = text.SQL("COPY {} ({}) FROM STDIN").format(text.Identifier(space, table), listed)
    try:
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
    except psycopg.DataError as error:  # a NUL in a text, or a type that only SQLite stores in such a column
        raise InvalidInputError(f"a row of {table} cannot be stored by PostgreSQL: {error}", table=table) from error


def _set_counter(connection: "psycopg.Connection[Any]", space: str, table: str, last: int) -> None:
    identities = connection.execute(
        "SELECT a.attname FROM pg_attribute a WHERE a.attrelid = %s::regclass AND a.attidentity <> ''",
        (f"{space}.{table}",),
    ).fetchall()
    for (column,) in identities:
        connection.execute("SELECT setval(pg_get_serial_sequence(%s, %s), %s)", (f"{space}.{table}", column, last))


def _rows(connection: "psycopg.Connection[Any]", space: str, table: str, columns: list[str]) -> Iterator[Row]:
    listed = text.SQL(", ").join(map(text.Identifier, columns))
    named = text.Identifier(space, table)
    with connection.cursor() as cursor, translated():
        cursor.execute(text.SQL("SELECT {} FROM {} LIMIT 0").format(listed, named))
        loaders = [loader(column.type_code) for column in cursor.description or ()]
        with cursor.copy(text.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(listed, named)) as copy:
            for row in copy.rows():
                yield _plain(loaders, row)


def _plain(loaders: list[Callable[[bytes], Any]], row: tuple[Any, ...]) -> Row:
    return tuple(
        None if value is None else load(value.encode() if isinstance(value, str) else value)
        for load, value in zip(loaders, row, strict=True)
    )
