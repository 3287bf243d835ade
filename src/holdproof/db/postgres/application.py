"""Tables that applications created themselves: their definitions and rows, in a backup and out of it.

Rules:
- Definitions come from the server's own functions (`pg_get_constraintdef` and its kind), so any type, constraint,
  index, view, function or trigger is written as the server understood it. No program but the server is needed.
- Both directions run under the login of the applications, never under the owner's: a function that is called by a
  constraint, an index or a trigger has the rights of who wrote it.
- What cannot be carried is named (`outside`), never left out in silence.
- Definitions have no order that always works (a default calls a function that returns a row of a table …). So those
  that fail are tried again after the others, until none is left or none succeeds.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql as text

from holdproof.db.clock import system_random
from holdproof.db.postgres import login
from holdproof.db.postgres.catalogue import connect, translated
from holdproof.db.postgres.connector import Connector
from holdproof.db.postgres.login import SERVED
from holdproof.db.postgres.snapshot import PostgresSnapshot, read_table
from holdproof.db.postgres.transfer import load_table, staged
from holdproof.db.row_stream import ApplicationTables, RowStream
from holdproof.db.tx import APPLICATION_SCHEMA, DERIVED_TABLES
from holdproof.errors import ConfigError, CorruptError, UnavailableError

SCHEMA: Final = APPLICATION_SCHEMA
_OURS: Final = [*DERIVED_TABLES]
"""What Holdproof keeps in that schema: it follows from other rows."""


class ApplicationSnapshot:
    """The applications' tables at the moment of a snapshot."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection = connection

    def describe(self) -> ApplicationTables:
        """Return every definition; the rows are read with `rows`."""
        with translated():
            return _describe(self._connection)

    def rows(self, table: str, columns: list[str]) -> RowStream:
        """Return the rows of a table."""
        return read_table(self._connection, text.Identifier(SCHEMA, table), columns)


@contextmanager
def open_application(url: str, snapshot: PostgresSnapshot) -> Iterator[ApplicationSnapshot]:
    """Read the applications' tables in the moment of a snapshot, under their own login where they have one."""
    with _connect(url, snapshot) as connection, translated():
        connection.execute("SET idle_in_transaction_session_timeout = 0")
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(text.SQL("SET TRANSACTION SNAPSHOT {}").format(snapshot.name))
        # Definitions name what is on the path without its schema, so that they fit a schema of another name.
        path = text.SQL(", ").join(map(text.Identifier, ("pg_catalog", SCHEMA, SERVED)))
        connection.execute(text.SQL("SET LOCAL search_path = {}").format(path))
        yield ApplicationSnapshot(connection)


def _connect(url: str, snapshot: PostgresSnapshot) -> "psycopg.Connection[Any]":
    credentials = _login(snapshot.connection)
    try:
        return connect(url, **credentials)
    except UnavailableError:
        if not credentials:
            raise
    # SQL of applications can have changed the password of its login.
    return connect(url, **_renewed_login(url, SERVED, SCHEMA))


def _login(owner: "psycopg.Connection[Any]") -> dict[str, str]:
    [(table,)] = owner.execute("SELECT to_regclass('membrane.membrane_login')").fetchall()
    if table is None:
        return {}
    for name, password in owner.execute("SELECT name, password FROM membrane.membrane_login").fetchall():
        return {"user": name, "password": password}
    return {}


# --- reading definitions -----------------------------------------------------------------------------------------

# Members of an extension come with the extension.
_NOT_EXTENSION: Final = (
    " AND NOT EXISTS (SELECT 1 FROM pg_depend e WHERE e.classid = '{catalogue}'::regclass AND e.objid = {oid}"
    " AND e.deptype = 'e')"
)
_IN_SCHEMA: Final = " JOIN pg_namespace n ON n.oid = {space} AND n.nspname = '@application'"


def _query(body: LiteralString, catalogue: LiteralString, oid: LiteralString, space: LiteralString) -> str:
    return (
        body.replace("@schema", _IN_SCHEMA.format(space=space))
        .replace("@own", _NOT_EXTENSION.format(catalogue=catalogue, oid=oid))
        .replace("@application", SCHEMA)
    )


