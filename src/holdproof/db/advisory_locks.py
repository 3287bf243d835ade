"""Advisory locks that last to the end of a transaction. SQLite needs none: it has a single writer."""

from holdproof.db.sql import sql_postgres
from holdproof.db.tx import Tx

_EXCLUSIVE = sql_postgres("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))")
_SHARED = sql_postgres("SELECT pg_advisory_xact_lock_shared(hashtextextended(:key, 0))")


def lock_exclusive(tx: Tx, key: str) -> None:
    """Acquire the advisory lock of a key in exclusive mode, until the transaction ends; waits for other holders."""
    if tx.dialect == "postgres":
        tx.execute(_EXCLUSIVE, key=key)


def lock_shared(tx: Tx, key: str) -> None:
    """Acquire the advisory lock in shared mode; compatible with other shared holders, excludes exclusive ones."""
    if tx.dialect == "postgres":
        tx.execute(_SHARED, key=key)
