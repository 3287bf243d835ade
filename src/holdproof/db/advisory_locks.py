"""Being alone with something to the end of a transaction: SQLite has one writer anyway, PostgreSQL an advisory lock."""

from holdproof.db.sql import sql_postgres
from holdproof.db.tx import Tx

_ALONE = sql_postgres("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))")
_BESIDE = sql_postgres("SELECT pg_advisory_xact_lock_shared(hashtextextended(:key, 0))")


def lock_exclusive(tx: Tx, key: str) -> None:
    """From here to the end of the transaction nobody else is past this point with the same key."""
    if tx.dialect == "postgres":
        tx.execute(_ALONE, key=key)


def lock_shared(tx: Tx, key: str) -> None:
    """The same, but others may be past it too who say `beside`; nobody who says `alone`."""
    if tx.dialect == "postgres":
        tx.execute(_BESIDE, key=key)
