"""Transactions on SQLite or PostgreSQL: `open_database`, `Tx`, `sql`, migrations and effects."""

from holdfast.db.alone import alone, beside
from holdfast.db.database import Database
from holdfast.db.effects import Call, Effect, Give, Read, Stream, Wait, Work, Write, ask, call
from holdfast.db.groups import Hooks
from holdfast.db.migrate import Migration
from holdfast.db.opening import MEMORY, open_database
from holdfast.db.sql import Query, sql
from holdfast.db.tx import Answer, Notes, Refused, Row, Tx

__all__ = [
    "MEMORY",
    "Answer",
    "Call",
    "Database",
    "Effect",
    "Give",
    "Hooks",
    "Migration",
    "Notes",
    "Query",
    "Read",
    "Refused",
    "Row",
    "Stream",
    "Tx",
    "Wait",
    "Work",
    "Write",
    "alone",
    "ask",
    "beside",
    "call",
    "open_database",
    "sql",
]
