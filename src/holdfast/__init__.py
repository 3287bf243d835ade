"""Holdfast: what agents decide, know and owe: durable, provable, cheap."""

from holdfast import errors, sync
from holdfast.client import Holdfast, open
from holdfast.db import Call, Migration, Query, Read, Refused, Tx, Wait, Work, Write, ask, sql
from holdfast.errors import HoldfastError
from holdfast.remote import connect
from holdfast.store import VERSION as __version__

__all__ = [
    "Call",
    "Holdfast",
    "HoldfastError",
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
