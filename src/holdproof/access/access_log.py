"""What happened at the door of the server: who was refused, who came in, who left.

Rules:
- The newest `KEPT` events stay, so that a flood of requests cannot fill the disk; the server counts repetitions and
  writes them as one.
- They are written while the store is locked too, and so are outside the promise.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from holdproof.db import Tx, sql
from holdproof.errors import InvalidInputError
from holdproof.model.access import AccessEvent, AccessPage
from holdproof.runtime import logged_rows

KEPT: Final = 100_000
_LONGEST: Final = 500
_TEXTS: Final = ("event", "code", "caller", "address", "method", "path", "detail")

_ADD = sql(
    "INSERT INTO access_events (event, status, code, caller, address, method, path, detail, count, created_at)"
    " VALUES (:event, :status, :code, :caller, :address, :method, :path, :detail, :count, :created_at)"
)
_CUT = sql("DELETE FROM access_events WHERE id <= (SELECT max(id) FROM access_events) - :kept")


def record(tx: Tx, events: Sequence[AccessEvent]) -> None:
    """Write events; their ids are given here, and so is the moment of those that have none."""
    if not events:
        raise InvalidInputError("say what happened")
    found = [asdict(event) for event in events]
    for row in found:
        del row["id"]
        row |= {name: _plain(row[name]) for name in _TEXTS}
        row["created_at"] = row["created_at"] or tx.now
    tx.many(_ADD, found)
    tx.execute(_CUT, kept=KEPT)


def _plain(text: str) -> str:
    """What a stranger sent, as every database can keep it and every terminal can show it."""
    safe = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return safe.encode(errors="backslashreplace").decode()[:_LONGEST]


_SEARCH = sql(
    "SELECT id, event, status, code, caller, address, method, path, detail, count, created_at FROM access_events"
    " WHERE id > :after AND (CAST(:event AS TEXT) IS NULL OR event = :event) AND created_at >= :since"
    " ORDER BY id LIMIT :limit"
)


def events(
    tx: Tx, *, event: str | None = None, since: str = logged_rows.BEGINNING, after: int = 0, limit: int = 100
) -> AccessPage:
    """What happened at the door, oldest first, a page at a time: pass `next` of a page as `after`."""
    moment = logged_rows.moment("since", since)
    found = tx.all(_SEARCH, event=event, since=moment, after=after, limit=logged_rows.limited(limit))
    return AccessPage(*logged_rows.paged(found, limit, lambda row: AccessEvent(*row), lambda each: each.id))
