"""Escalations: an agent asks a person, and waits.

Rules:
- Each request of an agent spends one token of its budget (3 an hour), checked and spent as one; the kernel's own cost
  nothing.
- A spent budget is recorded and refused: the request is CANCELLED, the agent SUSPENDED with the reason
  ESCALATION_BUDGET_EXHAUSTED, the flow CANCELLED.
- A request moves its flow to WAITING_ESCALATION; the answer moves it on: APPROVED to RUNNING, REJECTED to FAILED,
  CANCELLED to CANCELLED. Where that leaves steps to undo, the flow goes on to COMPENSATING, whoever is there to do it.
- An answer is given once; the second resolver gets AlreadyResolvedError.
- A deadline that passes takes its default and says so; an answer that comes later is DeadlinePassedError.
- Who resolved, the comment and the proposal as it was shown are in the record's leaf.
"""

from typing import Any, Final

from holdproof.db import Refused, Row, Tx, lock_exclusive, sql
from holdproof.errors import (
    AgentInactiveError,
    AlreadyResolvedError,
    BudgetExhaustedError,
    DeadlinePassedError,
    IllegalTransitionError,
    InvalidInputError,
    NotFoundError,
)
from holdproof.model.agents import ESCALATES
from holdproof.model.coordination import DECISIONS, IMPACTS, Escalation
from holdproof.model.flows import Flow
from holdproof.model.times import later
from holdproof.runtime import agents, audit, escalation_rows, flows, logged_rows
from holdproof.runtime.logged_rows import MAIN

BUDGET: Final = 3
WINDOW_S: Final = 3600.0
EXHAUSTED: Final = "ESCALATION_BUDGET_EXHAUSTED"
_DEFAULTS: Final = {"reject": "REJECTED", "approve": "APPROVED", "cancel": "CANCELLED"}
_ONWARD: Final = {"APPROVED": "RUNNING", "REJECTED": "FAILED", "CANCELLED": "CANCELLED"}

# --- asking ------------------------------------------------------------------------------------------------------

_SPEND = sql(
    "INSERT INTO escalation_budget (agent_id, created_at, ns) SELECT f.agent_id, :now, f.ns FROM decision_flows f"
    " WHERE f.dfid = :dfid AND (SELECT count(*) FROM escalation_budget b WHERE b.agent_id = f.agent_id"
    " AND b.created_at > :since) < :budget"
)


def request(
    tx: Tx,
    flow_id: str,
    *,
    reason: str,
    context: Any = None,
    proposal: Any = None,
    impact: str = "LOW_IMPACT",
    deadline: str | None = None,
    deadline_s: float | None = None,
    on_deadline: str = "reject",
    budget: int = BUDGET,
    window_s: float = WINDOW_S,
    ns: str = MAIN,
) -> Escalation | Refused:
    """Ask a person about a running flow; without an answer by the deadline the default is taken."""
    row = _question(reason, context, proposal, impact=impact, on_deadline=on_deadline)
    row["deadline"] = _deadline(tx, deadline, deadline_s)
    flow = flows.hold(tx, flow_id, ns=ns)
    if flow.status != "RUNNING":
        raise IllegalTransitionError(
            f"only a RUNNING flow asks, not one that is {flow.status}", flow_id=flow_id, from_status=flow.status
        )
    lock_exclusive(tx, f"agent:{flow.agent_id}")
    since = later(tx.now, -logged_rows.seconds("window_s", window_s))
    if tx.count(_SPEND, dfid=flow_id, now=tx.now, since=since, budget=budget) == 0:
        return _refuse(tx, flow, row)
    agent = agents.get(tx, flow.agent_id, ns=ns)
    if agent.status not in ESCALATES:
        raise AgentInactiveError(
            f"agent {agent.agent_id} is {agent.status} and may not escalate", agent_id=agent.agent_id
        )
    asked = _write(tx, flow, row)
    flows.transition(tx, flow_id, "WAITING_ESCALATION", causation_id=f"escalation:{asked.id}", reason=reason, ns=ns)
    return asked


