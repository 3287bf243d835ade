"""The membrane's own login, under which SQL of services runs.

Rules:
- It has the rights of the role `holdproof_membrane` and no others: SET ROLE leads nowhere, nor does a search path.
- Its password is random. A table that only the schema's owner may read keeps it; the server is given its SCRAM hash.
- A URL whose login may not make roles is used as it is, unless it could reach the kernel: then it is refused.
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
_KEEP = sql_postgres(
    "INSERT INTO membrane_login (one, name, password) VALUES (1, :name, :password)"
    " ON CONFLICT (one) DO UPDATE SET name = excluded.name, password = excluded.password"
)
_RIGHTS = f"""
CREATE TABLE IF NOT EXISTS membrane_login (one INTEGER PRIMARY KEY, name TEXT NOT NULL, password TEXT NOT NULL);
REVOKE ALL ON membrane_login FROM holdproof_membrane;
GRANT USAGE, CREATE ON SCHEMA membrane TO holdproof_membrane;
GRANT SELECT, INSERT, UPDATE, DELETE ON commit_marks TO holdproof_membrane;
REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {", ".join(sorted(RESERVED_TABLES))} FROM holdproof_membrane
"""


# An extension can only be made by the owner; where there is none to be made, vectors are scanned.
_EXTENSION = """
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector') THEN
    CREATE EXTENSION IF NOT EXISTS vector;
  END IF;
EXCEPTION WHEN insufficient_privilege THEN NULL;
END $$
"""


def ensure(wire: Wire, random: Random) -> tuple[str, str] | None:
    """Name and password of the membrane's login, made if it is missing; None where the URL's own is to be used."""
    wire.send(_POWERS, {})
    [(makes, reaches)] = wire.sync()
    if not makes and reaches:
        raise ConfigError(
            "this login could reach the kernel and may not make roles; give the provider a URL with a login of its own,"
            " to which holdproof_membrane is granted"
        )
    if not makes:
        return None
    wire.text("BEGIN")
    wire.text("SELECT pg_advisory_xact_lock(hashtext('holdproof login'))")
    for statement in _RIGHTS.strip().split(";\n"):
        wire.text(statement)
    wire.text(_EXTENSION)
    wire.send(_LOGIN, {})
    found = wire.sync()
    name, password = found[0] if found else _make(wire, random)
    wire.text("COMMIT")
    wire.sync()
    return name, password


def _make(wire: Wire, random: Random) -> tuple[str, str]:
    name, password = f"holdproof_membrane_{random(6).hex()}", random(24).hex()
    wire.text(f"CREATE ROLE {name} LOGIN PASSWORD '{wire.scrambled(name, password)}' IN ROLE holdproof_membrane")
    wire.send(_KEEP, {"name": name, "password": password}, expect=1)
    return name, password