def _relations(body: LiteralString) -> str:
    return _query(body, "pg_class", "c.oid", "c.relnamespace").replace("@mine", "c.relname <> ALL(%(ours)s)")


_ENUMS = _query(
    "SELECT format('CREATE TYPE %%I AS ENUM (%%s)', t.typname, (SELECT string_agg(quote_literal(l.enumlabel), ', '"
    " ORDER BY l.enumsortorder) FROM pg_enum l WHERE l.enumtypid = t.oid)) FROM pg_type t @schema"
    " WHERE t.typtype = 'e' @own",
    "pg_type",
    "t.oid",
    "t.typnamespace",
)
_DOMAINS = _query(
    "SELECT format('CREATE DOMAIN %%I AS %%s%%s%%s%%s', t.typname, format_type(t.typbasetype, t.typtypmod),"
    " coalesce(' DEFAULT ' || t.typdefault, ''), CASE WHEN t.typnotnull THEN ' NOT NULL' ELSE '' END,"
    " coalesce((SELECT string_agg(format(' CONSTRAINT %%I %%s', k.conname, pg_get_constraintdef(k.oid, true)), '')"
    " FROM pg_constraint k WHERE k.contypid = t.oid AND k.contype = 'c'), '')) FROM pg_type t @schema"
    " WHERE t.typtype = 'd' @own",
    "pg_type",
    "t.oid",
    "t.typnamespace",
)
_COMPOSITES = _relations(
    "SELECT format('CREATE TYPE %%I AS (%%s)', c.relname, (SELECT string_agg(format('%%I %%s', a.attname,"
    " format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid"
    " AND a.attnum > 0 AND NOT a.attisdropped)) FROM pg_class c @schema WHERE c.relkind = 'c' @own"
)
_FUNCTIONS = _query(
    "SELECT regexp_replace(pg_get_functiondef(p.oid), '^(CREATE OR REPLACE (FUNCTION|PROCEDURE) )@application\\.',"
    " '\\1') FROM pg_proc p @schema WHERE p.prokind IN ('f', 'p') @own",
    "pg_proc",
    "p.oid",
    "p.pronamespace",
)
_NUMBERING: Final = (
    "format('INCREMENT BY %%s MINVALUE %%s MAXVALUE %%s START WITH %%s CACHE %%s%%s', s.seqincrement, s.seqmin,"
    " s.seqmax, s.seqstart, s.seqcache, CASE WHEN s.seqcycle THEN ' CYCLE' ELSE '' END)"
)
_SEQUENCES = _relations(
    "SELECT c.relname, format('CREATE SEQUENCE %%I AS %%s %%s', c.relname, format_type(s.seqtypid, NULL), "  # noqa: S608
    + _NUMBERING
    + "), (SELECT format('ALTER SEQUENCE %%I OWNED BY %%I.%%I', c.relname, t.relname, a.attname) FROM pg_depend d"
    " JOIN pg_class t ON t.oid = d.refobjid JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid"
    " WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.refclassid = 'pg_class'::regclass"
    " AND d.deptype = 'a') FROM pg_class c @schema JOIN pg_sequence s ON s.seqrelid = c.oid"
    " WHERE c.relkind = 'S' AND @mine @own AND NOT EXISTS (SELECT 1 FROM pg_depend i"
    " WHERE i.classid = 'pg_class'::regclass AND i.objid = c.oid AND i.deptype = 'i')"
)
_TABLES = _relations(
    "SELECT c.relname, c.relpersistence = 'u', pg_get_partkeydef(c.oid), p.relname, pg_get_expr(c.relpartbound, c.oid),"
    " c.relkind::text, c.relrowsecurity FROM pg_class c @schema"
    " LEFT JOIN pg_inherits h ON h.inhrelid = c.oid AND c.relispartition"
    " LEFT JOIN pg_class p ON p.oid = h.inhparent WHERE c.relkind IN ('r', 'p') AND @mine @own ORDER BY c.relname"
)
_COLUMNS = _relations(
    "SELECT c.relname, a.attname, a.attgenerated <> '', format('%%I %%s%%s%%s%%s', a.attname,"  # noqa: S608
    " format_type(a.atttypid, a.atttypmod), CASE WHEN a.attcollation <> 0 AND a.attcollation <> t.typcollation THEN"
    " (SELECT format(' COLLATE %%I.%%I', m.nspname, o.collname) FROM pg_collation o"
    " JOIN pg_namespace m ON m.oid = o.collnamespace WHERE o.oid = a.attcollation) ELSE '' END,"
    " CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END,"
    " CASE WHEN a.attidentity <> '' THEN format(' GENERATED %%s AS IDENTITY (%%s)',"
    " CASE WHEN a.attidentity = 'a' THEN 'ALWAYS' ELSE 'BY DEFAULT' END, (SELECT "
    + _NUMBERING
    + " FROM pg_sequence s WHERE s.seqrelid = pg_get_serial_sequence(format('%%I.%%I', n.nspname, c.relname),"
    " a.attname)::regclass)) WHEN a.attgenerated <> '' THEN format(' GENERATED ALWAYS AS (%%s) %%s',"
    " pg_get_expr(f.adbin, f.adrelid), CASE WHEN a.attgenerated = 's' THEN 'STORED' ELSE 'VIRTUAL' END)"
    " ELSE coalesce(' DEFAULT ' || pg_get_expr(f.adbin, f.adrelid), '') END)"
    " FROM pg_class c @schema JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
    " JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_attrdef f ON f.adrelid = c.oid AND f.adnum = a.attnum"
    " WHERE c.relkind IN ('r', 'p') AND @mine @own ORDER BY c.relname, a.attnum"
)
# Keys before the foreign keys that refer to them; those of partitions come with their parent's.
_CONSTRAINTS = _relations(
    "SELECT format('ALTER TABLE %%I ADD CONSTRAINT %%I %%s', c.relname, k.conname, pg_get_constraintdef(k.oid, true))"
    " FROM pg_class c @schema JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype IN ('p', 'u', 'c', 'x', 'f')"
    " WHERE k.conislocal AND k.conparentid = 0 AND @mine @own"
    " ORDER BY position(k.contype::text IN 'pucxf'), c.relname, k.conname"
)
_INHERITS = _relations(
    "SELECT format('ALTER TABLE %%I INHERIT %%I', c.relname, p.relname) FROM pg_class c @schema"
    " JOIN pg_inherits h ON h.inhrelid = c.oid JOIN pg_class p ON p.oid = h.inhparent"
    " WHERE c.relkind = 'r' AND NOT c.relispartition AND @mine @own ORDER BY h.inhseqno"
)
_INDEXES = _relations(
    "SELECT replace(pg_get_indexdef(x.indexrelid, 0, true), ' ON ONLY ', ' ON ') FROM pg_class c @schema"
    " JOIN pg_index x ON x.indrelid = c.oid JOIN pg_class i ON i.oid = x.indexrelid AND NOT i.relispartition"
    " WHERE c.relkind IN ('r', 'p') AND @mine @own AND NOT EXISTS (SELECT 1 FROM pg_constraint k"
    " WHERE k.conindid = x.indexrelid AND k.contype IN ('p', 'u', 'x')) ORDER BY i.relname"
)
_VIEWS = _relations(
    "SELECT format('CREATE %%s %%I AS %%s', CASE WHEN c.relkind = 'm' THEN 'MATERIALIZED VIEW' ELSE 'VIEW' END,"
    " c.relname, pg_get_viewdef(c.oid, true)) FROM pg_class c @schema WHERE c.relkind IN ('v', 'm') AND @mine @own"
    " ORDER BY c.oid"
)
_VIEW_INDEXES = _relations(
    "SELECT pg_get_indexdef(x.indexrelid, 0, true) FROM pg_class c @schema JOIN pg_index x ON x.indrelid = c.oid"
    " WHERE c.relkind = 'm' AND @mine @own ORDER BY x.indexrelid"
)
_TRIGGERS = _relations(
    "SELECT pg_get_triggerdef(t.oid, true) || CASE WHEN t.tgenabled = 'D' THEN format('; ALTER TABLE %%I DISABLE"
    " TRIGGER %%I', c.relname, t.tgname) ELSE '' END FROM pg_class c @schema JOIN pg_trigger t ON t.tgrelid = c.oid"
    " WHERE NOT t.tgisinternal AND t.tgparentid = 0 AND @mine @own ORDER BY c.relname, t.tgname"
)
_IDENTITIES = _relations(
    "SELECT c.relname, a.attname, pg_get_serial_sequence(format('%%I.%%I', n.nspname, c.relname), a.attname)"
    " FROM pg_class c @schema JOIN pg_attribute a ON a.attrelid = c.oid AND a.attidentity <> ''"
    " AND NOT a.attisdropped WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND @mine @own"
)
# Everything that lies in the schema, less what the statements above carry.
_OUTSIDE: Final = (
    "SELECT o.type || ' ' || o.identity FROM pg_depend d JOIN pg_namespace n ON n.oid = d.refobjid"
    " AND n.nspname = '@application' CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, 0) o"
    " WHERE d.refclassid = 'pg_namespace'::regclass AND d.deptype = 'n'"
    " AND NOT EXISTS (SELECT 1 FROM pg_depend e WHERE e.classid = d.classid AND e.objid = d.objid AND e.deptype = 'e')"
    " AND NOT EXISTS (SELECT 1 FROM pg_class c WHERE d.classid = 'pg_class'::regclass AND c.oid = d.objid"
    " AND c.relkind <> 'f') AND NOT EXISTS (SELECT 1 FROM pg_type t WHERE d.classid = 'pg_type'::regclass"
    " AND t.oid = d.objid AND t.typtype IN ('e', 'd', 'c')) AND NOT EXISTS (SELECT 1 FROM pg_proc p"
    " WHERE d.classid = 'pg_proc'::regclass AND p.oid = d.objid AND p.prokind IN ('f', 'p'))"
    " AND d.classid <> 'pg_default_acl'::regclass AND NOT (o.type = 'extension' AND o.identity = 'vector')"
    " UNION ALL SELECT format('policy %%I on %%I', y.polname, c.relname) FROM pg_policy y"
    " JOIN pg_class c ON c.oid = y.polrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
    " AND n.nspname = '@application'"
    " UNION ALL SELECT format('rule %%I on %%I', r.rulename, c.relname) FROM pg_rewrite r"
    " JOIN pg_class c ON c.oid = r.ev_class JOIN pg_namespace n ON n.oid = c.relnamespace"
    " AND n.nspname = '@application'"
    " WHERE r.rulename <> '_RETURN' ORDER BY 1"
).replace("@application", SCHEMA)