def alert(
    tx: Tx, flow_id: str, *, reason: str, context: Any = None, proposal: Any = None, ns: str = MAIN
) -> Escalation:
    """The kernel asks: that costs the agent nothing, and moves the flow only if it is running."""
    row = _question(reason, context, proposal)
    flow = flows.hold(tx, flow_id, ns=ns)
    asked = _write(tx, flow, row | {"opened_by": "kernel"})
    if flow.status == "RUNNING":
        flows.transition(tx, flow_id, "WAITING_ESCALATION", causation_id=f"escalation:{asked.id}", reason=reason, ns=ns)
    return asked


def _question(
    reason: str, context: Any, proposal: Any, *, impact: str = "HIGH_IMPACT", on_deadline: str = "reject"
) -> dict[str, Any]:
    logged_rows.one_of("impact", impact, IMPACTS)
    logged_rows.one_of("on_deadline", on_deadline, frozenset(_DEFAULTS))
    texts = {"context_json": logged_rows.dump(context or {}), "proposal_json": logged_rows.dump(proposal or {})}
    return {"reason": reason, **texts, "impact": impact, "on_deadline": on_deadline}


def _deadline(tx: Tx, deadline: str | None, deadline_s: float | None) -> str | None:
    if deadline is not None and deadline_s is not None:
        raise InvalidInputError("give the deadline as a time or in seconds, not both")
    if deadline_s is not None:
        return later(tx.now, logged_rows.seconds("deadline_s", deadline_s))
    return None if deadline is None else logged_rows.moment("deadline", deadline)


_NEXT = logged_rows.numbered("SELECT {id}", "escalation_requests")


def ask(tx: Tx, flow_id: str, said: dict[str, Any], *, ns: str) -> Escalation:
    """Write a question in full, in columns; it spends nothing, and its flow stays where it is."""
    return _write(tx, flows.hold(tx, flow_id, ns=ns), said)


def _write(tx: Tx, flow: Flow, row: dict[str, Any]) -> Escalation:
    """Write a question that is open unless `row` says otherwise; it may name another agent than the flow's."""
    number = tx.one(_NEXT)
    assert number is not None
    about = {"id": number[0], "dfid": flow.flow_id, "root_dfid": flow.root_flow_id, "agent_id": flow.agent_id}
    about |= {"status": "PENDING", "created_at": tx.now, "on_deadline": "reject", "opened_by": "agent"}
    asked = escalation_rows.write(tx, about | row | {"ns": flow.ns})
    tx.notify(f"escalations:{flow.ns}")
    return asked


def _refuse(tx: Tx, flow: Flow, row: dict[str, Any]) -> Refused:
    """The budget is spent: that is recorded, the agent is suspended, and the flow goes no further."""
    said = {"status": "CANCELLED", "resolved_at": tx.now, "resolved_by": "kernel", "comment": EXHAUSTED}
    asked = _write(tx, flow, row | said)
    audit.record(tx, flow.flow_id, EXHAUSTED, severity="ERROR", detail={"escalation": asked.id}, ns=flow.ns)
    agents.set_status(tx, flow.agent_id, "SUSPENDED", reason=EXHAUSTED, ns=flow.ns)
    _move(tx, asked, "CANCELLED", EXHAUSTED)
    return Refused(
        BudgetExhaustedError(
            f"agent {flow.agent_id} has spent its escalations", agent_id=flow.agent_id, flow_id=flow.flow_id
        )
    )


# --- answering ---------------------------------------------------------------------------------------------------

_FIND = sql(
    "SELECT id, dfid, root_dfid, agent_id, reason, context_json, proposal_json, impact, status, human_decision,"
    " created_at, resolved_at, deadline, on_deadline, opened_by, resolved_by, comment, answer_json, ns, leaf_id,"
    " leaf_ver FROM escalation_requests WHERE id = :id"
)


