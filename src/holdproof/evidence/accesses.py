"""Accesses in the log: who was given a person's content, or an export, and when.

Rules:
- Each row has its entry. A subject is named by handle: an entry tells nobody's name.
- A read of one subject by one caller through one method is recorded once in an hour (UTC): the entry stands for the
  others of that hour. Each export has an entry of its own.
- Rows are never changed, and outlive the subject's erasure.
"""

from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Final

from holdproof.db import Access, Database, Tx, sql
from holdproof.evidence import leaves, logged_tables
from holdproof.evidence.leaves import Projection
from holdproof.model.times import to_text

READ: Final = "read"
EXPORT: Final = "export"
ACCESSES: Final = Projection("accesses", 1, ("id", "kind", "who", "what", "target", "accessed_at", "ns"))
LOGGED: Final = (logged_tables.describe(ACCESSES, kinds=("access",), key="id"),)

_HOUR_US: Final = 3_600_000_000
_RECORDED = sql(
    "SELECT 1 FROM accesses WHERE target = :target AND who = :who AND what = :what AND kind = :kind AND ns = :ns"
    " AND accessed_at >= :since LIMIT 1"
)
_ADD = sql(
    "INSERT INTO accesses (id, kind, who, what, target, accessed_at, ns, leaf_id, leaf_ver, leaf_salt)"
    " VALUES (:id, :kind, :who, :what, :target, :accessed_at, :ns, :leaf_id, :leaf_ver, :leaf_salt)"
)


def record(tx: Tx, access: Access, *, since: str | None = None) -> None:
    """Record an access with its entry; with `since` not where one like it is recorded from then on."""
    if since is not None and tx.one(_RECORDED, **access._asdict(), since=since) is not None:
        return
    row = {"id": tx.new_id(), **access._asdict(), "accessed_at": tx.now}
    mark = leaves.stamp(tx, "access", ACCESSES, row, ns=access.ns)
    tx.execute(_ADD, **row, **mark._asdict(), expect=1)


class AccessRecords:
    """Remembers which reads of this hour are recorded, so that only the first of them is written."""

    def __init__(self, database: Database) -> None:
        self._clock = database.clock
        self._hour = 0
        self._recorded: set[Access] = set()
        self._guard = Lock()

    def record(self, access: Access) -> Callable[[Tx], None] | None:
        """See AccessRecorder."""
        if access.kind != READ:
            return partial(record, access=access)
        hour = self._clock() // _HOUR_US
        with self._guard:
            if hour != self._hour:
                self._hour = hour
                self._recorded.clear()
            if access in self._recorded:
                return None
            self._recorded.add(access)
        return partial(record, access=access, since=to_text(hour * _HOUR_US))

    def forget(self, access: Access) -> None:
        """See AccessRecorder."""
        with self._guard:
            self._recorded.discard(access)


def start(database: Database) -> None:
    """Record accesses to a store from now on."""
    database.hooks.accesses = AccessRecords(database)
