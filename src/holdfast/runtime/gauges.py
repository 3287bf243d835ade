"""How things stand, in numbers that are cheap to ask for: nothing here walks a table that only grows."""

from typing import Final

from holdfast.db import Tx, sql
from holdfast.evidence import log, tree
from holdfast.runtime import sweeps

OPEN: Final = ("CREATED", "RUNNING", "WAITING_ESCALATION", "COMPENSATING")

_FLOWS = sql(
    "SELECT status, count(*) FROM decision_flows"
    " WHERE status IN ('CREATED', 'RUNNING', 'WAITING_ESCALATION', 'COMPENSATING') GROUP BY status"
)
_COUNTS = sql(
    "SELECT (SELECT count(*) FROM escalation_requests WHERE status = 'PENDING'), (SELECT count(*) FROM resource_locks),"
    " (SELECT count(*) FROM agent_registry)"
)


def read(tx: Tx) -> dict[str, int]:
    """Flows that are open by status, what waits for somebody, what is held, and the size of the log."""
    counts = tx.one(_COUNTS)
    flows: dict[str, int] = dict(tx.all(_FLOWS))
    assert counts is not None, "counts always come"
    orphans, dirty, unknown = sweeps.left(tx)
    return {
        **{f"flows.{status}": flows.get(status, 0) for status in OPEN},
        "escalations.pending": counts[0],
        "locks": counts[1],
        "agents": counts[2],
        "flows.orphaned": orphans,
        "flows.dirty": dirty,
        "keys.unknown": unknown,
        "log.size": tree.state(tx).size if tree.begun(tx) else 0,
        "log.pending": log.pending(tx),
    }
