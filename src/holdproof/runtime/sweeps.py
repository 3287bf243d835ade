"""The sweep: what time has ended is put away, what needs somebody is counted. Safe at any time, by any number at once.

Rules:
- Expired locks and keys go; a key whose outcome is unknown stays until somebody settles it.
- A question whose deadline has passed gets its default, though nobody waits for it.
- Orphaned and dirty flows are only counted: `flows.recover` and `sagas.compensate` take them in hand.
"""

from holdproof.db import Read, Tx, Work, Write, ask, sql
from holdproof.model.coordination import Swept
from holdproof.runtime import escalations, idempotency, locks

_BATCH = 100


def run() -> Work[Swept]:
    """Sweep once; what was put away, and what is left for others."""
    freed = yield from ask(Write(locks.sweep))
    forgotten = yield from ask(Write(idempotency.sweep))
    answered = 0
    while True:
        batch = yield from ask(Write(lambda tx: escalations.sweep(tx, limit=_BATCH)))
        answered += batch
        if batch < _BATCH:
            break
    orphans, dirty, unknown = yield from ask(Read(left))
    return Swept(freed, forgotten, answered, orphans, dirty, unknown)


_LEFT = sql(
    "SELECT (SELECT count(*) FROM flow_leases l JOIN decision_flows f ON f.dfid = l.dfid WHERE l.expires_at <= :now"
    " AND f.status IN ('RUNNING', 'COMPENSATING')), (SELECT count(*) FROM saga_dirty_state),"
    " (SELECT count(*) FROM idempotency_cache WHERE state IN ('RUNNING', 'UNKNOWN') AND lease_until <= :now)"
)


def left(tx: Tx) -> tuple[int, int, int]:
    """What needs somebody: flows without a worker, dirty flows, and keys whose outcome is unknown."""
    row = tx.one(_LEFT, now=tx.now)
    assert row is not None, "counts always come"
    return row[0], row[1], row[2]
