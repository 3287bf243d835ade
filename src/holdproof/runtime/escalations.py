"""Escalations: an agent requests a human decision, and waits for it.

Rules:
- An agent may have a budget, so many an hour (agents.py); each request spends one, checked and spent in one statement;
  the kernel's own cost nothing.
- A request beyond the budget is refused with the time at which the next is possible. With `on_exhausted="suspend"` it
  is recorded too, as CANCELLED, the agent SUSPENDED with the reason ESCALATION_BUDGET_EXHAUSTED, the flow CANCELLED.
- A request moves its flow to WAITING_ESCALATION; its resolution moves the flow on: approved to RUNNING, rejected to
  FAILED, cancelled to CANCELLED. A flow that has steps to undo then goes on to COMPENSATING, worker or not.
- A step in doubt has answers of its own: `happened` (with its result) and `did_not_happen` move the flow to RUNNING,
  `undo` to FAILED. To approve or to reject it is WrongAnswerError: neither word says whether the step ran.
- An escalation is resolved once; the second resolver gets AlreadyResolvedError.
- A deadline that passes applies its default and records that; a later answer is DeadlinePassedError.
- Who resolved it, the comment, and the proposal as it was shown are in the record's leaf.
- One that names its approvers is resolved when as many of them have approved, or one has rejected (approvals.py); until
  then it is PENDING, and no deadline approves it.
"""

from collections.abc import Mapping
from typing import Any, Final

from holdproof import validation
from holdproof.crypto import canonical
from holdproof.db import Refused, Tx, lock_exclusive, sql
from holdproof.errors import (
    AgentInactiveError,
    AlreadyResolvedError,
    BudgetExhaustedError,
    DeadlinePassedError,
    IllegalTransitionError,
    InvalidInputError,
    NotFoundError,
    WrongAnswerError,
)
from holdproof.evidence import leaves
from holdproof.evidence.tables import StoredRecord
from holdproof.model import typed_json
from holdproof.model.agents import ESCALATES, EscalationBudget
from holdproof.model.coordination import ANSWERS, IMPACTS, Escalation
from holdproof.model.flows import Flow
from holdproof.model.namespaces import MAIN
from holdproof.model.times import later
from holdproof.runtime import agents, approvals, audit, escalation_rows, flows, policy_decisions, undoable
from holdproof.runtime.escalation_rows import ESCALATIONS
from holdproof.runtime.overview import EXPIRED

WINDOW_S: Final = 3600.0
EXHAUSTED: Final = "ESCALATION_BUDGET_EXHAUSTED"
# The words that people and callers use, as the statuses of DIR's schema.
_STATUS_OF: Final = {"approve": "APPROVED", "reject": "REJECTED", "cancel": "CANCELLED"}
_STATUS_IN_DOUBT: Final = {"happened": "APPROVED", "did_not_happen": "APPROVED", "undo": "REJECTED"}
_FLOW_STATUS_AFTER: Final = {"APPROVED": "RUNNING", "REJECTED": "FAILED", "CANCELLED": "CANCELLED"}

# --- requesting --------------------------------------------------------------------------------------------------

# One statement, so that no two requests both see the last of a budget.
_SPEND = sql(
    "INSERT INTO escalation_budget (agent_id, created_at, ns) SELECT f.agent_id, :now, f.ns FROM decision_flows f"
    " WHERE f.dfid = :dfid AND f.ns = :ns AND (CAST(:budget AS INTEGER) IS NULL OR (SELECT count(*)"
    " FROM escalation_budget b WHERE b.agent_id = f.agent_id AND b.ns = f.ns AND b.created_at > :since) < :budget)"
)
# The one that must leave the window before another fits in.
_BLOCKING = sql(
    "SELECT created_at FROM escalation_budget WHERE agent_id = :agent_id AND ns = :ns"
    " ORDER BY created_at DESC LIMIT 1 OFFSET :before"
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
    approvers: str | None = None,
    ns: str = MAIN,
) -> Escalation | Refused:
    """Request a human decision about a running flow; without an answer by the deadline the default applies.

    `approvers` says who has to answer: `finance`, `2 of finance`, `2 of ann, bob with passkey`; without it anybody who
    may answer may.

    Raises BudgetExhaustedError where the agent has a budget and has spent it, and AgentInactiveError where it may not
    escalate.
    """
    columns = _columns(reason, context, proposal, impact=impact, on_deadline=on_deadline)
    columns["deadline"] = _deadline(tx, deadline, deadline_s)
    columns["approvers"] = approvals.named(tx, approvers, ns=ns)
    if approvers is not None and on_deadline == "approve":
        raise InvalidInputError("what names its approvers is not approved by a deadline", field="on_deadline")
    # The flow before its agent: everybody locks in that order.
    flow = flows.lock(tx, flow_id, ns=ns)
    if flow.status != "RUNNING":
        raise IllegalTransitionError(
            f"only a RUNNING flow requests a decision, not one that is {flow.status}",
            flow_id=flow_id,
            from_status=flow.status,
        )
    lock_exclusive(tx, f"agent:{flow.agent_id}")
    if tx.limiter is not None:
        tx.limiter.require(tx, ns, "open_escalations")
    agent = agents.get(tx, flow.agent_id, ns=ns)
    budget = agent.budget
    most = None if budget is None else budget.per_hour
    if tx.count(_SPEND, dfid=flow_id, ns=ns, now=tx.now, since=later(tx.now, -WINDOW_S), budget=most) == 0:
        assert budget is not None, "without a budget there is no limit"
        return _refuse(tx, flow, columns) if budget.on_exhausted == "suspend" else _postpone(tx, flow, budget)
    # Checked after the budget, so that a spent budget suspends an agent that may not escalate either.
    if agent.status not in ESCALATES:
        raise AgentInactiveError(
            f"agent {agent.agent_id} is {agent.status} and may not escalate", agent_id=agent.agent_id
        )
    escalation = escalation_rows.open_request(tx, flow, columns)
    _await_answer(tx, escalation)
    return escalation


