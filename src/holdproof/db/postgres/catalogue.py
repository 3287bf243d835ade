"""Connections for whole-store work, and what the server's catalogue says of a schema.

Everything here runs as the owner of the store. So the search path is `pg_catalog` alone and every name is qualified:
a function or an operator that an application created in its own schema is never called in place of the server's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql as text
from psycopg.conninfo import make_conninfo

from holdproof.db.postgres import conninfo
from holdproof.db.postgres.liveness import MonitoredConnection
from holdproof.db.postgres.wire import NO_OPTIONS, words
from holdproof.errors import ConfigError, DatabaseError, UnavailableError

COMMIT_MARKS: Final = "commit_marks"
"""A table of the connections, not of the store: never copied."""
_SETTINGS: Final = {
    "search_path": "pg_catalog",
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lock_timeout": "10s",
    # A policy that hides rows from the owner is an error here, never a shorter copy.
    "row_security": "off",
}

_NEEDS_SESSION: Final = (
    "a connection pooler such as PgBouncer stands before the server, and work on a whole database (a copy, a backup, a"
    " tenant's own) needs a connection that lasts; name the server itself in HOLDPROOF_DIRECT_URL, or in the database"
    " URL"
)


class TableColumn(NamedTuple):
    """A column of a table and the name of its type."""

    name: str
    type: str


def connect(url: str, name: str = "holdproof-copy", **login: str) -> "psycopg.Connection[Any]":
    """Open a connection that commits each statement and waits ten seconds at most for locks.

    `login` replaces user and password of the URL.
    """
    base = conninfo.parse(url)
    try:
        options = " ".join(f"-c {setting}={value}" for setting, value in _SETTINGS.items())
        parts: dict[str, Any] = {**base, **login, "application_name": name, "options": options}
        address = make_conninfo(**parts, client_encoding="utf8")
        connection = MonitoredConnection.connect(address, autocommit=True)
        connection.conninfo = address
        [(path,)] = connection.execute("SELECT pg_catalog.current_setting('search_path')").fetchall()
    except psycopg.Error as error:
        if NO_OPTIONS in words(error):
            raise ConfigError(_NEEDS_SESSION) from error
        raise UnavailableError(f"cannot connect to PostgreSQL: {words(error)}") from error
    if path != _SETTINGS["search_path"]:
        # A pooler dropped the settings unasked.
        connection.close()
        raise ConfigError(_NEEDS_SESSION)
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


def opened(url: str) -> int:
    """Return how many connections of open stores a database has."""
    with connect(url) as connection, translated():
        return in_use(connection)


def has(connection: "psycopg.Connection[Any]", schema: str) -> bool:
    """Return whether there is such a schema."""
    return bool(connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchall())


def has_marks(connection: "psycopg.Connection[Any]", schema: str) -> bool:
    """Return whether the schema is one of ours: it has the table of its connections' marks."""
    return bool(
        connection.execute("SELECT 1 WHERE to_regclass(%s) IS NOT NULL", (f"{schema}.{COMMIT_MARKS}",)).fetchall()
    )


def lock_schema(connection: "psycopg.Connection[Any]", schema: str) -> None:
    """Wait for everybody who opens or migrates a schema of ours, and keep others from it until the transaction ends."""
    if has_marks(connection, schema):
        marks = text.Identifier(schema, COMMIT_MARKS)
        connection.execute(text.SQL("LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE").format(marks))


def exists(url: str, schema: str = "kernel") -> bool:
    """Return whether a database has that schema."""
    with connect(url) as connection, translated():
        return has(connection, schema)


def columns(connection: "psycopg.Connection[Any]", schema: str, kinds: str = "r") -> dict[str, list[TableColumn]]:
    """Return the tables of a schema and their columns, without the connections' own; `kinds` as in pg_class."""
    rows = connection.execute(
        "SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid"
        # A divided table of the kernel counts once, by its own name; of applications every table is copied by itself.
        " WHERE n.nspname = %s AND (c.relkind = ANY(%s) OR n.nspname = 'kernel' AND c.relkind = 'p')"
        " AND NOT (n.nspname = 'kernel' AND c.relispartition) AND c.relname <> %s AND a.attnum > 0"
        " AND NOT a.attisdropped ORDER BY c.relname, a.attnum",
        (schema, list(kinds), COMMIT_MARKS),
    ).fetchall()
    tables: dict[str, list[TableColumn]] = {}
    for table, column, type_name in rows:
        tables.setdefault(table, []).append(TableColumn(column, type_name))
    return tables


def sequences(connection: "psycopg.Connection[Any]", schema: str) -> dict[str, int]:
    """Return the last value of each identity column, by `table.column`; unused ones are omitted."""
    rows = connection.execute(
        "SELECT c.relname, a.attname, pg_sequence_last_value(pg_get_serial_sequence(quote_ident(n.nspname) || '.'"
        " || quote_ident(c.relname), a.attname)::regclass) FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid"
        # A divided table has a sequence of its own in the place of an identity.
        " WHERE n.nspname = %s AND (c.relkind = 'r' AND a.attidentity <> '' OR n.nspname = 'kernel'"
        " AND c.relkind = 'p' AND a.attname = 'id')",
        (schema,),
    ).fetchall()
    return {f"{table}.{column}": int(value) for table, column, value in rows if value is not None}


def ordered(connection: "psycopg.Connection[Any]", schema: str, tables: list[str]) -> list[str]:
    """Sort tables so that rows can be deleted in this order, and inserted in the reverse one (foreign keys)."""
    rows = connection.execute(
        "SELECT child.relname, parent.relname FROM pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace"
        " JOIN pg_class child ON child.oid = c.conrelid JOIN pg_class parent ON parent.oid = c.confrelid"
        " WHERE n.nspname = %s AND c.contype = 'f'",
        (schema,),
    ).fetchall()
    needs = set(rows)
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
