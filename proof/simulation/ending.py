"""What must hold at the end, when everybody has had time to finish."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Final

from holdproof.db import Tx, sql
from holdproof.model.flows import TERMINAL
from holdproof.runtime.escalations import EXHAUSTED
from proof.simulation.acts import PURSE
from proof.simulation.rules import Rules

_FLOWS = sql("SELECT dfid, status FROM decision_flows")
_STEPS = sql("SELECT dfid, name, n, state, undo FROM flow_steps ORDER BY step_id")
_COUNTS: Final = {
    "a lock is left": sql("SELECT count(*) FROM resource_locks WHERE expires_at IS NULL OR expires_at > :now"),
    "a question is left open": sql("SELECT count(*) FROM escalation_requests WHERE status = 'PENDING' AND :now > ''"),
    "a flow is left dirty": sql("SELECT count(*) FROM saga_dirty_state WHERE :now > ''"),
}
_TOKENS = sql("SELECT agent_id, count(*) FROM escalation_budget GROUP BY agent_id")
_ASKED = sql(
    "SELECT agent_id, count(*) FROM escalation_requests WHERE opened_by = 'agent' AND coalesce(comment, '') <> :spent"
    " GROUP BY agent_id"
)
_PURSES = sql("SELECT agent_id, data, version FROM agent_state")


def quiet(tx: Tx) -> bool:
    """Whether nothing is under way any more."""
    ended = all(status in TERMINAL for _, status in tx.all(_FLOWS))
    return ended and not any(row[0] for query in _COUNTS.values() for row in tx.all(query, now=tx.now))


def findings(tx: Tx, rules: Rules) -> Iterator[str]:
    """All that is not as it must be."""
    status: dict[str, str] = dict(tx.all(_FLOWS))
    yield from (f"a flow is lost: {flow_id} was acknowledged" for flow_id in rules.world.submitted - status.keys())
    yield from (f"a flow never ended: {flow_id} is {now}" for flow_id, now in status.items() if now not in TERMINAL)
    moved = {flow_id: now for flow_id, now in status.items() if rules.status.get(flow_id, "CREATED") != now}
    yield from (f"a flow is {now} without having moved there: {flow_id}" for flow_id, now in moved.items())
    for what, query in _COUNTS.items():
        [(left,)] = tx.all(query, now=tx.now)
        if left:
            yield f"{what}: {left}"
    yield from _undone(tx, rules, status)
    yield from _spent(tx, rules)


def _undone(tx: Tx, rules: Rules, status: dict[str, str]) -> Iterator[str]:
    """Compensated flows have undone all that they did, the last first, and completed ones nothing."""
    done: dict[str, list[str]] = {flow_id: [] for flow_id in status}
    for flow_id, name, n, state, undo in tx.all(_STEPS):
        if undo and state == "DONE":
            done[flow_id].append(f"{name} {n}")
    for flow_id, now in status.items():
        undone = rules.world.order[flow_id]
        if now == "COMPLETED" and undone:
            yield f"a completed flow was undone: {flow_id} {undone}"
        if now == "COMPENSATED" and flow_id not in rules.world.mended:
            once = [*dict.fromkeys(reversed(undone))][::-1]
            if sorted(once) != sorted(done[flow_id]):
                yield f"a compensated flow was not undone: {flow_id} {done[flow_id]} {undone}"
            if [*dict.fromkeys(undone)] != done[flow_id][::-1]:
                yield f"a flow was undone out of order: {flow_id} {done[flow_id]} {undone}"


def _spent(tx: Tx, rules: Rules) -> Iterator[str]:
    """Budgets and purses hold exactly what was spent."""
    tokens: Counter[str] = Counter(dict(tx.all(_TOKENS)))
    asked: Counter[str] = Counter(dict(tx.all(_ASKED, spent=EXHAUSTED)))
    if tokens != asked:
        yield f"budgets do not say what was spent: {dict((tokens - asked) + (asked - tokens))}"
    for agent, text, version in tx.all(_PURSES):
        purse: dict[str, int] = json.loads(text)
        if sum(purse.values()) > PURSE or version != len(purse) + 1:
            yield f"a purse is overdrawn, or lost an update: {agent} {purse} {version}"
        if lost := rules.world.spent.get(agent, {}).items() - purse.items():
            yield f"a spending was acknowledged and is gone: {agent} {lost}"
