"""Transactions on SQLite or PostgreSQL: `open_database`, `Tx`, `sql`, migrations and effects."""

from holdproof.db.advisory_locks import lock_exclusive, lock_shared, try_lock_exclusive
from holdproof.db.backends import MEMORY, open_database
from holdproof.db.database import Database
from holdproof.db.effects import Call, Effect, Give, Read, Stream, Together, Wait, Work, WorkOutcome, Write, ask, call
from holdproof.db.group_commit import Access, AccessRecorder, Hooks
from holdproof.db.migrate import Migration
from holdproof.db.sql import Query, sql, sql_by_key
from holdproof.db.tx import OPENED, USED, Flows, Notes, Refused, Row, SqlResult, Tx, Use

__all__ = [
    "MEMORY",
    "OPENED",
    "USED",
    "Access",
    "AccessRecorder",
    "SqlResult",
    "Call",
    "Database",
    "Effect",
    "Flows",
    "Give",
    "Hooks",
    "Migration",
    "Notes",
    "WorkOutcome",
    "Query",
    "Read",
    "Refused",
    "Row",
    "Stream",
    "Together",
    "Tx",
    "Use",
    "Wait",
    "Work",
    "Write",
    "ask",
    "call",
    "lock_exclusive",
    "lock_shared",
    "open_database",
    "sql",
    "sql_by_key",
    "try_lock_exclusive",
]
