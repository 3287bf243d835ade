"""Fill schemas of a PostgreSQL database: those of a move, and those that a restore stages beside the live ones.

Rules:
- A restore loads into schemas of its own (`kernel_restoring` …), so nothing live is touched before `exchange`, which
  is one transaction over all of them. An open store prevents it.
- Rows that are COPY text already pass as they are; all others pass as plain tuples.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import psycopg
from psycopg import sql as text

from holdproof.db.migrate import MOVE_IN_PROGRESS
from holdproof.db.postgres import login
from holdproof.db.postgres.catalogue import COMMIT_MARKS, columns, connect, has, lock_schema, ordered, translated
from holdproof.db.postgres.login import SERVED
from holdproof.db.postgres.snapshot import MOVING, read_table
from holdproof.db.row_stream import RowStream
from holdproof.db.tx import APPLICATION_SCHEMA
from holdproof.errors import AlreadyExistsError, CorruptError, HoldproofError, InvalidInputError

SPACES: Final = ("kernel", "membrane", "telemetry")
_SCHEMAS: Final = (*SPACES, APPLICATION_SCHEMA)


def staged(space: str) -> str:
    """Return the schema in which a restore loads a space."""
    return f"{space}_restoring"


class PostgresTarget:
    """Schemas that are being filled; see Target. With `staging` they are those of a restore."""

    def __init__(self, url: str, *, staging: bool = False) -> None:
        self._url = url
        self._staging = staging

    def _schema(self, space: str) -> str:
        return staged(space) if self._staging else space

    def ledger(self, space: str) -> dict[str, str] | None:
        """See Target; a schema that somebody else filled has an empty one."""
        with connect(self._url, MOVING) as connection, translated():
            return _ledger(connection, self._schema(space))

    def discard(self, space: str) -> None:
        """See Target."""
        with connect(self._url, MOVING) as connection, translated(), connection.transaction():
            lock_schema(connection, space)
            ledger = _ledger(connection, space)
            if ledger is not None and MOVE_IN_PROGRESS.name not in ledger:
                raise AlreadyExistsError(f"the target is not empty: it has a {space} already", space=space)
            connection.execute(text.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(text.Identifier(space)))

    def fill(
        self,
        space: str,
        tables: Mapping[str, list[str]],
        rows: Mapping[str, RowStream],
        counters: Mapping[str, int],
    ) -> None:
        """See Target."""
        schema = self._schema(space)
        with connect(self._url, MOVING) as connection, translated(), connection.transaction():
            existing = columns(connection, schema)
            for table in ordered(connection, schema, list(existing)):
                # The mark of an unfinished move stays until the move is complete.
                is_ledger = table == "schema_migrations"
                removable = text.SQL("name <> {}").format(MOVE_IN_PROGRESS.name) if is_ledger else text.SQL("true")
                named = text.Identifier(schema, table)
                connection.execute(text.SQL("DELETE FROM {} WHERE {}").format(named, removable))
            for table in reversed(ordered(connection, schema, list(tables))):
                if not set(tables[table]) <= {column.name for column in existing.get(table, ())}:
                    raise CorruptError(f"the source has columns of {table} that its schema does not have", table=table)
                load_table(connection, text.Identifier(schema, table), tables[table], rows[table])
            for name, last in counters.items():
                _set_counter(connection, schema, name, last)

    def rows(self, space: str, tables: Mapping[str, list[str]]) -> Iterator[tuple[str, RowStream]]:
        """See Target."""
        with connect(self._url, MOVING) as connection:
            for table, listed in tables.items():
                yield table, read_table(connection, text.Identifier(self._schema(space), table), listed)

    def tables(self, space: str) -> dict[str, list[str]]:
        """See Target."""
        with connect(self._url, MOVING) as connection, translated():
            listed = columns(connection, self._schema(space))
            return {table: [column.name for column in listed[table]] for table in listed}

    def remove_mark(self, space: str) -> None:
        """See Target."""
        with connect(self._url, MOVING) as connection, translated():
            connection.execute(
                text.SQL("DELETE FROM {} WHERE name = {}").format(
                    text.Identifier(self._schema(space), "schema_migrations"), MOVE_IN_PROGRESS.name
                )
            )


def _ledger(connection: "psycopg.Connection[Any]", schema: str) -> dict[str, str] | None:
    tables = columns(connection, schema, kinds="rvmpf")
    if "schema_migrations" not in tables:
        # Tables of others are an empty ledger; a schema without tables was created a moment ago and counts as missing.
        return {} if tables else None
    query = text.SQL("SELECT name, sha256 FROM {}").format(text.Identifier(schema, "schema_migrations"))
    return dict(connection.execute(query).fetchall())


def load_table(
    connection: "psycopg.Connection[Any]", named: text.Identifier, columns: list[str], rows: RowStream
) -> None:
    """Append rows to a table; InvalidInputError for a value that PostgreSQL cannot store."""
    table = named.as_string(connection)
    listed = text.SQL(", ").join(map(text.Identifier, columns))
    statement = text.SQL("COPY {} ({}) FROM STDIN").format(named, listed)
    try:
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            if rows.text is not None:
                for chunk in rows.text():
                    copy.write(chunk)
            else:
                for row in rows:
                    copy.write_row(row)
    except psycopg.DataError as error:  # a NUL in a text, or a type that only SQLite stores in such a column
        raise InvalidInputError(f"a row of {table} cannot be stored by PostgreSQL: {error}", table=table) from error


def _set_counter(connection: "psycopg.Connection[Any]", schema: str, table: str, last: int) -> None:
    named = text.Identifier(schema, table).as_string(connection)
    identities = connection.execute(
        "SELECT a.attname FROM pg_attribute a WHERE a.attrelid = %s::regclass AND a.attidentity <> ''", (named,)
    ).fetchall()
    for (column,) in identities:
        connection.execute("SELECT setval(pg_get_serial_sequence(%s, %s), %s)", (named, column, last))


# --- staging a restore -------------------------------------------------------------------------------------------


def prepare(url: str, spaces: Sequence[str]) -> None:
    """Create an empty schema for each space; the remains of an earlier attempt are dropped."""
    discard(url)
    with connect(url) as connection, translated(), connection.transaction():
        for schema in map(text.Identifier, map(staged, _schemas(spaces))):
            connection.execute(text.SQL("CREATE SCHEMA {}").format(schema))
            connection.execute(text.SQL("REVOKE ALL ON SCHEMA {} FROM PUBLIC").format(schema))
        for space in spaces:
            # With this table the schema counts as Holdproof's, and opening it creates no roles of its name.
            connection.execute(
                text.SQL(
                    "CREATE TABLE {} (worker TEXT PRIMARY KEY, mark TEXT NOT NULL, at TIMESTAMPTZ NOT NULL)"
                ).format(text.Identifier(staged(space), COMMIT_MARKS))
            )


def discard(url: str) -> None:
    """Drop what was staged; failures are ignored."""
    with suppress(HoldproofError), connect(url) as connection, translated():
        logins = _staged_logins(connection)
        for schema in _SCHEMAS:
            connection.execute(text.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(text.Identifier(staged(schema))))
        for name in logins:
            connection.execute(text.SQL("DROP ROLE IF EXISTS {}").format(text.Identifier(name)))


def _staged_logins(connection: "psycopg.Connection[Any]") -> list[str]:
    """Return the login that was made for a staged schema: nobody else will ever use it."""
    [(table,)] = connection.execute("SELECT to_regclass('membrane_restoring.membrane_login')").fetchall()
    if table is None:
        return []
    return [
        str(name) for (name,) in connection.execute("SELECT name FROM membrane_restoring.membrane_login").fetchall()
    ]


def grant(url: str, space: str) -> None:
    """Give the role of a space its rights in the staged schema, as a new schema would have them."""
    with connect(url) as connection, translated(), connection.transaction():
        connection.execute(_GRANTS.format(space=space, schema=staged(space)).encode())
        if space == SERVED:
            statements = login.rights(staged(SERVED), staged(APPLICATION_SCHEMA))
            connection.execute(_IF_ROLES.format(statements=";".join(statements)).encode())


def exchange(url: str, spaces: Sequence[str], aside: str) -> None:
    """Replace the live schemas by the staged ones in one transaction; waits for who opens or migrates them.

    The old kernel is renamed to `aside`, the others to `aside` and their own name. A space that was not staged is
    moved aside all the same: it belongs to the store that is replaced.
    """
    with connect(url) as connection, translated(), connection.transaction():
        for schema in filter(partial(has, connection), _SCHEMAS):
            lock_schema(connection, schema)
            _rename(connection, schema, aside if schema == "kernel" else f"{aside}_{schema}")
        for schema in _schemas(spaces):
            _rename(connection, staged(schema), schema)
        if SERVED in spaces:
            connection.execute(_MOVE_EXTENSION.format(aside=f"{aside}_{SERVED}").encode())


def _rename(connection: "psycopg.Connection[Any]", schema: str, name: str) -> None:
    connection.execute(text.SQL("ALTER SCHEMA {} RENAME TO {}").format(text.Identifier(schema), text.Identifier(name)))


def _schemas(spaces: Sequence[str]) -> list[str]:
    """Return the schemas of these spaces: applications create their tables beside the space that they use."""
    return [*spaces, *([APPLICATION_SCHEMA] if SERVED in spaces else [])]


# Without the right to make roles, those that exist get their rights all the same: the login of services depends on
# them. Where there are none the schema's owner works alone.
_GRANTS: Final = """
DO $$ BEGIN
  BEGIN
    CREATE ROLE holdproof_{space} NOLOGIN;
  EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL;
  END;
  GRANT USAGE ON SCHEMA {schema} TO holdproof_{space};
  GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO holdproof_{space};
  ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO holdproof_{space};
EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL;
END $$
"""

_IF_ROLES: Final = """
DO $$ BEGIN
  {statements};
EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL;
END $$
"""

# The extension is installed in the schema of the application tables: left in the schema that was moved aside, it would
# go, with every column of its types, when somebody drops that.
_MOVE_EXTENSION: Final = """
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
             WHERE e.extname = 'vector' AND n.nspname = '{aside}') THEN
    ALTER EXTENSION vector SET SCHEMA membrane;
  END IF;
EXCEPTION WHEN insufficient_privilege THEN NULL;
END $$
"""
