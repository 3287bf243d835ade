"""Budgets: how many escalations agents have spent.

Rules:
- Which budget an agent has is said by its contract or by an operator (agents.py); what it requests is counted always.
- For a kernel that checks its own limit, one is spent only if nobody spent since the kernel counted.
"""

from holdproof import validation
from holdproof.db import Tx, lock_exclusive, sql
from holdproof.errors import ConflictError
from holdproof.model.coordination import Budget
from holdproof.model.namespaces import MAIN
from holdproof.model.times import BEGINNING, later
from holdproof.runtime import agents
from holdproof.runtime.escalations import WINDOW_S

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


def get(tx: Tx, agent_id: str, *, ns: str = MAIN) -> Budget:
    """Return an agent's budget of escalations, and what it has spent of it within the last hour."""
    budget = agents.get(tx, agent_id, ns=ns).budget
    since = later(tx.now, -WINDOW_S)
    row = tx.one(_WITHIN, agent_id=agent_id, since=since, ns=ns)
    assert row is not None, "an aggregate has one row"
    spent, oldest = row
    # The oldest of them leaves the window first, and frees one.
    renews_at = None if oldest is None else later(oldest, WINDOW_S)
    if budget is None:
        return Budget(agent_id, spent, None, None, WINDOW_S, renews_at)
    return Budget(agent_id, spent, budget.per_hour, budget.on_exhausted, WINDOW_S, renews_at)
