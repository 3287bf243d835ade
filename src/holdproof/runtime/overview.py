"""What opening a store and `status` read of flows, escalations and workers.

Apart from the modules that do the work, so that neither has to import them: a program that asks how a store stands
starts in a third of the time.
"""

import logging
from typing import Final, NamedTuple

from holdproof.db import Database, Tx, sql
from holdproof.model.times import later

_log = logging.getLogger("holdproof")

EXPIRED: Final = "escalation expired"
"""The topic of the notes that hand each escalation that nobody answered to the hooks of its commit."""
HEARTBEAT_S: Final = 10.0
LOST_S: Final = 3 * HEARTBEAT_S
"""A worker without a heartbeat for so long is lost."""

_DIRTY = sql("SELECT count(*) FROM saga_dirty_state")


def warn_of_dirty_flows(database: Database) -> None:
    """Warn of dirty flows when a store is opened: they wait for somebody, also across a restart."""
    [(dirty,)] = database.read(lambda tx: tx.all(_DIRTY)).result()
    if dirty:
        _log.warning("flows that failed half way and are still dirty: %d; see `holdproof sagas list`", dirty)


_ESCALATIONS = sql(
    "SELECT (SELECT count(*) FROM escalation_requests WHERE status = 'PENDING'),"
    " (SELECT count(*) FROM escalation_requests WHERE resolved_by = 'deadline'),"
    " (SELECT count(*) FROM escalation_requests WHERE resolved_by = 'deadline' AND resolved_at > :since)"
)


def escalations(tx: Tx) -> dict[str, int]:
    """Count what waits for a person, and what expired unanswered: ever, and within the last day; of all namespaces."""
    row = tx.one(_ESCALATIONS, since=later(tx.now, -86_400.0))
    assert row is not None, "an aggregate has one row"
    pending, expired, lately = row
    return {"pending": pending, "expired": expired, "expired_last_day": lately}


_STATES = sql(
    "SELECT CASE WHEN heartbeat_at <= :lost THEN 'LOST' ELSE state END, count(*) FROM workers GROUP BY 1 ORDER BY 1"
)
# By the indexes of what is due and of what is leased: neither walks over flows that sleep or have ended.
_DUE = sql("SELECT queue, count(*) FROM flow_leases WHERE expires_at <= :now GROUP BY queue")
_LEASED_OF: Final = "SELECT queue, count(*) FROM {leases} WHERE worker <> '' AND expires_at > :now GROUP BY queue"
_LEASED = sql(
    _LEASED_OF.format(leases="flow_leases INDEXED BY idx_flow_leases_worker"),
    postgres=_LEASED_OF.format(leases="flow_leases"),
)


class Totals(NamedTuple):
    """How many workers there are by state, and how many flows of each queue are due and run; of all namespaces."""

    workers: dict[str, int]
    due: dict[str, int]
    running: dict[str, int]


def workers(tx: Tx) -> Totals:
    """Count workers, and what is due and runs, cheaply: for metrics and `status`."""
    states: dict[str, int] = dict(tx.all(_STATES, lost=later(tx.now, -LOST_S)))
    return Totals(states, dict(tx.all(_DUE, now=tx.now)), dict(tx.all(_LEASED, now=tx.now)))