def alert(
    tx: Tx,
    flow_id: str,
    *,
    reason: str,
    context: Any = None,
    proposal: Any = None,
    kind: str = "approval",
    ns: str = MAIN,
) -> Escalation:
    """Escalate for the kernel: that costs the agent nothing, and moves the flow only if it is running."""
    columns = _columns(reason, context, proposal)
    flow = flows.lock(tx, flow_id, ns=ns)
    with leaves.consequences(tx):
        escalation = escalation_rows.open_request(tx, flow, {**columns, "kind": kind, "opened_by": "kernel"})
    if flow.status == "RUNNING":
        _await_answer(tx, escalation)
    return escalation


def _await_answer(tx: Tx, escalation: Escalation) -> None:
    flows.transition(
        tx,
        escalation.flow_id,
        "WAITING_ESCALATION",
        causation_id=f"escalation:{escalation.id}",
        reason=escalation.reason,
        ns=escalation.ns,
    )


def _columns(
    reason: str, context: Any, proposal: Any, *, impact: str = "HIGH_IMPACT", on_deadline: str = "reject"
) -> dict[str, Any]:
    return {
        "reason": reason,
        "context_json": canonical.dump_text(context or {}),
        "proposal_json": canonical.dump_text(proposal or {}),
        "impact": validation.one_of("impact", impact, IMPACTS),
        "on_deadline": validation.one_of("on_deadline", on_deadline, _STATUS_OF),
    }


def _deadline(tx: Tx, deadline: str | None, deadline_s: float | None) -> str | None:
    if deadline is not None and deadline_s is not None:
        raise InvalidInputError("give the deadline as a time or in seconds, not both", field="deadline")
    if deadline_s is not None:
        return later(tx.now, validation.seconds("deadline_s", deadline_s))
    return None if deadline is None else validation.moment("deadline", deadline)


def write(tx: Tx, flow_id: str, columns: Mapping[str, Any], *, ns: str) -> Escalation:
    """Write an escalation, given by column, for another kernel; it spends nothing, and its flow stays where it is."""
    return escalation_rows.open_request(tx, flows.lock(tx, flow_id, ns=ns), columns)


def _postpone(tx: Tx, flow: Flow, budget: EscalationBudget) -> Refused:
    """Refuse a request beyond the budget; agent and flow stay as they are, and an audit event says so."""
    # Of a budget of nothing no request ever leaves the window.
    blocking = tx.one(_BLOCKING, agent_id=flow.agent_id, ns=flow.ns, before=max(budget.per_hour - 1, 0))
    (spent_at,) = blocking or (None,)
    possible_at = None if spent_at is None or not budget.per_hour else later(spent_at, WINDOW_S)
    when = "an operator raises it (agents set-budget)" if possible_at is None else possible_at
    audit.observe(tx, flow.flow_id, EXHAUSTED, severity="WARNING", detail={"possible_at": possible_at}, ns=flow.ns)
    return Refused(
        BudgetExhaustedError(
            f"agent {flow.agent_id} has spent its {budget.per_hour} escalations an hour: none is possible until {when}",
            agent_id=flow.agent_id,
            flow_id=flow.flow_id,
            possible_at=possible_at,
        )
    )


