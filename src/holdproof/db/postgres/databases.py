"""Databases of a server: made and removed for tenants, each of which has one of its own."""

import re
from collections.abc import Iterable
from typing import Any, Final

import psycopg
from psycopg import errors as refusals
from psycopg import sql as text

from holdproof.db.postgres.catalogue import connect, translated
from holdproof.errors import BusyError, MissingPrivilegeError
from holdproof.urls import with_database

_THERE: Final = "SELECT 1 FROM pg_catalog.pg_database WHERE datname = %s"
_RELATION: Final = (
    "SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_class c"
    " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname <> 'information_schema' AND left(n.nspname, 3) <> 'pg_' AND n.nspname <> ALL(%s)"
    " AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::regclass"
    " AND d.objid = c.oid AND d.deptype = 'e') ORDER BY 1 LIMIT 1"
)
_LOGIN: Final = re.compile(r"holdproof_membrane_[0-9a-f]{12}")
"""How logins of application tables are named (login.py)."""
_OTHERS: Final = "SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE datname = %s"


def is_there(url: str, name: str) -> bool:
    """Return whether the server of a URL has a database of that name."""
    with connect(url) as connection, translated():
        return bool(connection.execute(_THERE, (name,)).fetchall())


def occupant(url: str, spaces: Iterable[str] = ()) -> str | None:
    """Return something that a database has beside extensions and those spaces; None if there is none."""
    with connect(url) as connection, translated():
        for (relation,) in connection.execute(_RELATION, ([*spaces],)).fetchall():
            return str(relation)
        return None


def create(url: str, name: str) -> None:
    """Create an empty database; one that is there stays as it is. MissingPrivilegeError without the right to."""
    with connect(url) as connection, translated():
        try:
            connection.execute(
                text.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(text.Identifier(name))
            )
        except refusals.DuplicateDatabase:
            return
        except refusals.UniqueViolation:  # two at once: the other one's counts
            return
        except refusals.InsufficientPrivilege as error:
            raise MissingPrivilegeError(
                f"this login may not create the database {name}",
                remedy=f'As an administrator run: CREATE DATABASE "{name}" OWNER the_login; or name an empty database'
                " that is there with --place.",
                database=name,
            ) from error


def drop(url: str, name: str) -> None:
    """Remove a database with all that is in it; BusyError while somebody is connected. One that is gone is no error."""
    logins = _logins(url, name)
    with connect(url) as connection, translated():
        try:
            connection.execute(text.SQL("DROP DATABASE IF EXISTS {}").format(text.Identifier(name)))
            for login in logins:
                connection.execute(text.SQL("DROP ROLE IF EXISTS {}").format(text.Identifier(login)))
        except refusals.ObjectInUse as error:
            raise BusyError(
                f"the database {name} is in use: {_users(connection, name)} connections. Where a"
                " pooler keeps sessions that nobody uses, RECONNECT on its console closes them",
                database=name,
            ) from error
        except refusals.InsufficientPrivilege as error:
            raise MissingPrivilegeError(
                f"this login may not remove the database {name}",
                remedy=f'As its owner run: DROP DATABASE "{name}"; then repeat this command.',
                database=name,
            ) from error


def _logins(url: str, name: str) -> list[str]:
    """Return the login that was made for application tables of a database: roles are the server's, and would stay."""
    if not is_there(url, name):
        return []
    with connect(with_database(url, name)) as connection, translated():
        [(table,)] = connection.execute("SELECT to_regclass('membrane.membrane_login')").fetchall()
        rows = [] if table is None else connection.execute("SELECT name FROM membrane.membrane_login").fetchall()
        # Whoever has that database can write any name there, and this login may remove more than theirs.
        return [str(login) for (login,) in rows if _LOGIN.fullmatch(str(login))]


def _users(connection: "psycopg.Connection[Any]", name: str) -> int:
    [(count,)] = connection.execute(_OTHERS, (name,)).fetchall()
    return int(count)
