"""Budgets: escalations that agents have spent, for a kernel that keeps its own limit.

Rules:
- A token is spent only while no more are than its caller has seen: between looking and spending others spend too.
"""

from holdproof.db import Tx, lock_exclusive, sql
from holdproof.errors import ConflictError
from holdproof.model.coordination import Budget
from holdproof.model.times import later
from holdproof.runtime import escalations, logged_rows
from holdproof.runtime.logged_rows import BEGINNING, MAIN

_SPENT = sql("SELECT count(*) FROM escalation_budget WHERE agent_id = :agent_id AND ns = :ns AND created_at >= :since")


def spent(tx: Tx, agent_id: str, *, since: str = BEGINNING, ns: str = MAIN) -> int:
    """How many escalations an agent has spent since a moment, that one included."""
    row = tx.one(_SPENT, agent_id=agent_id, since=logged_rows.moment("since", since), ns=ns)
    assert row is not None, "counts always come"
    return int(row[0])


_SPEND = sql("INSERT INTO escalation_budget (agent_id, created_at, ns) VALUES (:agent_id, :now, :ns)")


def spend(tx: Tx, agent_id: str, *, since: str = BEGINNING, seen: int | None = None, ns: str = MAIN) -> None:
    """Spend one; ConflictError if others have spent since the caller saw that many."""
    lock_exclusive(tx, f"agent:{agent_id}")
    now = 0 if seen is None else spent(tx, agent_id, since=since, ns=ns)
    if seen is not None and now > seen:
        raise ConflictError(
            f"agent {agent_id} has spent {now} escalations by now, not {seen}: look again", agent_id=agent_id, spent=now
        )
    tx.execute(_SPEND, agent_id=agent_id, now=tx.now, ns=ns, expect=1)


_WITHIN = sql(
    "SELECT count(*), min(created_at) FROM escalation_budget"
    " WHERE agent_id = :agent_id AND ns = :ns AND created_at > :since"
)


def standing(
    tx: Tx,
    agent_id: str,
    *,
    budget: int = escalations.BUDGET,
    window_s: float = escalations.WINDOW_S,
    ns: str = MAIN,
) -> Budget:
    """What an agent has spent of its budget by now."""
    since = later(tx.now, -logged_rows.seconds("window_s", window_s))
    row = tx.one(_WITHIN, agent_id=agent_id, since=since, ns=ns)
    assert row is not None, "counts always come"
    renews = None if row[1] is None else later(row[1], window_s)
    return Budget(agent_id, row[0], budget, window_s, renews)
