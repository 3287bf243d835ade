"""A lockdown as an escalation in the store itself; and alerts of escalations that nobody answered.

Rules:
- It is one of the lockdown's own records and passes the gate; its flow has the lockdown's id.
- The escalation belongs to an agent id of the kernel's own, so that it counts against no agent's budget.
- While the store is locked nobody can resolve it; root's unlock statement does, and ends the flow. A locked skill is
  escalated as well, and resolved by its next approval. So is a skill that nobody approved: that escalation locks
  nothing, and whoever rejects or cancels it has dismissed it.
- It is best effort: a damaged runtime prevents neither the lockdown nor its end.
- An escalation that expires unanswered is alerted by the process that applied its default, once that is committed; one
  alert for all of a commit.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from holdproof.db import Database, Tx, sql
from holdproof.errors import HoldproofError, NotFoundError
from holdproof.model.coordination import Escalation
from holdproof.model.namespaces import MAIN
from holdproof.model.verify import Locked
from holdproof.runtime import agents, escalations, flows
from holdproof.upkeep import notify
from holdproof.upkeep.notify import ExpiryAlert

AGENT: Final = "__holdproof__"
"""The agent id of the kernel's own escalations."""
FLOW: Final = "LOCKDOWN"
"""The type of the flows that stand for a lockdown of the store."""
SKILL_FLOW: Final = "SKILL"
"""The type of the flows that stand for a skill that is locked, or that nobody approved."""


def tell_of_expiries(store_id: str, expiries: Sequence[Escalation]) -> None:
    """Alert people that this process applied the default of escalations that nobody answered."""
    first = expiries[0]
    alert = ExpiryAlert(
        store_id,
        first.id,
        first.flow_id,
        first.agent_id,
        first.reason,
        first.impact,
        first.deadline or "",
        first.on_deadline,
        len(expiries),
    )
    notify.broadcast(notify.configured(os.environ)[0], alert)


_STEPS: Final = "keep a copy, run `holdproof verify --full`, restore, then end the lockdown as root"


ASKED: Final = "asked"
"""The outcome of an escalation that is new."""


def escalate(
    database: Database,
    locked: Locked,
    *,
    findings: int,
    to_do: str = _STEPS,
    heading: str = "LOCKDOWN",
    flow_type: str = FLOW,
) -> str:
    """Escalate a lockdown to the operator; return the outcome in a word or two, for the log."""
    escalating = partial(_escalate, locked=locked, findings=findings, to_do=to_do, heading=heading, flow_type=flow_type)
    return _attempt(database, escalating)


def resolve(database: Database, locked: Locked, *, reason: str, by: str = "root") -> str:
    """Resolve the escalation of a lockdown that was ended; return the outcome in a word or two, for the log."""
    return _attempt(database, partial(_resolve, locked=locked, reason=reason, by=by))


_KNOWN = sql("SELECT 1 FROM decision_flows WHERE dfid = :dfid AND ns = :ns")


def _escalate(tx: Tx, locked: Locked, *, findings: int, to_do: str, heading: str, flow_type: str) -> str:
    # The flow has the lockdown's id, so a second process that finds the same lockdown does not escalate it again.
    if tx.one(_KNOWN, dfid=locked.id, ns=MAIN) is not None:
        return "asked before"
    try:
        agents.get(tx, AGENT)
    except NotFoundError:
        # A restored or new store has no such agent yet.
        agents.register(tx, AGENT, version="1.0.0", contract={"does": "asks for the kernel"})
    # No policy of agents keeps the kernel from asking for help.
    flows.open_flow(
        tx, AGENT, flow_type=flow_type, created_by=("KERNEL", "lockdown"), flow_id=locked.id, governed=False
    )
    flows.transition(tx, locked.id, "RUNNING", reason=locked.reason)
    about = {**locked.to_dict(), "findings": findings}
    escalations.alert(tx, locked.id, reason=f"{heading}: {locked.reason}", context=about, proposal={"do": to_do})
    return ASKED


_OPEN = sql("SELECT id FROM escalation_requests WHERE dfid = :dfid AND ns = :ns AND status = 'PENDING' ORDER BY id")


def _resolve(tx: Tx, locked: Locked, reason: str, by: str) -> str:
    pending = tx.all(_OPEN, dfid=locked.id, ns=MAIN)
    for (id,) in pending:
        escalations.resolve(tx, id, "approve", by=by, comment=reason)
    # The flow may have been ended by hand while the store was unlocked.
    if pending and flows.get(tx, locked.id).status == "RUNNING":
        flows.transition(tx, locked.id, "COMPLETED", reason=reason)
    return "answered" if pending else "nothing was asked"


def _attempt(database: Database, fn: Callable[[Tx], str]) -> str:
    try:
        return database.write(fn, ungated=True).result()
    except HoldproofError as error:
        return f"not written: {error}"
