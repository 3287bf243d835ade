"""Logins with no more rights than their work needs: owner, application, services and reader.

Rules:
- The owner creates schemas and applies migrations; nothing else runs under it.
- The application reads and writes rows, and creates nothing. Services reach their own tables only.
- The reader reads the log and all that it covers, which verification needs, and no table of services.
- An operation of a client that is bound to a namespace runs in a role that sees no other (row_security.py).
- Every statement may be run again: after an upgrade it gives the new tables their rights. No statement has a password.
"""

import re
from typing import Final, NamedTuple

import psycopg
from psycopg import sql as text

from holdproof.db import row_security
from holdproof.db.postgres import conninfo
from holdproof.db.postgres.catalogue import connect, translated
from holdproof.db.postgres.login import SERVED
from holdproof.db.tx import RESERVED_TABLES
from holdproof.errors import InvalidInputError, MissingPrivilegeError

_SPACES: Final = ("kernel", SERVED, "telemetry")
_READABLE: Final = ("kernel", "telemetry")
_PLAIN: Final = re.compile("[a-z_][a-z0-9_]{0,62}")
_PRIVATE: Final = "membrane_login"


class ServerLogins(NamedTuple):
    """The names of the four logins."""

    owner: str
    application: str
    services: str
    reader: str


def script(url: str, logins: ServerLogins) -> list[str]:
    """Return the statements that create the logins and give each its rights in the database of a URL."""
    parts = conninfo.parse(url)
    database = text.Identifier(str(parts.get("dbname") or parts.get("user") or "")).as_string(None)
    owner, application, services, reader = map(_login, logins)
    groups = [f"holdproof_{space}" for space in _SPACES]
    statements = [_role(login, "LOGIN") for login in (owner, application, services, reader)]
    statements += [_role(group, "NOLOGIN") for group in groups]
    statements += [f"GRANT CONNECT ON DATABASE {database} TO {owner}, {application}, {services}, {reader}"]
    statements += [f"GRANT CREATE ON DATABASE {database} TO {owner}"]
    # It creates the login under which SQL of applications runs, and only members of that role.
    statements += [f"ALTER ROLE {owner} CREATEROLE", f"GRANT holdproof_{SERVED} TO {owner} WITH ADMIN OPTION"]
    statements += [f"GRANT holdproof_kernel, holdproof_telemetry TO {application}"]
    statements += [f"GRANT holdproof_{SERVED} TO {services}"]
    for space in _SPACES:
        statements += _space(space, owner)
    statements += [_withheld(), row_security.setup(application)]
    for space in _READABLE:
        statements += _readable(space, reader)
    return statements


def apply(url: str, logins: ServerLogins) -> list[str]:
    """Run the statements in one transaction and return them; MissingPrivilegeError if this login may not."""
    statements = script(url, logins)
    with connect(url) as connection, translated(), connection.transaction():
        for statement in statements:
            try:
                connection.execute(statement.encode())
            except psycopg.errors.InsufficientPrivilege as error:
                raise MissingPrivilegeError(
                    f"this login may not set up others ({error.diag.message_primary}); give `holdproof db roles"
                    " --apply` the URL of an administrator, or let one run what it prints without --apply"
                ) from error
    return statements


def _login(name: str) -> str:
    """Return a name that needs no quotes, since it is written into texts of statements too."""
    if not _PLAIN.fullmatch(name):
        raise InvalidInputError(f"a login is named by lower-case letters, digits and _, not {name!r}", login=name)
    return name


def _role(name: str, kind: str) -> str:
    return (
        f"DO $$ BEGIN CREATE ROLE {name} {kind}; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
    )


def _space(space: str, owner: str) -> list[str]:
    """Return what gives a schema and all that is in it to the owner, and its rows to its role."""
    role = f"holdproof_{space}"
    rights = "SELECT, INSERT, UPDATE, DELETE"
    return [
        f"CREATE SCHEMA IF NOT EXISTS {space} AUTHORIZATION {owner}",
        f"ALTER SCHEMA {space} OWNER TO {owner}",
        "DO $$ DECLARE name regclass; BEGIN FOR name IN SELECT c.oid FROM pg_catalog.pg_class c"  # noqa: S608
        f" WHERE c.relnamespace = '{space}'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')"
        f" LOOP EXECUTE format('ALTER TABLE %s OWNER TO {owner}', name); END LOOP; END $$",
        f"REVOKE ALL ON SCHEMA {space} FROM PUBLIC",
        f"GRANT USAGE ON SCHEMA {space} TO {role}",
        f"GRANT {rights} ON ALL TABLES IN SCHEMA {space} TO {role}",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {space} TO {role}",
        f"ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {space} GRANT {rights} ON TABLES TO {role}",
        f"ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {space} GRANT USAGE ON SEQUENCES TO {role}",
    ]


def _withheld() -> str:
    """Return what takes back from services the tables that they may not change, and the one they may not read."""
    changes = " ".join(
        f"IF to_regclass('{SERVED}.{table}') IS NOT NULL THEN"
        f" REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {SERVED}.{table} FROM holdproof_{SERVED}; END IF;"
        for table in sorted(RESERVED_TABLES)
    )
    login = f"{SERVED}.{_PRIVATE}"
    return (
        f"DO $$ BEGIN {changes} IF to_regclass('{login}') IS NOT NULL THEN"
        f" REVOKE ALL ON {login} FROM holdproof_{SERVED}; END IF; END $$"
    )


def _readable(space: str, reader: str) -> list[str]:
    """Return what lets the reader see a schema; tables of a later version need the script once more."""
    return [f"GRANT USAGE ON SCHEMA {space} TO {reader}", f"GRANT SELECT ON ALL TABLES IN SCHEMA {space} TO {reader}"]
