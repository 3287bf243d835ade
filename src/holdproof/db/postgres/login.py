"""The login of the application tables (schema `membrane`), under which SQL of applications runs.

Rules:
- It has the rights of the role `holdproof_membrane` and no others; neither SET ROLE nor a search path adds any.
- It creates tables, functions and types in the schema `application` only. In `membrane` it can create nothing: the
  owner's statements run there, and would call a function that is planted under a name they use.
- Its password is random, stored in a table that only the schema's owner may read; the server gets its SCRAM hash. A
  role can change its own password, so each opening sets it again, and removes settings that the role was given.
- A URL whose login may not create roles is used as it is, unless it could read the kernel: then it is refused.
"""

from typing import Final

from holdproof.db.clock import Random
from holdproof.db.postgres.wire import APPLICATION_SCHEMA, Wire
from holdproof.db.sql import sql_postgres
from holdproof.db.tx import RESERVED_TABLES
from holdproof.errors import ConfigError

SERVED: Final = "membrane"
"""The space that is used under this login."""

_POWERS = sql_postgres(
    "SELECT r.rolsuper OR r.rolcreaterole,"
    " r.rolsuper OR coalesce((SELECT has_schema_privilege(n.oid, 'USAGE') FROM pg_namespace n"
    " WHERE n.nspname = 'kernel'), false) FROM pg_roles r WHERE r.rolname = current_user"
)
_LOGIN = sql_postgres(
    "SELECT l.name, l.password FROM membrane.membrane_login l JOIN pg_catalog.pg_roles r ON r.rolname = l.name"
)
_STORE = sql_postgres(
    "INSERT INTO membrane.membrane_login (one, name, password) VALUES (1, :name, :password)"
    " ON CONFLICT (one) DO UPDATE SET name = excluded.name, password = excluded.password"
)
_TABLES: Final = ", ".join(f"{SERVED}.{table}" for table in sorted(RESERVED_TABLES))
_RIGHTS = f"""
CREATE TABLE IF NOT EXISTS membrane.membrane_login
  (one INTEGER PRIMARY KEY, name TEXT NOT NULL, password TEXT NOT NULL);
REVOKE ALL ON membrane.membrane_login FROM holdproof_membrane;
GRANT USAGE ON SCHEMA membrane TO holdproof_membrane;
CREATE SCHEMA IF NOT EXISTS {APPLICATION_SCHEMA};
REVOKE ALL ON SCHEMA {APPLICATION_SCHEMA} FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA {APPLICATION_SCHEMA} TO holdproof_membrane;
GRANT SELECT, INSERT, UPDATE, DELETE ON membrane.commit_marks TO holdproof_membrane;
REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {_TABLES} FROM holdproof_membrane
"""

_ALONE = f"""
DO $$ BEGIN
  CREATE SCHEMA IF NOT EXISTS {APPLICATION_SCHEMA};
EXCEPTION WHEN insufficient_privilege THEN NULL;
END $$
"""

# Only the owner can create an extension; without it vectors are searched by a scan.
_EXTENSION = """
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_catalog.pg_available_extensions WHERE name = 'vector') THEN
    CREATE EXTENSION IF NOT EXISTS vector SCHEMA membrane;
  END IF;
EXCEPTION WHEN insufficient_privilege THEN NULL;
END $$
"""


def ensure(wire: Wire, random: Random) -> tuple[str, str] | None:
    """Return name and password of the application login, created if missing; None if the URL's own is to be used."""
    wire.send(_POWERS, {})
    [(can_create_roles, reaches_kernel)] = wire.sync()
    if not can_create_roles and reaches_kernel:
        raise ConfigError(
            "this login can read the kernel and may not create roles; give the provider a URL with a separate login"
            " that is granted holdproof_membrane"
        )
    if not can_create_roles:
        # The owner of `membrane` without the right to make roles works alone, and needs the schema as well.
        wire.text(_ALONE)
        wire.sync()
        return None
    wire.text("BEGIN")
    wire.text("LOCK TABLE membrane.commit_marks IN SHARE UPDATE EXCLUSIVE MODE")
    for statement in _RIGHTS.strip().split(";\n"):
        wire.text(statement)
    wire.text(_EXTENSION)
    wire.send(_LOGIN, {})
    logins = wire.sync()
    name, password = _reset(wire, *logins[0]) if logins else _create(wire, random)
    wire.text("COMMIT")
    wire.sync()
    return name, password


def _reset(wire: Wire, name: str, password: str) -> tuple[str, str]:
    """Undo what the role may have changed about itself."""
    wire.text(f"ALTER ROLE {name} LOGIN PASSWORD '{wire.scrambled(name, password)}'")
    wire.text(f"ALTER ROLE {name} RESET ALL")
    return name, password


def _create(wire: Wire, random: Random) -> tuple[str, str]:
    # A name of its own: several stores of one server must not share a login.
    name = f"holdproof_membrane_{random(6).hex()}"
    password = random(24).hex()
    wire.text(f"CREATE ROLE {name} LOGIN PASSWORD '{wire.scrambled(name, password)}' IN ROLE holdproof_membrane")
    wire.send(_STORE, {"name": name, "password": password}, expect=1)
    return name, password
