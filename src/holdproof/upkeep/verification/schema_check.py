"""Compare the live schema with the one that the migrations of this installation create.

Rules:
- Nothing recorded is trusted: the schema is built from the shipped migrations, on SQLite in memory, on PostgreSQL in a
  schema of its own inside a transaction that is rolled back, and compared object by object.
- A changed, added or dropped table, column, constraint, index, trigger, view, rule, policy or function is found.
- Where it cannot be built, for lack of rights or for any other reason, the verdict is INCOMPLETE, never VALID. Its name
  is random: a schema of that name cannot be put in the way.
"""

from functools import partial
from typing import Final, NoReturn

from holdproof.db import MEMORY, Call, Query, Tx, Work, ask, migrate, open_database, sql
from holdproof.db.partitioned_schema import without_partitions
from holdproof.db.row_security import without_policies
from holdproof.db.sql import sql_postgres
from holdproof.db.sqlite import LITESTREAM
from holdproof.errors import MissingPrivilegeError, QueryError, ReadOnlyError
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding
from holdproof.store.context import Context
from holdproof.upkeep.verification.findings import Findings, read

Objects = dict[str, str]
"""The definition of every object of a schema, by kind and name."""

_SCRATCH: Final = "holdproof_verify"
"""How the name of the schema to compare with begins."""
_GRANT: Final = "verify with a login that may create schemas: GRANT CREATE ON DATABASE … TO …"
_MARKS: Final = "commit_marks"
"""A table that connections create beside the migrations; nothing else may have that name."""
_OWN: Final = (f"relation {_MARKS}", f"index {_MARKS}_pkey")
_REMEDY: Final = "keep a copy; find out who changed the schema; restore a backup that verifies"
_SQLITE = sql(
    "SELECT type || ' ' || name, tbl_name || ': ' || coalesce(sql, '') FROM sqlite_schema"
    " WHERE NOT (type = 'table' AND name IN ('sqlite_stat1', 'sqlite_stat4')) ORDER BY 1",
    postgres="SELECT 'none', 'none'",
)


def check(context: Context, findings: Findings) -> Work[None]:
    """Report every object that is not as the migrations create it."""
    database = context.database
    if database.dialect == "sqlite":
        live = yield from read(context, partial(_objects, query=_SQLITE))
        expected: Objects = yield from ask(Call(_build_sqlite))
        for name, definition in LITESTREAM.items():
            # Exactly as that tool makes them: anything else of these names is an addition like any other.
            if live.get(f"table {name}") == f"{name}: {definition}":
                del live[f"table {name}"]
                findings.skip("page checksums: Litestream replicates this database and writes pages without them")
    else:
        # Exactly as `db roles` sets them up: anything else is an addition like any other.
        live = without_policies((yield from read(context, partial(_postgres_objects, space="kernel"))))
        try:
            expected = yield from ask(Call(partial(_build_postgres, context)))
        except (MissingPrivilegeError, QueryError, ReadOnlyError) as error:
            findings.add(_unbuilt(error))
            return
        # Exactly as `db partition` divides a table.
        live = without_partitions(live, expected)
    findings.checked["schema objects"] = len(live)
    for finding in compare(live, expected):
        findings.add(finding)


def compare(live: Objects, expected: Objects) -> list[Finding]:
    """Return a finding for every object that is missing, added or different."""
    wrong = []
    for name in sorted(live.keys() | expected.keys()):
        if live.get(name) == expected.get(name):
            continue
        problem = "was dropped" if name not in live else "was added" if name not in expected else "was changed"
        what = f"the {name} {problem}: it is not as the migrations make it"
        wrong.append(Finding(Verdict.TAMPERED, what, _REMEDY, table="schema", row=name))
    return wrong


def _objects(tx: Tx, query: Query) -> Objects:
    return dict(tx.all(query))


def _build_sqlite() -> Objects:
    database = open_database(MEMORY)
    try:
        return database.read(partial(_objects, query=_SQLITE)).result()
    finally:
        database.close()


class _BuiltError(Exception):
    """Carries what was built out of a transaction that must not commit."""

    def __init__(self, objects: Objects) -> None:
        super().__init__("built")
        self.objects = objects


