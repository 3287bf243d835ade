"""Gauges: counts that are cheap to read; none of them walks a table that only grows."""

from typing import Final

from holdproof.db import Tx, sql
from holdproof.evidence import log, tree
from holdproof.model.flows import OPEN
from holdproof.runtime import overview, sweeps

_OPEN: Final = ", ".join(f"'{status}'" for status in OPEN)
_FLOWS = sql(f"SELECT status, count(*) FROM decision_flows WHERE status IN ({_OPEN}) GROUP BY status")  # noqa: S608
_FLOWS_OF = sql(
    f"SELECT status, count(*) FROM decision_flows WHERE ns = :ns AND status IN ({_OPEN})"  # noqa: S608 (ours)
    " GROUP BY status ORDER BY status"
)
_COUNTS = sql("SELECT (SELECT count(*) FROM resource_locks), (SELECT count(*) FROM agent_registry)")


def flows(tx: Tx, *, ns: str) -> dict[str, int]:
    """Count the open flows of a namespace, by status."""
    return dict(tx.all(_FLOWS_OF, ns=ns))


def troubles(tx: Tx, *, ns: str) -> dict[str, int]:
    """Count what needs an operator in a namespace, under the names that `read` has for the whole store."""
    backlog = sweeps.backlog(tx, ns=ns)
    return {
        "flows.orphaned": backlog.orphaned_flows,
        "flows.dirty": backlog.dirty_flows,
        "keys.unknown": backlog.unknown_keys,
    }


_NAMESPACES = sql("SELECT DISTINCT ns FROM agent_registry ORDER BY ns LIMIT 1000")


def namespaces(tx: Tx) -> list[str]:
    """Return the namespaces that have agents, by name."""
    return [ns for (ns,) in tx.all(_NAMESPACES)]


def read(tx: Tx) -> dict[str, int]:
    """Count open flows by status, pending escalations, locks, what needs an operator, and the leaves of the log."""
    counts = tx.one(_COUNTS)
    assert counts is not None, "an aggregate has one row"
    locks, agents = counts
    escalations = overview.escalations(tx)
    open: dict[str, int] = dict(tx.all(_FLOWS))
    backlog = sweeps.backlog(tx)
    return {
        **{f"flows.{status}": open.get(status, 0) for status in OPEN},
        "escalations.pending": escalations["pending"],
        "escalations.expired": escalations["expired"],
        "locks": locks,
        "agents": agents,
        "flows.orphaned": backlog.orphaned_flows,
        "flows.dirty": backlog.dirty_flows,
        "keys.unknown": backlog.unknown_keys,
        "log.size": tree.state(tx).size if tree.exists(tx) else 0,
        "log.pending": log.pending(tx),
    }