def _refuse(tx: Tx, flow: Flow, columns: Mapping[str, Any]) -> Refused:
    """Record a request beyond the budget, suspend the agent and cancel the flow."""
    answer = {"status": "CANCELLED", "resolved_at": tx.now, "resolved_by": "kernel", "comment": EXHAUSTED}
    with leaves.consequences(tx):
        escalation = escalation_rows.open_request(tx, flow, {**columns, **answer})
    audit.observe(tx, flow.flow_id, EXHAUSTED, severity="ERROR", detail={"escalation": escalation.id}, ns=flow.ns)
    agents.set_status(tx, flow.agent_id, "SUSPENDED", reason=EXHAUSTED, ns=flow.ns)
    _move_flow(tx, escalation, "CANCELLED", EXHAUSTED)
    # Refused, not raised: all of the above is to be committed.
    return Refused(
        BudgetExhaustedError(
            f"agent {flow.agent_id} has spent its escalations: it is suspended, and the flow cancelled",
            agent_id=flow.agent_id,
            flow_id=flow.flow_id,
        )
    )


# --- resolving ---------------------------------------------------------------------------------------------------

_FIND = sql(ESCALATIONS.select("WHERE id = :id", leaf=True))


def resolve(
    tx: Tx,
    id: int,
    decision: str,
    *,
    by: str,
    proposal: Any = None,
    result: Any = None,
    comment: str | None = None,
    shown_hash: str | None = None,
    ns: str = MAIN,
) -> Escalation | Refused:
    """Resolve an escalation, once: `approve`, `reject` or `cancel`; a proposal approves with changes.

    One about a step in doubt is answered by `happened`, with the result of the step as JSON, `did_not_happen`, which
    runs it, or `undo`, which undoes the flow. Where several have to approve it stays PENDING until they have.
    `shown_hash` is that of what was read (`approvals`): an answer to anything else is refused.

    Raises WrongAnswerError for an answer of the other kind, AlreadyResolvedError for a second answer,
    DeadlinePassedError for one that comes too late, NotApproverError and AlreadyAnsweredError for one that does not
    count, and ShownChangedError where something else was read.
    """
    response = approvals.Answer(*checked(decision, proposal, result), comment)
    return answer(tx, id, response, by=by, shown_hash=shown_hash, ns=ns)


def checked(decision: str, proposal: Any, result: Any) -> tuple[str, Any]:
    """Return the word of a decision, and the value that goes with it; InvalidInputError where they do not."""
    words = [each for words in ANSWERS.values() for each in words]
    word = validation.one_of("decision", str(decision).lower(), words)
    if proposal is not None and word != "approve":
        raise InvalidInputError("a proposal goes with approve only", field="proposal", decision=word)
    if result is not None and word != "happened":
        raise InvalidInputError("a result goes with happened only", field="result", decision=word)
    return word, proposal if word == "approve" else result


def answer(
    tx: Tx,
    id: int,
    response: approvals.Answer,
    *,
    by: str,
    shown_hash: str | None = None,
    passkey: Any = None,
    ns: str,
) -> Escalation | Refused:
    """Write a person's answer, which may resolve the escalation; `passkey` is the signature that was verified."""
    columns = {**_answer_columns(response.word, response.value), "comment": response.comment}
    by = validation.name("by", by)
    record = lock_pending(tx, id, response.word, ns=ns)
    if isinstance(record, Refused):
        return record
    if response.word == "approve" and response.value is not None:
        _refuse_changes(tx, record.value)
    escalation = escalation_rows.shown(tx, record.value)
    tally = approvals.give(tx, escalation, response, by=by, shown_hash=shown_hash, passkey=passkey)
    return _settle(tx, record, {**columns, "resolved_by": tally.names}) if tally.is_settled else escalation


def lock_pending(tx: Tx, id: int, word: str | None = None, *, ns: str) -> StoredRecord[Escalation] | Refused:
    """Return a pending escalation, its flow locked, compared with its entry; `word` is what will be answered."""
    record = _lock(tx, id, ns)
    escalation = record.value
    if word is not None and word not in escalation.answers:
        raise _wrong_answer(escalation, word)
    if escalation.status != "PENDING":
        raise AlreadyResolvedError(
            f"escalation {id} is {escalation.outcome} by {escalation.resolved_by}",
            id=id,
            resolution=escalation.status,
            by=escalation.resolved_by,
        )
    if _is_due(escalation, tx.now):
        _apply_default(tx, record)
        return Refused(DeadlinePassedError(f"the deadline of escalation {id} was {escalation.deadline}", id=id))
    return approvals.confirmed(tx, id, ns=ns)


def _answer_columns(word: str, value: Any) -> dict[str, Any]:
    """Return the columns of an answer."""
    if word in _STATUS_IN_DOUBT:
        # The result stands for what the step's function would have returned: tagged as that would be, or plain JSON.
        text = canonical.dump_text(typed_json.tagged(value, "the result").json) if word == "happened" else None
        return {"status": _STATUS_IN_DOUBT[word], "human_decision": word.upper(), "answer_json": text}
    return {
        "status": _STATUS_OF[word],
        "human_decision": _human_decision(word, changes=value is not None),
        "answer_json": None if value is None else canonical.dump_text(value),
    }


