"""Audit events in partitions by month, on PostgreSQL: switched on by the owner, and months made ahead.

    decision_audit_events                   the table, as every statement names it; partitioned by created_at
    decision_audit_events_before            what was there when partitions were switched on, up to a month
    decision_audit_events_2026_12           a month
    decision_audit_events_rest              what no other takes: no event is ever refused for want of a month

Rules:
- Switching on copies no row. The old table is proven to end before a month while others write (a check that is
  validated, and an index that is built, without stopping them); then it becomes the first partition in one short
  transaction. Interrupted at any place, it goes on where it was.
- A key of a partitioned table holds the column that divides it: the primary key becomes (id, created_at). Numbers come
  from one sequence, as before, so that an id still names one event.
- A month whose events went into the rest meanwhile takes them out of it when it is made.
- What verification expects of all this lies in `db/partitioned_schema.py`.
"""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql as text

from holdproof.db.partitioned_schema import BEFORE, REST, TABLE, month_name, months
from holdproof.db.postgres.catalogue import connect, translated
from holdproof.errors import BusyError, MissingPrivilegeError, NotFoundError

_SPACE: Final = "kernel"
_KEY: Final = "created_at"
_CLOSE_S: Final = 3 * 86_400
"""So close to its end a month is not where the old table ends: proving that may take a while."""
_PATIENCE: Final = "SET LOCAL lock_timeout = '5s'"

Connection = psycopg.Connection[Any]


class PartitionLayout(NamedTuple):
    """How the table lies: its partitions, whether they were switched on by this call, and what this call made."""

    partitions: list[str]
    switched_on: bool
    created: list[str]


def ensure(url: str, *, ahead: int) -> PartitionLayout:
    """Switch partitions on where they are not, and make the months up to so many ahead.

    NotFoundError without a store there, MissingPrivilegeError for a login that does not own it, BusyError where its
    locks cannot be had: then it may be called again.
    """
    with connect(url) as connection, translated():
        try:
            kind = _kind(connection)
            if kind is None:
                raise NotFoundError("there is no store in this database; `holdproof db migrate` creates it")
            if kind == "r":
                _switch_on(connection)
            created = _make_months(connection, ahead)
            return PartitionLayout(_partitions(connection), kind == "r", created)
        except psycopg.errors.InsufficientPrivilege as error:
            raise MissingPrivilegeError(
                f"this login may not divide the table ({error.diag.message_primary}); give `holdproof db partition` the"
                " URL of the store's owner"
            ) from error
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            raise BusyError(
                "the table is in use by a long transaction; run it again, it goes on where it was"
            ) from error


def _kind(connection: Connection) -> str | None:
    row = connection.execute("SELECT relkind::text FROM pg_class WHERE oid = to_regclass(%s)", (f"{_SPACE}.{TABLE}",))
    kind = row.fetchone()
    return None if kind is None else str(kind[0])


def _partitions(connection: Connection) -> list[str]:
    rows = connection.execute(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = to_regclass(%s) ORDER BY c.relname",
        (f"{_SPACE}.{TABLE}",),
    )
    return [name for (name,) in rows]


def _now(connection: Connection) -> datetime:
    [(now,)] = connection.execute("SELECT now()").fetchall()
    assert isinstance(now, datetime), "the server says a time"
    return now.astimezone(UTC)


# --- switching on ------------------------------------------------------------------------------------------------


def _switch_on(connection: Connection) -> None:
    boundary = _boundary(connection)
    _prove_end(connection, boundary)
    _build_key(connection)
    with connection.transaction():
        connection.execute(_PATIENCE)
        # In this order everywhere: a flow is locked before its events.
        connection.execute("LOCK TABLE kernel.decision_flows IN SHARE ROW EXCLUSIVE MODE")
        connection.execute("LOCK TABLE kernel.decision_audit_events IN ACCESS EXCLUSIVE MODE")
        _exchange(connection, boundary)


def _boundary(connection: Connection) -> datetime:
    """Return where the old table is to end: the month that an interrupted call chose, or one that comes."""
    [(definition,)] = connection.execute(
        "SELECT max(pg_get_constraintdef(oid)) FROM pg_constraint WHERE conrelid = to_regclass(%s) AND conname = %s",
        (f"{_SPACE}.{TABLE}", BEFORE),
    ).fetchall()
    now = _now(connection)
    if definition is not None:
        chosen = datetime.fromisoformat(str(definition).split("'")[1]).astimezone(UTC)
        if (chosen - now).total_seconds() > 60:
            return chosen
        # Its month has come: events of now would be refused.
        _run(connection, "ALTER TABLE kernel.{table} DROP CONSTRAINT {before}")
    following, after_that, *_ = months(now, 3)[1:]
    return following if (following - now).total_seconds() > _CLOSE_S else after_that