def _describe(connection: "psycopg.Connection[Any]") -> ApplicationTables:
    def fetch(query: str) -> list[tuple[Any, ...]]:
        return connection.execute(query.encode(), {"ours": _OURS}).fetchall()

    def statements(*queries: str) -> list[str]:
        return [str(statement) for query in queries for (statement,) in fetch(query)]

    sequences = fetch(_SEQUENCES)
    tables, creations, secured = _tables(fetch)
    values = [
        _sequence_value(connection, text.Identifier(SCHEMA, name), f"'{_quoted(name)}'") for name, _, _ in sequences
    ]
    for table, column, sequence in fetch(_IDENTITIES):
        call = f"pg_get_serial_sequence('{_quoted(table)}', {_literal(column)})"
        values.append(_sequence_value(connection, text.SQL(sequence), call))
    return ApplicationTables(
        before=[
            *statements(_ENUMS, _DOMAINS, _COMPOSITES),
            *(creation for _, creation, _ in sequences),
            *statements(_FUNCTIONS),
            *creations,
        ],
        tables=tables,
        after=[
            *(owned for _, _, owned in sequences if owned),
            *values,
            *statements(_INHERITS, _CONSTRAINTS, _INDEXES, _VIEWS, _VIEW_INDEXES, _TRIGGERS),
        ],
        outside=[*statements(_OUTSIDE), *(f"row security of {table}" for table in secured)],
    )