def _wrong_answer(escalation: Escalation, word: str) -> WrongAnswerError:
    if escalation.kind == "in_doubt":
        message = (
            f"escalation {escalation.id} is about a step in doubt, and {word} does not say whether it ran: answer"
            " happened (with its result), did_not_happen (it is run) or undo (the flow is undone)"
        )
    else:
        message = f"escalation {escalation.id} asks for an approval: answer approve, reject or cancel, not {word}"
    return WrongAnswerError(message, id=escalation.id, kind=escalation.kind, answers=list(escalation.answers))


def _human_decision(word: str, *, changes: bool) -> str:
    """The code of DIR's schema for a decision."""
    if word != "approve":
        return "ABORT"
    return "MODIFY" if changes else "OVERRIDE"


def _refuse_changes(tx: Tx, escalation: Escalation) -> None:
    """Refuse changes to an act that a policy asks about: it would be carried out as it is."""
    if escalation.id in policy_decisions.every_pending(tx, escalation.flow_id, ns=escalation.ns):
        raise WrongAnswerError(
            f"escalation {escalation.id} is about an act as it stands, which a policy asks about, and nothing would"
            " carry out the changes: approve it without a proposal, or reject it and say in a comment what would do",
            id=escalation.id,
            kind=escalation.kind,
            answers=list(escalation.answers),
        )


def _is_due(escalation: Escalation, now: str) -> bool:
    return escalation.status == "PENDING" and escalation.deadline is not None and escalation.deadline <= now


def _lock(tx: Tx, id: int, ns: str) -> StoredRecord[Escalation]:
    """Return an escalation, its flow locked: nobody else changes either before this transaction ends."""
    row = tx.one(_FIND, id=id)
    record = None if row is None else ESCALATIONS.record(row)
    if record is None or record.value.ns != ns:
        raise NotFoundError(f"there is no escalation {id}", listed_by="escalations list", id=id)
    lock_exclusive(tx, f"flow:{record.value.flow_id}")
    if tx.dialect == "postgres":  # somebody else may have resolved it while this transaction waited for the lock
        row = tx.one(_FIND, id=id)
        assert row is not None, "escalations are not removed while their flow is open"
        return ESCALATIONS.record(row)
    return record


def _settle(tx: Tx, record: StoredRecord[Escalation], answer: Mapping[str, Any]) -> Escalation:
    escalation = escalation_rows.settle(tx, record, answer)
    if flows.get(tx, escalation.flow_id, ns=escalation.ns).status == "WAITING_ESCALATION":
        reason = f"{escalation.status} by {escalation.resolved_by}"
        _move_flow(tx, escalation, _FLOW_STATUS_AFTER[escalation.status], reason)
    else:
        # One that is being undone waits for the answer without a status of its own.
        flows.wake(tx, escalation.flow_id, ns=escalation.ns)
    return escalation


def _move_flow(tx: Tx, escalation: Escalation, to: str, reason: str) -> None:
    """Move a flow as its escalation ended; one that ends with steps to undo goes on to COMPENSATING."""
    causation_id = f"escalation:{escalation.id}"
    flow_id = escalation.flow_id
    flow = flows.transition(tx, flow_id, to, causation_id=causation_id, reason=reason, ns=escalation.ns)
    if flow.ended and undoable.to_undo(tx, flow_id, ns=escalation.ns):
        flows.transition(tx, flow_id, "COMPENSATING", causation_id=causation_id, reason=reason, ns=escalation.ns)


def _apply_default(tx: Tx, record: StoredRecord[Escalation]) -> Escalation:
    escalation = record.value
    default = escalation.on_deadline
    answer = {
        "status": _STATUS_OF[default],
        "human_decision": _human_decision(default, changes=False),
        "resolved_by": "deadline",
        "comment": f"no answer by {escalation.deadline}: the default is {default}",
    }
    expired = _settle(tx, record, answer)
    tx.note(EXPIRED, expired)
    return expired


def expire(tx: Tx, id: int, *, ns: str = MAIN) -> Escalation:
    """Apply the default of an escalation whose deadline has passed; one that is resolved or not due stays as it is."""
    record = _lock(tx, id, ns)
    if _is_due(record.value, tx.now):
        return _apply_default(tx, record)
    return escalation_rows.shown(tx, record.value)


_OVERDUE = sql(
    "SELECT id, ns FROM escalation_requests WHERE status = 'PENDING' AND deadline <= :now ORDER BY dfid LIMIT :limit"
)


def sweep(tx: Tx, *, limit: int = 100) -> int:
    """Apply the default of every escalation whose deadline has passed; return how many those were."""
    overdue = tx.all(_OVERDUE, now=tx.now, limit=validation.limited(limit))
    for id, ns in overdue:
        expire(tx, id, ns=ns)
    return len(overdue)
