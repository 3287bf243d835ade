"""Transactions on SQLite or PostgreSQL: `open_database`, `Tx`, `sql`, migrations and effects."""

from holdfast.db.database import Database
from holdfast.db.effects import Call, Effect, Read, Wait, Work, Write, ask
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
    "Hooks",
    "Migration",
    "Notes",
    "Query",
    "Read",
    "Refused",
    "Row",
    "Tx",
    "Wait",
    "Work",
    "Write",
    "ask",
    "open_database",
    "sql",
]