def _tables(fetch: Callable[[str], list[tuple[Any, ...]]]) -> tuple[dict[str, list[str]], list[str], list[str]]:
    """Return the tables with the columns that have rows, the statements that create them, and those with policies."""
    definitions: dict[str, list[str]] = {}
    stored: dict[str, list[str]] = {}
    for table, column, generated, definition in fetch(_COLUMNS):
        definitions.setdefault(table, []).append(definition)
        # Generated columns are computed again.
        stored.setdefault(table, []).extend([] if generated else [column])
    tables: dict[str, list[str]] = {}
    creations = []
    secured = []
    for table, unlogged, key, parent, bound, kind, row_security in fetch(_TABLES):
        what = f"CREATE {'UNLOGGED ' if unlogged else ''}TABLE {_identifier(table)}"
        partitioned = f" PARTITION BY {key}" if key else ""
        if parent:
            creations.append(f"{what} PARTITION OF {_identifier(parent)} {bound}{partitioned}")
        else:
            creations.append(f"{what} ({', '.join(definitions.get(table, []))}){partitioned}")
        # The rows of a partitioned table are in its partitions.
        if kind == "r":
            tables[table] = stored.get(table, [])
        if row_security:
            secured.append(table)
    return tables, creations, secured


def _sequence_value(connection: "psycopg.Connection[Any]", sequence: text.Composable, named: str) -> str:
    query = text.SQL("SELECT last_value, is_called FROM {}").format(sequence)
    [(last, called)] = connection.execute(query).fetchall()
    return f"SELECT setval({named}, {int(last)}, {str(bool(called)).lower()})"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quoted(name: str) -> str:
    """Return a name as a text literal's content that is read as an identifier."""
    return _identifier(name).replace("'", "''")


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


