"""Budgets: how many escalations agents have spent.

Rules:
- For a kernel that checks its own limit, one is spent only if nobody spent since the kernel counted.
"""

from holdproof import validation
from holdproof.db import Tx, lock_exclusive, sql
from holdproof.errors import ConflictError
from holdproof.model.coordination import Budget
from holdproof.model.namespaces import MAIN
from holdproof.model.times import BEGINNING, later
from holdproof.runtime import escalations

_COUNT = sql("SELECT count(*) FROM escalation_budget WHERE agent_id = :agent_id AND ns = :ns AND created_at >= :since")


def count(tx: Tx, agent_id: str, *, since: str = BEGINNING, ns: str = MAIN) -> int:
    """Return how many escalations an agent has spent since a moment, that moment included."""
    row = tx.one(_COUNT, agent_id=agent_id, since=validation.moment("since", since), ns=ns)
    assert row is not None, "an aggregate has one row"
    (spent,) = row
    return int(spent)


_SPEND = sql("INSERT INTO escalation_budget (agent_id, created_at, ns) VALUES (:agent_id, :now, :ns)")


def spend(tx: Tx, agent_id: str, *, since: str = BEGINNING, expected: int | None = None, ns: str = MAIN) -> None:
    """Spend one; ConflictError if more than `expected` are spent since then."""
    # Held to the end of the transaction: between counting and spending nobody else spends.
    lock_exclusive(tx, f"agent:{agent_id}")
    if expected is not None:
        spent = count(tx, agent_id, since=since, ns=ns)
        if spent > expected:
            raise ConflictError(
                f"agent {agent_id} has spent {spent} escalations, not {expected}: count again",
                agent_id=agent_id,
                spent=spent,
            )
    tx.execute(_SPEND, agent_id=agent_id, now=tx.now, ns=ns, expect=1)


_WITHIN = sql(
    "SELECT count(*), min(created_at) FROM escalation_budget"
    " WHERE agent_id = :agent_id AND ns = :ns AND created_at > :since"
)


def get(
    tx: Tx,
    agent_id: str,
    *,
    budget: int = escalations.BUDGET,
    window_s: float = escalations.WINDOW_S,
    ns: str = MAIN,
) -> Budget:
    """Return what an agent has spent of its budget within the window."""
    since = later(tx.now, -validation.seconds("window_s", window_s))
    row = tx.one(_WITHIN, agent_id=agent_id, since=since, ns=ns)
    assert row is not None, "an aggregate has one row"
    spent, oldest = row
    # The oldest of them leaves the window first, and frees one.
    renews_at = None if oldest is None else later(oldest, window_s)
    return Budget(agent_id, spent, budget, window_s, renews_at)
