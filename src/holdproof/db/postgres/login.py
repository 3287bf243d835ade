"""The login of the application tables (schema `membrane`), under which SQL of applications runs.

Rules:
- It has the rights of the role `holdproof_membrane` and no others; neither SET ROLE nor a search path adds any.
- Its password is random, stored in a table that only the schema's owner may read; the server gets its SCRAM hash.
- A URL whose login may not create roles is used as it is, unless it could read the kernel: then it is refused.
"""

from holdproof.db.clock import Random
from holdproof.db.postgres.wire import Wire
from holdproof.db.sql import sql_postgres
from holdproof.db.tx import RESERVED_TABLES
from holdproof.errors import ConfigError

_POWERS = sql_postgres(
    "SELECT r.rolsuper OR r.rolcreaterole,"
    " r.rolsuper OR coalesce((SELECT has_schema_privilege(n.oid, 'USAGE') FROM pg_namespace n"
    " WHERE n.nspname = 'kernel'), false) FROM pg_roles r WHERE r.rolname = current_user"
)
_LOGIN = sql_postgres("SELECT name, password FROM membrane_login JOIN pg_roles ON rolname = name")
_STORE = sql_postgres(
    "INSERT INTO membrane_login (one, name, password) VALUES (1, :name, :password)"
    " ON CONFLICT (one) DO UPDATE SET name = excluded.name, password = excluded.password"
)
_RIGHTS = f"""
CREATE TABLE IF NOT EXISTS membrane_login (one INTEGER PRIMARY KEY, name TEXT NOT NULL, password TEXT NOT NULL);
REVOKE ALL ON membrane_login FROM holdproof_membrane;
GRANT USAGE, CREATE ON SCHEMA {{schema}} TO holdproof_membrane;
GRANT SELECT, INSERT, UPDATE, DELETE ON commit_marks TO holdproof_membrane;
REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {", ".join(sorted(RESERVED_TABLES))} FROM holdproof_membrane
"""


# Only the owner can create an extension; without it vectors are searched by a scan.
_EXTENSION = """
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector') THEN
    CREATE EXTENSION IF NOT EXISTS vector;
  END IF;
EXCEPTION WHEN insufficient_privilege THEN NULL;
END $$
"""


def ensure(wire: Wire, random: Random, *, schema: str = "membrane") -> tuple[str, str] | None:
    """Return name and password of the application login, created if missing; None if the URL's own is to be used.

    `schema` is that of the connection: the live one, or the one that a restore stages.
    """
    wire.send(_POWERS, {})
    [(can_create_roles, reaches_kernel)] = wire.sync()
    if not can_create_roles and reaches_kernel:
        raise ConfigError(
            "this login can read the kernel and may not create roles; give the provider a URL with a separate login"
            " that is granted holdproof_membrane"
        )
    if not can_create_roles:
        return None
    wire.text("BEGIN")
    wire.text("SELECT pg_advisory_xact_lock(hashtext('holdproof login'))")
    for statement in _RIGHTS.format(schema=schema).strip().split(";\n"):
        wire.text(statement)
    wire.text(_EXTENSION)
    wire.send(_LOGIN, {})
    logins = wire.sync()
    name, password = next(iter(logins), None) or _create(wire, random)
    wire.text("COMMIT")
    wire.sync()
    return name, password


def _create(wire: Wire, random: Random) -> tuple[str, str]:
    # A name of its own: several stores of one server must not share a login.
    name = f"holdproof_membrane_{random(6).hex()}"
    password = random(24).hex()
    wire.text(f"CREATE ROLE {name} LOGIN PASSWORD '{wire.scrambled(name, password)}' IN ROLE holdproof_membrane")
    wire.send(_STORE, {"name": name, "password": password}, expect=1)
    return name, password
