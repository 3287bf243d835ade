"""How things stand, in numbers that are cheap to ask for: nothing here walks a table that only grows."""

from typing import Final

from holdproof.db import Tx, sql
from holdproof.evidence import log, tree
from holdproof.model.flows import OPEN
from holdproof.runtime import sweeps

_OPEN: Final = ", ".join(f"'{status}'" for status in OPEN)
_FLOWS = sql(f"SELECT status, count(*) FROM decision_flows WHERE status IN ({_OPEN}) GROUP BY status")  # noqa: S608
_FLOWS_OF = sql(
    f"SELECT status, count(*) FROM decision_flows WHERE ns = :ns AND status IN ({_OPEN})"  # noqa: S608 (ours)
    " GROUP BY status ORDER BY status"
)
_COUNTS = sql(
    "SELECT (SELECT count(*) FROM escalation_requests WHERE status = 'PENDING'), (SELECT count(*) FROM resource_locks),"
    " (SELECT count(*) FROM agent_registry)"
)


def flows(tx: Tx, *, ns: str) -> dict[str, int]:
    """Flows of a namespace that are open, by status."""
    return dict(tx.all(_FLOWS_OF, ns=ns))


def read(tx: Tx) -> dict[str, int]:
    """Flows that are open by status, what waits for somebody, what is held, and the size of the log."""
    counts = tx.one(_COUNTS)
    open: dict[str, int] = dict(tx.all(_FLOWS))
    assert counts is not None, "counts always come"
    orphans, dirty, unknown = sweeps.left(tx)
    return {
        **{f"flows.{status}": open.get(status, 0) for status in OPEN},
        "escalations.pending": counts[0],
        "locks": counts[1],
        "agents": counts[2],
        "flows.orphaned": orphans,
        "flows.dirty": dirty,
        "keys.unknown": unknown,
        "log.size": tree.state(tx).size if tree.exists(tx) else 0,
        "log.pending": log.pending(tx),
    }
