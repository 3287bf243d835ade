"""The login of the application tables (schema `membrane`), under which SQL of applications runs.

Rules:
- It has the rights of the role `holdproof_membrane` and no others; neither SET ROLE nor a search path adds any.
- It creates tables, functions and types in the schema `holdproof_application` only. In `membrane` it can create
  nothing: the owner's statements run there, and would call a function that is planted under a name they use.
- Its password is random, stored in a table that only the schema's owner may read; the server gets its SCRAM hash. A
  role can change its own password and settings: each opening, and each connection that is refused or finds settings
  of the role, sets the one again and removes the others.
- A URL whose login may not create roles is used as it is, unless it could read the kernel: then it is refused.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from holdproof.db.clock import Random
from holdproof.db.postgres.wire import Wire
from holdproof.db.sql import Query, sql_postgres
from holdproof.db.tx import APPLICATION_SCHEMA, RESERVED_TABLES
from holdproof.errors import ConfigError, MissingPrivilegeError

SERVED: Final = "membrane"
"""The space that is used under this login."""

_POWERS = sql_postgres(
    "SELECT r.rolsuper OR r.rolcreaterole,"
    " r.rolsuper OR coalesce((SELECT has_schema_privilege(n.oid, 'USAGE') FROM pg_namespace n"
    " WHERE n.nspname = 'kernel'), false), quote_ident(r.rolname) FROM pg_roles r WHERE r.rolname = current_user"
)
_TABLES: Final = ", ".join(f"{{membrane}}.{table}" for table in sorted(RESERVED_TABLES))
_RIGHTS = f"""
CREATE TABLE IF NOT EXISTS {{membrane}}.membrane_login
  (one INTEGER PRIMARY KEY, name TEXT NOT NULL, password TEXT NOT NULL);
REVOKE ALL ON {{membrane}}.membrane_login FROM holdproof_membrane;
GRANT USAGE ON SCHEMA {{membrane}} TO holdproof_membrane;
CREATE SCHEMA IF NOT EXISTS {{application}};
REVOKE ALL ON SCHEMA {{application}} FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA {{application}} TO holdproof_membrane;
GRANT SELECT, INSERT, UPDATE, DELETE ON {{membrane}}.commit_marks TO holdproof_membrane;
REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {_TABLES} FROM holdproof_membrane
"""

_ALONE = """
DO $$ BEGIN
  CREATE SCHEMA IF NOT EXISTS {application};
EXCEPTION WHEN insufficient_privilege THEN NULL;
END $$
"""

# Only the owner can create an extension; without it vectors are searched by a scan.
_EXTENSION = """
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_catalog.pg_available_extensions WHERE name = 'vector') THEN
    CREATE EXTENSION IF NOT EXISTS vector SCHEMA {membrane};
  END IF;
EXCEPTION WHEN insufficient_privilege THEN NULL;
END $$
"""


class _Queries(NamedTuple):
    """Statements on the table of the login, for the schema it is in."""

    find: Query
    store: Query


@lru_cache(maxsize=4)
def _queries(membrane: str) -> _Queries:
    return _Queries(
        find=sql_postgres(
            f"SELECT l.name, l.password FROM {membrane}.membrane_login l"  # noqa: S608 (a name of ours)
            " JOIN pg_catalog.pg_roles r ON r.rolname = l.name"
        ),
        store=sql_postgres(
            f"INSERT INTO {membrane}.membrane_login (one, name, password) VALUES (1, :name, :password)"  # noqa: S608
            " ON CONFLICT (one) DO UPDATE SET name = excluded.name, password = excluded.password"
        ),
    )


def rights(membrane: str, application: str) -> list[str]:
    """Return the statements that give the role of services its rights in these schemas, and no others."""
    return _RIGHTS.format(membrane=membrane, application=application).strip().split(";\n")


def ensure(
    wire: Wire, random: Random, *, membrane: str = SERVED, application: str = APPLICATION_SCHEMA
) -> tuple[str, str] | None:
    """Return name and password of the application login, created if missing; None if the URL's own is to be used.

    A restore gives the names of the schemas that it stages.
    """
    wire.send(_POWERS, {})
    [(can_create_roles, reaches_kernel, owner)] = wire.sync()
    if not can_create_roles and reaches_kernel:
        raise ConfigError(
            "this login can read the kernel and may not create roles; give the provider a URL with a separate login"
            " that is granted holdproof_membrane"
        )
    if not can_create_roles:
        # The owner of `membrane` without the right to make roles works alone, and needs the schema as well.
        wire.text(_ALONE.format(application=application))
        wire.sync()
        return None
    try:
        return _ensure(wire, random, membrane, application)
    except MissingPrivilegeError as error:
        # Since PostgreSQL 16 a login manages the roles that it made or was given with the right to grant them.
        raise MissingPrivilegeError(
            f"{error.message}; use the owner of the schema {membrane}; if it is that, an administrator must run:"
            f" GRANT holdproof_membrane TO {owner} WITH ADMIN OPTION"
        ) from error


def _ensure(wire: Wire, random: Random, membrane: str, application: str) -> tuple[str, str]:
    wire.begin()
    wire.text(f"LOCK TABLE {membrane}.commit_marks IN SHARE UPDATE EXCLUSIVE MODE")
    for statement in rights(membrane, application):
        wire.text(statement)
    wire.text(_EXTENSION.format(membrane=membrane))
    queries = _queries(membrane)
    wire.send(queries.find, {})
    logins = wire.sync()
    name, password = _reset(wire, *logins[0]) if logins else _create(wire, random, queries)
    wire.text("COMMIT")
    wire.sync()
    return name, password


def _reset(wire: Wire, name: str, password: str) -> tuple[str, str]:
    """Undo what the role may have changed about itself."""
    wire.text(f"ALTER ROLE {name} LOGIN PASSWORD '{wire.scrambled(name, password)}'")
    wire.text(f"ALTER ROLE {name} RESET ALL")
    # Settings for one database are others, and count before those of the role.
    wire.text(f"DO $$ BEGIN EXECUTE format('ALTER ROLE {name} IN DATABASE %I RESET ALL', current_database()); END $$")
    return name, password


def _create(wire: Wire, random: Random, queries: _Queries) -> tuple[str, str]:
    # A name of its own: several stores of one server must not share a login.
    name = f"holdproof_membrane_{random(6).hex()}"
    password = random(24).hex()
    wire.text(f"CREATE ROLE {name} LOGIN PASSWORD '{wire.scrambled(name, password)}' IN ROLE holdproof_membrane")
    wire.send(queries.store, {"name": name, "password": password}, expect=1)
    return name, password
