"""The access log: who was refused by the server, who logged in, who logged out.

Rules:
- The newest `MOST_EVENTS` stay, so that a flood of requests cannot fill the disk; the server counts repetitions and
  writes them as one.
- Events are written while the store is locked too, and so are not logged in the Merkle log.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from holdproof import paging, validation
from holdproof.db import Tx, sql
from holdproof.errors import InvalidInputError
from holdproof.model.access import AccessEvent
from holdproof.model.page import Page
from holdproof.model.times import BEGINNING

MOST_EVENTS: Final = 100_000
_LONGEST: Final = 500
_TEXTS: Final = ("event", "code", "caller", "address", "method", "path", "detail")

_ADD = sql(
    "INSERT INTO access_events (event, status, code, caller, address, method, path, detail, count, created_at)"
    " VALUES (:event, :status, :code, :caller, :address, :method, :path, :detail, :count, :created_at)"
)
_CUT = sql("DELETE FROM access_events WHERE id <= (SELECT max(id) FROM access_events) - :most")


def record(tx: Tx, events: Sequence[AccessEvent]) -> None:
    """Write events; their ids are assigned here, and so is the moment of those that have none."""
    if not events:
        raise InvalidInputError("events names no event", field="events")
    # Copies: the caller keeps its events for another attempt if this transaction fails.
    rows = [asdict(event) for event in events]
    for row in rows:
        del row["id"]
        row |= {name: _plain(row[name]) for name in _TEXTS}
        row["created_at"] = row["created_at"] or tx.now
    tx.many(_ADD, rows)
    # Cut with every write, so that the log is bounded whoever writes it.
    tx.execute(_CUT, most=MOST_EVENTS)


def _plain(text: str) -> str:
    """Escape what an unauthenticated client sent, so that every database can store it and every terminal show it."""
    printable = text if text.isprintable() else text.encode("unicode_escape").decode()
    return printable.encode(errors="backslashreplace").decode()[:_LONGEST]


_LIST = sql(
    "SELECT id, event, status, code, caller, address, method, path, detail, count, created_at FROM access_events"
    " WHERE id < :before AND (CAST(:event AS TEXT) IS NULL OR event = :event) AND created_at >= :since"
    " ORDER BY id DESC LIMIT :limit"
)


def list(
    tx: Tx, *, event: str | None = None, since: str = BEGINNING, cursor: str | None = None, limit: int = 100
) -> Page[AccessEvent]:
    """List accesses, newest first."""
    moment = validation.moment("since", since)
    rows = tx.all(_LIST, event=event, since=moment, before=paging.last_id(cursor), limit=paging.fetch(limit))
    return paging.page((AccessEvent(*row) for row in rows), limit, lambda access: (access.id,))
