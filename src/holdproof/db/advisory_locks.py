"""Advisory locks that last to the end of a transaction. SQLite needs none: it has a single writer.

Every session of a PostgreSQL database shares one space of advisory keys, also SQL of applications. So a key is hashed
with a number that only the store knows (`Tx.lock_seed`): nobody else can compute it and hold the lock.
"""

from holdproof.db.sql import sql_postgres
from holdproof.db.tx import Tx

_EXCLUSIVE = sql_postgres(
    "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(:key::text, :seed::bigint))"
)
_TRY = sql_postgres(
    "SELECT pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended(:key::text, :seed::bigint))"
)
_SHARED = sql_postgres(
    "SELECT pg_catalog.pg_advisory_xact_lock_shared(pg_catalog.hashtextextended(:key::text, :seed::bigint))"
)


def lock_exclusive(tx: Tx, key: str) -> None:
    """Acquire the advisory lock of a key in exclusive mode, until the transaction ends; waits for other holders."""
    if tx.dialect == "postgres":
        tx.execute(_EXCLUSIVE, key=key, seed=tx.lock_seed)


def try_lock_exclusive(tx: Tx, key: str) -> bool:
    """Acquire the lock in exclusive mode if nobody else holds it; never waits. Returns whether it was acquired."""
    if tx.dialect != "postgres":
        return True
    (acquired,) = tx.one(_TRY, key=key, seed=tx.lock_seed) or (False,)
    return bool(acquired)


def lock_shared(tx: Tx, key: str) -> None:
    """Acquire the advisory lock in shared mode; compatible with other shared holders, excludes exclusive ones."""
    if tx.dialect == "postgres":
        tx.execute(_SHARED, key=key, seed=tx.lock_seed)