def _prove_end(connection: Connection, boundary: datetime) -> None:
    """Have the server know that no event of the old table is of that month or later, without stopping writers."""
    with connection.transaction():
        connection.execute(_PATIENCE)
        constraint = connection.execute(
            "SELECT 1 FROM pg_constraint WHERE conrelid = to_regclass(%s) AND conname = %s",
            (f"{_SPACE}.{TABLE}", BEFORE),
        ).fetchone()
        if constraint is None:
            _run(
                connection,
                "ALTER TABLE kernel.{table} ADD CONSTRAINT {before} CHECK (created_at < {boundary}) NOT VALID",
                boundary=text.Literal(boundary.isoformat()),
            )
    _run(connection, "ALTER TABLE kernel.{table} VALIDATE CONSTRAINT {before}")


def _build_key(connection: Connection) -> None:
    """Build the index of the new key beside the old one, without stopping writers."""
    name = text.Identifier(_SPACE, f"{BEFORE}_pkey")
    index = connection.execute(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", (f"{_SPACE}.{BEFORE}_pkey",)
    ).fetchone()
    is_valid = index is not None and bool(index[0])
    if index is not None and not is_valid:
        connection.execute(text.SQL("DROP INDEX {}").format(name))
    if not is_valid:
        _run(connection, "CREATE UNIQUE INDEX CONCURRENTLY {key} ON kernel.{table} (id, created_at)")


def _exchange(connection: Connection, boundary: datetime) -> None:
    """Put a partitioned table in the place of the old one, which becomes its first partition."""
    old = f"{_SPACE}.{TABLE}"
    indexes = connection.execute(
        "SELECT c.relname, pg_get_indexdef(c.oid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
        " WHERE i.indrelid = to_regclass(%s) AND NOT i.indisprimary AND c.relname <> %s ORDER BY 1",
        (old, f"{BEFORE}_pkey"),
    ).fetchall()
    constraints = connection.execute(
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = to_regclass(%s)"
        " AND contype IN ('c', 'f') AND conname <> %s ORDER BY 1",
        (old, BEFORE),
    ).fetchall()
    [(last, called)] = connection.execute("SELECT last_value, is_called FROM kernel.decision_audit_events_id_seq")
    rights = _rights(connection)
    for name, _ in indexes:
        _run(connection, "ALTER INDEX kernel.{name} RENAME TO {to}", name=name, to=f"{name}_before")
    _run(connection, "ALTER TABLE kernel.{table} DROP CONSTRAINT {own_key}")
    _run(
        connection, "ALTER TABLE kernel.{table} ADD CONSTRAINT {named} PRIMARY KEY USING INDEX {named}", named=_KEY_NAME
    )
    # The sequence of an identity column goes with it: another of that name goes on where it was.
    _run(connection, "ALTER TABLE kernel.{table} ALTER COLUMN id DROP IDENTITY")
    _run(connection, "ALTER TABLE kernel.{table} RENAME TO {before}")
    _run(connection, "CREATE SEQUENCE kernel.{sequence} AS bigint")
    connection.execute("SELECT setval('kernel.decision_audit_events_id_seq', %s, %s)", (last, called))
    _run(connection, "ALTER TABLE kernel.{before} ALTER COLUMN id SET DEFAULT nextval('kernel.{sequence}')")
    _run(
        connection,
        "CREATE TABLE kernel.{table} (LIKE kernel.{before} INCLUDING DEFAULTS) PARTITION BY RANGE (created_at)",
    )
    _run(connection, "ALTER SEQUENCE kernel.{sequence} OWNED BY kernel.{table}.id")
    _run(
        connection, "ALTER TABLE kernel.{table} ADD CONSTRAINT {was} PRIMARY KEY (id, created_at)", was=f"{TABLE}_pkey"
    )
    for name, definition in constraints:
        _run(connection, f"ALTER TABLE kernel.{{table}} ADD CONSTRAINT {{name}} {definition}", name=name)
    for _, definition in indexes:
        connection.execute(str(definition).encode())
    _run(
        connection,
        "ALTER TABLE kernel.{table} ATTACH PARTITION kernel.{before} FOR VALUES FROM (MINVALUE) TO ({boundary})",
        boundary=text.Literal(boundary.isoformat()),
    )
    _run(connection, "ALTER TABLE kernel.{before} DROP CONSTRAINT {before}")
    _run(connection, "CREATE TABLE kernel.{rest} PARTITION OF kernel.{table} DEFAULT")
    for statement in rights:
        connection.execute(statement.encode())


_KEY_NAME: Final = f"{BEFORE}_pkey"
_SEQUENCE: Final = f"{TABLE}_id_seq"