def resolve(
    tx: Tx,
    id: int,
    status: str,
    *,
    by: str,
    decision: str | None = None,
    proposal: Any = None,
    comment: str | None = None,
    ns: str = MAIN,
) -> Escalation | Refused:
    """Answer a question, once: APPROVED as it is or MODIFY with another proposal, REJECTED, or CANCELLED."""
    logged_rows.one_of("status", status, frozenset(_ONWARD))
    decision = decision or ("ABORT" if status != "APPROVED" else "OVERRIDE" if proposal is None else "MODIFY")
    logged_rows.one_of(f"the decision of {status}", decision, DECISIONS[status])
    if (decision == "MODIFY") != (proposal is not None):
        raise InvalidInputError("a proposal goes with MODIFY, and MODIFY with a proposal", decision=decision)
    known = _held(tx, id, ns)
    if known[8] != "PENDING":
        raise AlreadyResolvedError(
            f"escalation {id} is {known[8]} by {known[15]}", id=id, resolution=known[8], by=known[15]
        )
    if known[12] is not None and known[12] <= tx.now:
        _default(tx, known)
        return Refused(DeadlinePassedError(f"the deadline of escalation {id} was {known[12]}", id=id))
    answer = {
        "status": status,
        "human_decision": decision,
        "resolved_by": logged_rows.name("by", by),
        "comment": comment,
    }
    return _settle(tx, known, answer | {"answer_json": None if proposal is None else logged_rows.dump(proposal)})


def _held(tx: Tx, id: int, ns: str) -> Row:
    """A question, and nobody else changes its flow before this transaction ends."""
    row = tx.one(_FIND, id=id)
    if row is None or row[18] != ns:
        raise NotFoundError(f"there is no escalation {id}", id=id)
    lock_exclusive(tx, f"flow:{row[1]}")
    again = tx.one(_FIND, id=id) if tx.dialect == "postgres" else row
    assert again is not None, "escalations stay"
    return again


def _settle(tx: Tx, known: Row, answer: dict[str, Any]) -> Escalation:
    settled = escalation_rows.settle(tx, known, answer)
    if flows.get(tx, settled.flow_id, ns=settled.ns).status == "WAITING_ESCALATION":
        _move(tx, settled, _ONWARD[settled.status], f"{settled.status} by {settled.resolved_by}")
    return settled


def _move(tx: Tx, asked: Escalation, to: str, reason: str) -> None:
    """Move a flow as its question ended; an end with something to undo is a beginning of that."""
    about = {"causation_id": f"escalation:{asked.id}", "reason": reason, "ns": asked.ns}
    if flows.transition(tx, asked.flow_id, to, **about).ended and flows.to_undo(tx, asked.flow_id):
        flows.transition(tx, asked.flow_id, "COMPENSATING", **about)


def _default(tx: Tx, known: Row) -> Escalation:
    status = _DEFAULTS[known[13]]
    decision = "OVERRIDE" if status == "APPROVED" else "ABORT"
    said = f"no answer by {known[12]}: the default is {known[13]}"
    return _settle(
        tx, known, {"status": status, "human_decision": decision, "resolved_by": "deadline", "comment": said}
    )


def expire(tx: Tx, id: int, *, ns: str = MAIN) -> Escalation:
    """Take the default of a question whose deadline has passed; one that is answered or not due stays as it is."""
    known = _held(tx, id, ns)
    due = known[8] == "PENDING" and known[12] is not None and known[12] <= tx.now
    return _default(tx, known) if due else escalation_rows.shown(known)


_OVERDUE = sql(
    "SELECT id, ns FROM escalation_requests WHERE status = 'PENDING' AND deadline <= :now ORDER BY dfid LIMIT :limit"
)


def sweep(tx: Tx, *, limit: int = 100) -> int:
    """Take the default of every question whose deadline has passed; how many those were."""
    overdue = tx.all(_OVERDUE, now=tx.now, limit=logged_rows.limited(limit))
    for id, ns in overdue:
        expire(tx, id, ns=ns)
    return len(overdue)
