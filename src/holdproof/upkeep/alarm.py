"""The operator's question: a lockdown is an escalation in the store itself, beside the alerts that leave it.

Rules:
- It is one of the lockdown's own records and passes the gate; its flow has the lockdown's id.
- The kernel asks under a name of its own: that costs no agent anything.
- While the store is locked nobody can answer it; root's statement does, and ends the flow. A locked skill is asked
  about as well, and answered by its next approval.
- It is best effort: a runtime that is itself damaged stops neither the lockdown nor its end.
"""

from collections.abc import Callable
from typing import Final

from holdproof.db import Database, Tx, sql
from holdproof.errors import HoldproofError, NotFoundError
from holdproof.model.verify import Locked
from holdproof.runtime import agents, escalations, flows

AGENT: Final = "__holdproof__"
"""Who asks: a name that programs leave alone."""
FLOW: Final = "LOCKDOWN"


_STEPS: Final = "keep a copy, run `holdproof verify --full`, restore, then end the lockdown as root"


def ask(database: Database, locked: Locked, *, findings: int, to_do: str = _STEPS) -> str:
    """Put the question before the operator; what became of it, in a word or two."""
    return _attempt(database, lambda tx: _ask(tx, locked, findings, to_do))


def answer(database: Database, locked: Locked, *, reason: str, by: str = "root") -> str:
    """Somebody has ended the lockdown: that is the answer."""
    return _attempt(database, lambda tx: _answer(tx, locked, reason, by))


_KNOWN = sql("SELECT 1 FROM decision_flows WHERE dfid = :dfid")


def _ask(tx: Tx, locked: Locked, findings: int, to_do: str) -> str:
    if tx.one(_KNOWN, dfid=locked.id) is not None:
        return "asked before"
    try:
        agents.get(tx, AGENT)
    except NotFoundError:
        agents.register(tx, AGENT, version="1.0.0", contract={"does": "asks for the kernel"})
    flows.start(tx, AGENT, flow_type=FLOW, created_by=("KERNEL", "lockdown"), flow_id=locked.id)
    flows.transition(tx, locked.id, "RUNNING", reason=locked.reason)
    about = {**locked.to_dict(), "findings": findings}
    escalations.alert(tx, locked.id, reason=f"LOCKDOWN: {locked.reason}", context=about, proposal={"do": to_do})
    return "asked"


_OPEN = sql("SELECT id FROM escalation_requests WHERE dfid = :dfid AND status = 'PENDING' ORDER BY id")


def _answer(tx: Tx, locked: Locked, reason: str, by: str) -> str:
    asked = tx.all(_OPEN, dfid=locked.id)
    for (id,) in asked:
        escalations.resolve(tx, id, "approve", by=by, comment=reason)
    if asked and flows.get(tx, locked.id).status == "RUNNING":
        flows.transition(tx, locked.id, "COMPLETED", reason=reason)
    return "answered" if asked else "nothing was asked"


def _attempt(database: Database, fn: Callable[[Tx], str]) -> str:
    try:
        return database.write(fn, ungated=True).result()
    except HoldproofError as error:
        return f"not written: {error}"