# --- loading into the staged schema --------------------------------------------------------------------------------


def load(url: str, application: ApplicationTables, rows: Callable[[str], RowStream]) -> None:
    """Create and fill the applications' tables in the staged schema, under a login of their own.

    CorruptError with the statement and the server's words if a definition cannot be run.
    """
    with (
        connect(url, **_renewed_login(url, staged(SERVED), staged(SCHEMA))) as connection,
        translated(),
        connection.transaction(),
    ):
        connection.execute(_path(connection))
        connection.execute("SET LOCAL check_function_bodies = off")
        _run(connection, application.before)
        for table, columns in application.tables.items():
            # A table whose columns are all generated has only a number of rows, which COPY cannot carry.
            if columns:
                load_table(connection, text.Identifier(staged(SCHEMA), table), columns, rows(table))
        _run(connection, application.after)


def _path(connection: "psycopg.Connection[Any]") -> text.Composed:
    """Return the statement that puts the staged schemas on the path, and that of the extension behind them."""
    rows = connection.execute(
        "SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
    ).fetchall()
    names = dict.fromkeys([staged(SCHEMA), staged(SERVED), *(name for (name,) in rows)])
    return text.SQL("SET LOCAL search_path = {}").format(text.SQL(", ").join(map(text.Identifier, names)))


def _renewed_login(url: str, membrane: str, application: str) -> dict[str, str]:
    connector = Connector(url, membrane, connect_s=10, lock_s=10, read_s=600)
    wire = connector.wire("holdproof-copy", catalog_only=True)
    try:
        credentials = login.ensure(wire, system_random, membrane=membrane, application=application)
    except ConfigError:
        # It asks for another URL in the settings, which a restore does not use.
        credentials = None
    finally:
        wire.close()
    if credentials is None:
        # Under the URL's own login, functions of an application would run with the rights of the kernel's owner.
        raise ConfigError(
            "the backup holds tables of applications, which are created again under a login of their own: an"
            " administrator must run ALTER ROLE … CREATEROLE for the login of the URL, at least until this has ended"
        )
    return dict(zip(("user", "password"), credentials, strict=True))


def _run(connection: "psycopg.Connection[Any]", statements: list[str]) -> None:
    """Run statements in an order that works; CorruptError if there is none."""
    waiting = statements
    while waiting:
        refused: list[tuple[str, psycopg.Error]] = []
        for statement in waiting:
            try:
                with connection.transaction():
                    connection.execute(statement.encode())
            except psycopg.OperationalError:
                raise
            except psycopg.Error as error:
                refused.append((statement, error))
        if len(refused) == len(waiting):
            statement, reason = refused[0]
            raise CorruptError(
                f"a table of an application cannot be created again: {reason}", statement=statement[:500]
            ) from reason
        waiting = [statement for statement, _ in refused]
