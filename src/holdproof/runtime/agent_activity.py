"""What agents did lately: flows over time, failures, approvals asked for; for lists of agents.

Rules:
- Counted are the newest flows of the time that is asked for, up to a bound, so that a page of agents costs the same
  with a million flows; `exact` says whether these were all.
"""

from typing import Final

from holdproof import validation
from holdproof.db import Tx, sql
from holdproof.model.agents import AgentActivity, AgentCounts
from holdproof.model.namespaces import MAIN
from holdproof.model.times import later, to_micros

_COUNTED: Final = 10_000
_DAY_S: Final = 86_400.0
_MOST_S: Final = 31 * _DAY_S
_BUCKETS: Final = 24

_FLOWS = sql(
    "SELECT agent_id, status, created_at FROM decision_flows WHERE ns = :ns AND created_at >= :since"
    " ORDER BY created_at DESC LIMIT :limit"
)
_ASKED = sql(
    "SELECT agent_id, count(*) FROM escalation_requests WHERE ns = :ns AND created_at >= :since GROUP BY agent_id"
)


def activity(tx: Tx, *, window_s: float = _DAY_S, ns: str = MAIN) -> AgentActivity:
    """Return what each agent did within the last `window_s` seconds, the busiest first."""
    window = validation.number("window_s", window_s, least=60.0, most=_MOST_S)
    since = later(tx.now, -window)
    rows = tx.all(_FLOWS, ns=ns, since=since, limit=_COUNTED + 1)
    start = to_micros(since)
    width = window * 1_000_000 / _BUCKETS
    buckets: dict[str, list[int]] = {}
    failed: dict[str, int] = {}
    running: dict[str, int] = {}
    last: dict[str, str] = {}
    for agent, status, at in rows[:_COUNTED]:
        counts = buckets.setdefault(agent, [0] * _BUCKETS)
        counts[min(int((to_micros(at) - start) / width), _BUCKETS - 1)] += 1
        failed[agent] = failed.get(agent, 0) + (status in {"FAILED", "COMPENSATED"})
        running[agent] = running.get(agent, 0) + (status in {"CREATED", "RUNNING", "WAITING_ESCALATION"})
        last.setdefault(agent, at)
    escalations: dict[str, int] = dict(tx.all(_ASKED, ns=ns, since=since))
    agents = tuple(
        AgentCounts(
            agent, sum(counts), failed[agent], running[agent], escalations.get(agent, 0), last[agent], tuple(counts)
        )
        for agent, counts in sorted(buckets.items(), key=lambda item: (-sum(item[1]), item[0]))
    )
    return AgentActivity(agents, since, len(rows) <= _COUNTED)
