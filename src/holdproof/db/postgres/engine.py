"""Whether a server is PostgreSQL in what Holdproof rests on; other engines that speak its protocol are refused.

Rules:
- Known engines are refused by what they say of themselves when a connection is opened, also where one of their versions
  would pass what is tried: on none of them the test suites were ever run.
- What a store cannot be without is tried at each opening, whatever a server says that it is: JSON that is given back as
  it was written, because entries of the log commit to its text; and advisory locks that are held, because without them
  two writers pass a guard at once and nothing says so.
- Where one of these is missing nothing is created, and nothing is written.
"""

from typing import TYPE_CHECKING, Final

from psycopg import pq

from holdproof.db.clock import Random
from holdproof.db.sql import sql_postgres
from holdproof.errors import ConfigError, DatabaseError, MissingPrivilegeError

if TYPE_CHECKING:
    from holdproof.db.postgres.wire import Wire

_REMEDY: Final = "Use PostgreSQL 14 or newer, or an SQLite file."
_DOCUMENT: Final = '{"b": 1,  "a": 1}'
"""Keys that are not sorted, and a space too many."""
_MASK: Final = (1 << 62) - 1
_UNKNOWN: Final = frozenset({"0A", "22", "42"})
"""Classes of errors that say that a server does not know a function, a type, or what to do with a value."""

_LOCK = sql_postgres("SELECT pg_try_advisory_xact_lock(:key)")
_ABILITIES = sql_postgres(
    "SELECT CAST(CAST(:document AS json) AS text), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    " AND granted AND pid = pg_backend_pid() AND (classid::bigint << 32) + objid::bigint = :key)"
)


def refuse_by_name(server: pq.abc.PGconn) -> None:
    """Raise ConfigError for an engine that says it is another one than PostgreSQL."""
    version = (server.parameter_status(b"server_version") or b"").decode(errors="replace")
    if server.parameter_status(b"crdb_version") is not None:
        raise _refusal("CockroachDB", "its advisory locks hold nobody back, and it does not keep the text of JSON")
    if "-YB-" in version:
        raise _refusal(f"YugabyteDB ({version})", "the advisory locks that a store needs are not proven there")


def refuse_unable(wire: "Wire", random: Random) -> None:
    """Raise ConfigError for a server that lacks what a store cannot be without, whatever it says that it is."""
    key = int.from_bytes(random(8), "big") & _MASK
    try:
        # One exchange, and so one transaction, at whose end the lock is free again.
        wire.send(_LOCK, {"key": key})
        wire.send(_ABILITIES, {"document": _DOCUMENT, "key": key})
        [(document, locks)] = wire.sync()
    except DatabaseError as error:
        # A right that is missing, a statement that took too long, a server that ends: PostgreSQL has these too.
        if str(error.fields.get("sqlstate", ""))[:2] not in _UNKNOWN or isinstance(error, MissingPrivilegeError):
            raise
        raise _refusal("a server that is not PostgreSQL", error.message) from error
    if document != _DOCUMENT:
        raise _refusal("a server that is not PostgreSQL", "it does not keep the text of JSON, which the log commits to")
    if locks != 1:
        raise _refusal("a server that is not PostgreSQL", "its advisory locks hold nobody back")


def _refusal(engine: str, why: str) -> ConfigError:
    return ConfigError(f"this is {engine}: {why}", remedy=_REMEDY)