def _rights(connection: Connection) -> list[str]:
    """Return the statements that give the new table and its sequence the rights and policies of the old ones."""
    rows = connection.execute(
        "SELECT format('GRANT %%s ON kernel.%%I TO %%s', a.privilege_type, c.relname,"
        " CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END)"
        " FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = to_regclass(%(table)s) AND a.grantee <> c.relowner"
        " UNION ALL SELECT format('GRANT %%s ON SEQUENCE kernel.%%I TO %%s', a.privilege_type, c.relname,"
        " CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END)"
        " FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = to_regclass(%(sequence)s) AND a.grantee <> c.relowner"
        " UNION ALL SELECT format('ALTER TABLE kernel.%%I OWNER TO %%I', c.relname, pg_get_userbyid(c.relowner))"
        " FROM pg_class c WHERE c.oid = to_regclass(%(table)s)"
        " UNION ALL SELECT format('CREATE POLICY %%I ON kernel.%%I AS %%s FOR %%s TO %%s USING (%%s)', p.policyname,"
        " p.tablename, p.permissive, p.cmd, array_to_string(p.roles, ', '), p.qual)"
        " FROM pg_policies p WHERE p.schemaname = 'kernel' AND p.tablename = %(name)s"
        " UNION ALL SELECT format('ALTER TABLE kernel.%%I ENABLE ROW LEVEL SECURITY', c.relname)"
        " FROM pg_class c WHERE c.oid = to_regclass(%(table)s) AND c.relrowsecurity",
        {"table": f"{_SPACE}.{TABLE}", "sequence": f"{_SPACE}.{TABLE}_id_seq", "name": TABLE},
    )
    return [str(statement) for (statement,) in rows.fetchall()]


# --- months ------------------------------------------------------------------------------------------------------


def _make_months(connection: Connection, ahead: int) -> list[str]:
    """Make the months that are missing, from this one to so many ahead; return their names."""
    there = set(_partitions(connection))
    end = _end_of_before(connection)
    names = []
    bounds = months(_now(connection), ahead + 2)
    for start, following in pairwise(bounds):
        name = month_name(start)
        if name in there or start < end:
            continue
        with connection.transaction():
            connection.execute(_PATIENCE)
            _make_month(connection, name, start, following)
        names.append(name)
    return names


def _end_of_before(connection: Connection) -> datetime:
    """Return where the partition of the events from before ends; the beginning of time once it was dropped."""
    [(bound,)] = connection.execute(
        "SELECT max(pg_get_expr(c.relpartbound, c.oid)) FROM pg_class c WHERE c.oid = to_regclass(%s)",
        (f"{_SPACE}.{BEFORE}",),
    ).fetchall()
    if bound is None:
        return datetime.min.replace(tzinfo=UTC)
    return datetime.fromisoformat(str(bound).split("TO ('")[1].split("'")[0]).astimezone(UTC)


def _make_month(connection: Connection, name: str, start: datetime, end: datetime) -> None:
    bounds = {"start": text.Literal(start.isoformat()), "end": text.Literal(end.isoformat())}
    connection.execute("LOCK TABLE kernel.decision_flows IN SHARE ROW EXCLUSIVE MODE")
    connection.execute("LOCK TABLE kernel.decision_audit_events IN ACCESS EXCLUSIVE MODE")
    # Detached, so that what it holds of the month is no obstacle; nobody writes meanwhile.
    _run(connection, "ALTER TABLE kernel.{table} DETACH PARTITION kernel.{rest}")
    _run(
        connection,
        "CREATE TABLE kernel.{name} PARTITION OF kernel.{table} FOR VALUES FROM ({start}) TO ({end})",
        name=name,
        **bounds,
    )
    _run(
        connection,
        "WITH gone AS (DELETE FROM kernel.{rest} WHERE created_at >= {start} AND created_at < {end} RETURNING *)"
        " INSERT INTO kernel.{table} SELECT * FROM gone",
        **bounds,
    )
    _run(connection, "ALTER TABLE kernel.{table} ATTACH PARTITION kernel.{rest} DEFAULT")


def _run(connection: Connection, template: str, **parts: Any) -> None:
    """Run a statement with these names and literals in it; names of ours are known to every template."""
    names = {"table": TABLE, "own_key": f"{TABLE}_pkey", "sequence": _SEQUENCE, "rest": REST, **parts}
    names |= {"before": BEFORE, "key": _KEY_NAME}
    composed = {name: text.Identifier(part) if isinstance(part, str) else part for name, part in names.items()}
    # nextval takes its sequence as a text.
    plain = template.replace("nextval('kernel.{sequence}')", f"nextval('kernel.{_SEQUENCE}')")
    connection.execute(text.SQL(plain).format(**composed))
