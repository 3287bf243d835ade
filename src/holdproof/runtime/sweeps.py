"""The sweep: removes what has expired, and counts what needs somebody. Safe at any time, by any number at once.

Rules:
- Expired locks and keys are removed; a key whose outcome is unknown stays until somebody settles it.
- An escalation whose deadline has passed gets its default, though nobody waits for it; one whose deadline is near is
  reminded of, once.
- What has happened is counted by hour, for overviews (activity.py), and the size of the store is kept (growth.py).
- Orphaned and dirty flows are only counted: `flows.recover` and `sagas.compensate` work on them.
"""

from typing import NamedTuple

from holdproof.db import Read, Tx, Work, Write, ask, sql
from holdproof.evidence import growth
from holdproof.model.coordination import SweepResult
from holdproof.runtime import activity, escalation_messages, escalations, idempotency, locks

_BATCH = 100


def run() -> Work[SweepResult]:
    """Sweep once; return how much was removed or resolved, and how much needs somebody."""
    expired_locks = yield from ask(Write(locks.sweep))
    expired_keys = yield from ask(Write(idempotency.sweep))
    resolved = 0
    # In batches, so that no transaction holds the locks of many flows.
    while True:
        batch = yield from ask(Write(lambda tx: escalations.sweep(tx, limit=_BATCH)))
        resolved += batch
        if batch < _BATCH:
            break
    if (yield from ask(Read(escalation_messages.is_any_near))):
        yield from ask(Write(escalation_messages.remind))
    yield from activity.count_passed()
    yield from growth.keep()
    rest = yield from ask(Read(backlog))
    return SweepResult(expired_locks, expired_keys, resolved, rest.orphaned_flows, rest.dirty_flows, rest.unknown_keys)


class Backlog(NamedTuple):
    """How much needs somebody."""

    orphaned_flows: int
    dirty_flows: int
    unknown_keys: int


_BACKLOG = sql(
    "SELECT (SELECT count(*) FROM flow_leases l JOIN decision_flows f ON f.dfid = l.dfid AND f.ns = l.ns"
    " WHERE l.expires_at <= :now AND f.status IN ('RUNNING', 'COMPENSATING')"
    " AND (CAST(:ns AS TEXT) IS NULL OR l.ns = :ns)),"
    " (SELECT count(*) FROM saga_dirty_state WHERE (CAST(:ns AS TEXT) IS NULL OR ns = :ns)),"
    " (SELECT count(*) FROM idempotency_cache WHERE state IN ('RUNNING', 'UNKNOWN') AND lease_until <= :now"
    " AND (CAST(:ns AS TEXT) IS NULL OR ns = :ns))"
)


def backlog(tx: Tx, *, ns: str | None = None) -> Backlog:
    """Count flows without a worker, dirty flows, and keys whose outcome is unknown: of one namespace, or of all."""
    row = tx.one(_BACKLOG, now=tx.now, ns=ns)
    assert row is not None, "an aggregate has one row"
    return Backlog(*row)