def _unbuilt(error: MissingPrivilegeError | QueryError | ReadOnlyError) -> Finding:
    """Return the finding for a schema that could not be compared with anything."""
    if isinstance(error, MissingPrivilegeError):
        what = "the schema was not checked: this login may not create the one to compare with"
        return Finding(Verdict.INCOMPLETE, what, _GRANT, table="schema")
    what = f"the schema was not checked: the one to compare with cannot be built ({error.message})"
    return Finding(Verdict.INCOMPLETE, what, "look at what the server says, then verify again", table="schema")


def _build_postgres(context: Context) -> Objects:
    """Return what the migrations make there; QueryError or ReadOnlyError if they cannot."""
    try:
        # Serializable operations have a transaction of their own: nobody shares the roll-back.
        context.database.write(_scratch, ungated=True, serializable=True).result()
    except _BuiltError as built:
        return built.objects
    raise AssertionError("a scratch schema is never committed")


def _scratch(tx: Tx) -> NoReturn:
    scratch = f"{_SCRATCH}_{tx.random(8).hex()}"
    tx.script(f"CREATE SCHEMA {scratch}; SET LOCAL search_path TO {scratch}")
    # The migrations expect their own ledger to exist.
    tx.script(migrate._LEDGER.render("postgres"))
    for step in migrate.shipped("kernel"):
        tx.script(step.render("postgres"))
    raise _BuiltError(_postgres_objects(tx, scratch))


def _postgres_objects(tx: Tx, space: str) -> Objects:
    rows = [row for query in _POSTGRES for row in tx.all(query, space=space)]
    plain = [(name, text.replace(f"{space}.", "")) for name, text in rows]
    return {name: text for name, text in plain if name not in _OWN and not name.startswith(f"constraint {_MARKS}.")}


_POSTGRES: Final = (
    sql_postgres(
        "SELECT 'relation ' || c.relname, concat(c.relkind, c.relpersistence, c.relrowsecurity, ': ') ||"
        " coalesce(string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull::text,"
        " a.attidentity, a.attgenerated, pg_get_expr(d.adbin, d.adrelid)), ', ' ORDER BY a.attnum), '')"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum"
        " WHERE n.nspname = :space AND c.relkind IN ('r', 'p', 'v', 'm', 'f') GROUP BY c.oid"
    ),
    sql_postgres(
        "SELECT 'index ' || c.relname, pg_get_indexdef(c.oid) || ' ' || i.indisvalid::text || i.indislive::text"
        " FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = :space"
    ),
    sql_postgres(
        "SELECT 'constraint ' || t.relname || '.' || c.conname, pg_get_constraintdef(c.oid)"
        " || ' ' || c.convalidated::text FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid"
        " JOIN pg_namespace n ON n.oid = c.connamespace WHERE n.nspname = :space"
    ),
    sql_postgres(
        "SELECT 'trigger ' || t.relname || '.' || g.tgname, pg_get_triggerdef(g.oid) || g.tgenabled::text"
        " FROM pg_trigger g JOIN pg_class t ON t.oid = g.tgrelid JOIN pg_namespace n ON n.oid = t.relnamespace"
        " WHERE n.nspname = :space AND NOT g.tgisinternal"
    ),
    sql_postgres(
        "SELECT 'rule ' || t.relname || '.' || r.rulename, pg_get_ruledef(r.oid) FROM pg_rewrite r"
        " JOIN pg_class t ON t.oid = r.ev_class JOIN pg_namespace n ON n.oid = t.relnamespace WHERE n.nspname = :space"
    ),
    sql_postgres(
        "SELECT 'policy ' || t.relname || '.' || p.polname,"
        " concat(CASE WHEN p.polpermissive THEN 'permissive ' ELSE 'restrictive ' END, p.polcmd, ' ',"
        " (SELECT string_agg(CASE o WHEN 0 THEN 'public' ELSE pg_get_userbyid(o)::text END, ',' ORDER BY o)"
        " FROM unnest(p.polroles) o), ' ', pg_get_expr(p.polqual, p.polrelid), ' ',"
        " pg_get_expr(p.polwithcheck, p.polrelid))"
        " FROM pg_policy p JOIN pg_class t ON t.oid = p.polrelid JOIN pg_namespace n ON n.oid = t.relnamespace"
        " WHERE n.nspname = :space"
    ),
    sql_postgres(
        "SELECT 'function ' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')', p.prosrc"
        " FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = :space"
    ),
)
