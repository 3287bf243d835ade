"""Holdproof: what agents decide, know and owe: durable, provable, cheap."""

from holdproof import errors, sync
from holdproof.client import Holdproof, open
from holdproof.db import Call, Migration, Query, Read, Refused, Tx, Wait, Work, Write, ask, sql
from holdproof.errors import HoldproofError
from holdproof.remote import connect
from holdproof.store.opening import VERSION as __version__

__all__ = [
    "Call",
    "Holdproof",
    "HoldproofError",
    "Migration",
    "Query",
    "Read",
    "Refused",
    "Tx",
    "Wait",
    "Work",
    "Write",
    "__version__",
    "ask",
    "connect",
    "errors",
    "open",
    "sql",
    "sync",
]
