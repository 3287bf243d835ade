"""Leaving and filling the schemas of a server's database."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import psycopg
from psycopg import sql as text

from holdproof.db.migrate import ARRIVING, MOVED, applied
from holdproof.db.postgres.snapshot import (
    OWN,
    Snapshot,
    columns,
    connect,
    has,
    in_use,
    ordered,
    sequences,
    snapshot,
    translated,
)
from holdproof.db.postgres.text import loader
from holdproof.db.tx import Row, Tx
from holdproof.errors import AlreadyExistsError, BusyError, InvalidInputError

_NAME: Final = "moving-holdproof"  # not counted among those who have the store open
_PATIENCE_S: Final = 3.0


class Leaving:
    """The schemas of a store that is being left; see db/transfer.py."""

    def __init__(self, connection: "psycopg.Connection[Any]", shots: Mapping[str, Snapshot]) -> None:
        self._connection, self._shots, self.spaces = connection, shots, list(shots)

    def ledger(self, space: str) -> dict[str, str]:
        """See Leaving."""
        return applied(self._shots[space].tx)

    def tx(self, space: str) -> Tx:
        """See Leaving."""
        return self._shots[space].tx

    def tables(self, space: str) -> dict[str, list[str]]:
        """See Leaving."""
        with translated():
            return columns(self._connection, space, kinds="rvmpf")

    def count(self, space: str, table: str) -> int:
        """See Leaving."""
        with translated():
            asked = text.SQL("SELECT count(*) FROM {}").format(text.Identifier(space, table))
            [(number,)] = self._connection.execute(asked).fetchall()
            return int(number)

    def rows(self, space: str, table: str, columns: list[str]) -> Iterator[Row]:
        """See Leaving."""
        return _rows(self._connection, space, table, columns)

    def counters(self, space: str) -> dict[str, int]:
        """See Leaving."""
        with translated():
            return {name.partition(".")[0]: last for name, last in sequences(self._connection, space).items()}

    def seal(self, to: str) -> None:
        """See Leaving: all spaces in one commit."""
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
def leave(url: str, spaces: list[str]) -> Iterator[Leaving]:
    """Hold the schemas that are there: others may look, but nobody can write, nor open them before we are done."""
    with connect(url, _NAME) as connection, ExitStack() as ends, translated():
        there = [space for space in spaces if has(connection, space)]
        connection.execute("SET idle_in_transaction_session_timeout = 0")
        connection.execute("BEGIN")
        for space in there:
            names = [*columns(connection, space), OWN]
            listed = text.SQL(", ").join(text.Identifier(space, name) for name in names)
            connection.execute(text.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(listed))
        _refuse_open(connection)
        yield Leaving(connection, {space: ends.enter_context(snapshot(url, space=space)) for space in there})


def _refuse_open(connection: "psycopg.Connection[Any]") -> None:
    """BusyError while anybody has the store open; connections that were just closed get a moment to go."""
    deadline = time.monotonic() + _PATIENCE_S
    while others := in_use(connection):
        if time.monotonic() >= deadline:
            raise BusyError("the store is open elsewhere: close it first", connections=others)
        time.sleep(0.05)


class Arriving:
    """The schemas of a store that is being filled; see db/transfer.py."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ledger(self, space: str) -> dict[str, str] | None:
        """See Arriving; a schema that somebody else filled has an empty one."""
        with connect(self._url, _NAME) as connection, translated():
            return _ledger(connection, space)

    def discard(self, space: str) -> None:
        """See Arriving."""
        with connect(self._url, _NAME) as connection, translated(), connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('holdproof schema'))")
            ledger = _ledger(connection, space)
            if ledger is not None and ARRIVING.name not in ledger:
                raise AlreadyExistsError(f"the target is not empty: it has a {space} already", space=space)
            connection.execute(text.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(text.Identifier(space)))

    def fill(
        self,
        space: str,
        tables: Mapping[str, list[str]],
        rows: Mapping[str, Iterable[Row]],
        counters: Mapping[str, int],
    ) -> None:
        """See Arriving."""
        with connect(self._url, _NAME) as connection, translated(), connection.transaction():
            order = ordered(connection, space, list(tables))
            for table in order:
                keep = (
                    text.SQL("name <> {}").format(ARRIVING.name) if table == "schema_migrations" else text.SQL("true")
                )
                named = text.Identifier(space, table)
                connection.execute(text.SQL("DELETE FROM {} WHERE {}").format(named, keep))
            for table in reversed(order):
                _load(connection, space, table, tables[table], rows[table])
            for name, last in counters.items():
                _set_counter(connection, space, name, last)

    def rows(self, space: str, tables: Mapping[str, list[str]]) -> Iterator[tuple[str, Iterator[Row]]]:
        """See Arriving."""
        with connect(self._url, _NAME) as connection:
            for table, listed in tables.items():
                yield table, _rows(connection, space, table, listed)

    def tables(self, space: str) -> dict[str, list[str]]:
        """See Arriving."""
        with connect(self._url, _NAME) as connection, translated():
            return columns(connection, space)

    def settle(self, space: str) -> None:
        """See Arriving."""
        with connect(self._url, _NAME) as connection, translated():
            connection.execute(
                text.SQL("DELETE FROM {} WHERE name = {}").format(
                    text.Identifier(space, "schema_migrations"), ARRIVING.name
                )
            )


def _ledger(connection: "psycopg.Connection[Any]", space: str) -> dict[str, str] | None:
    found = columns(connection, space, kinds="rvmpf")
    if "schema_migrations" not in found:
        return {} if found else None  # somebody else's, or none; one that was only just made counts as none
    asked = text.SQL("SELECT name, sha256 FROM {}").format(text.Identifier(space, "schema_migrations"))
    return dict(connection.execute(asked).fetchall())


def _load(
    connection: "psycopg.Connection[Any]", space: str, table: str, columns: list[str], rows: Iterable[Row]
) -> None:
    listed = text.SQL(", ").join(map(text.Identifier, columns))
    statement = text.SQL("COPY {} ({}) FROM STDIN").format(text.Identifier(space, table), listed)
    try:
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
    except psycopg.DataError as error:  # a NUL in a text, or a type that only SQLite keeps in such a column
        raise InvalidInputError(f"a row of {table} cannot be kept by PostgreSQL: {error}", table=table) from error


def _set_counter(connection: "psycopg.Connection[Any]", space: str, table: str, last: int) -> None:
    found = connection.execute(
        "SELECT a.attname FROM pg_attribute a WHERE a.attrelid = %s::regclass AND a.attidentity <> ''",
        (f"{space}.{table}",),
    ).fetchall()
    for (column,) in found:
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
