"""What is said about an escalation while its flow keeps waiting: questions to the agent, replies, reminders; and to
whom it is passed on.

Rules:
- Each is an entry of its own, and changes no status: the flow waits as before.
- A question and its reply are part of what is shown from then on, so that an answer to the text before is refused.
- To reassign changes who has to answer; answers that were given stay, and count where they still fit.
- A reminder is written once for each escalation, in the last quarter of its time and at most a day before its deadline.
"""

from typing import Any, Final

from holdproof import validation
from holdproof.db import Read, Refused, Tx, Wait, Work, ask, sql
from holdproof.errors import AlreadyResolvedError, ConflictError
from holdproof.evidence import leaves
from holdproof.model.approvals import Approvals, EscalationMessage
from holdproof.model.coordination import Escalation
from holdproof.model.namespaces import MAIN
from holdproof.model.times import later, to_micros
from holdproof.runtime import approvals, escalation_rows, escalations, inbox

REMINDED: Final = "escalation reminder"
"""The topic of the notes that hand each reminder to the hooks of its commit."""
_QUARTER: Final = 0.25
_LONGEST_S: Final = 86_400.0


def status(tx: Tx, id: int, *, ns: str = MAIN) -> Approvals:
    """Return how an escalation stands: who has answered, who still has to, what was said, and what a person is shown.

    `document` is what is shown, `shown_hash` its SHA-256, which an answer may name.
    """
    return approvals.standing(tx, inbox.get(tx, id, ns=ns))


def question(tx: Tx, id: int, text: str, *, by: str, ns: str = MAIN) -> EscalationMessage | Refused:
    """Ask the agent something before answering; its flow keeps waiting."""
    record = escalations.lock_pending(tx, id, ns=ns)
    if isinstance(record, Refused):
        return record
    return approvals.say(tx, record.value, "question", text, by=by)


def reply(tx: Tx, id: int, text: str, *, by: str = "agent", ns: str = MAIN) -> EscalationMessage | Refused:
    """Reply to what a person asks before answering; ConflictError where nothing waits for a reply."""
    record = escalations.lock_pending(tx, id, ns=ns)
    if isinstance(record, Refused):
        return record
    if approvals.standing(tx, escalation_rows.shown(tx, record.value)).question is None:
        raise ConflictError(f"nobody asked anything about escalation {id} that has no reply yet", id=id)
    return approvals.say(tx, record.value, "reply", text, by=by)


def reassign(
    tx: Tx, id: int, approvers: str, *, by: str, comment: str | None = None, ns: str = MAIN
) -> Escalation | Refused:
    """Change who has to answer an escalation; answers that were given stay."""
    line = approvals.named(tx, approvers, ns=ns)
    assert line is not None, "a line was given"
    record = escalations.lock_pending(tx, id, ns=ns)
    if isinstance(record, Refused):
        return record
    before = record.value.approvers or "anybody"
    text = f"{before} → {line}" if comment is None else f"{before} → {line}: {comment}"
    with leaves.consequences(tx):
        approvals.say(tx, record.value, "reassigned", text, by=by)
    return escalation_rows.assign(tx, record, line)


def wait_question(id: int, *, timeout_s: float | None = None, ns: str = MAIN) -> Work[EscalationMessage | None]:
    """Wait until somebody asks something about an escalation; None once it is resolved, or after `timeout_s`."""
    until = ""
    while True:
        escalation, standing, now = yield from ask(Read(lambda tx: _look(tx, id, ns)))
        if standing.question is not None or escalation.status != "PENDING":
            return standing.question if escalation.status == "PENDING" else None
        if not until and timeout_s is not None:
            until = later(now, validation.seconds("timeout_s", timeout_s))
        moments = [moment for moment in (until, escalation.deadline) if moment]
        if any(now >= moment for moment in moments):
            return None
        yield Wait(f"escalation:{id}", min(moments) if moments else None)


def _look(tx: Tx, id: int, ns: str) -> tuple[Escalation, Approvals, str]:
    escalation = inbox.get(tx, id, ns=ns)
    return escalation, approvals.standing(tx, escalation), tx.now


_DUE = sql(
    "SELECT e.id, e.ns, e.created_at, e.deadline FROM escalation_requests e WHERE e.status = 'PENDING'"
    " AND e.deadline > :now AND e.deadline <= :soon AND NOT EXISTS (SELECT 1 FROM escalation_messages m"
    " WHERE m.escalation_id = e.id AND m.kind = 'reminder') ORDER BY e.dfid LIMIT :limit"
)


def remind(tx: Tx, *, limit: int = 1000) -> int:
    """Write the reminder of every escalation whose deadline is near; return how many those were."""
    return sum(_remind(tx, id, ns) for id, ns in _near(tx, limit))


def is_any_near(tx: Tx) -> bool:
    """Whether `remind` has anything to write: a look costs less than a transaction that writes nothing."""
    return bool(_near(tx, 1000))


def _near(tx: Tx, limit: int) -> list[tuple[int, str]]:
    due = tx.all(_DUE, now=tx.now, soon=later(tx.now, _LONGEST_S), limit=validation.limited(limit))
    return [(id, ns) for id, ns, created_at, deadline in due if _is_near(tx.now, created_at, deadline)]


def _is_near(now: str, created_at: str, deadline: str) -> bool:
    whole = to_micros(deadline) - to_micros(created_at)
    return to_micros(deadline) - to_micros(now) <= whole * _QUARTER


_REMINDED = sql("SELECT 1 FROM escalation_messages WHERE escalation_id = :id AND kind = 'reminder'")


def _remind(tx: Tx, id: int, ns: str) -> bool:
    try:
        record = escalations.lock_pending(tx, id, ns=ns)
    except AlreadyResolvedError:
        return False
    # Another process may have reminded while this one waited for the flow.
    if isinstance(record, Refused) or tx.one(_REMINDED, id=id) is not None:
        return False
    escalation = escalation_rows.shown(tx, record.value)
    standing = approvals.standing(tx, escalation)
    people = ", ".join(standing.waiting_for) or "anybody who may answer"
    approved = f"{len(standing.approved_by)} of {standing.needed} approved"
    text = f"due {escalation.deadline}, then {escalation.on_deadline}; {approved},"
    # Those of all tenants share this transaction: one that has reached a limit keeps nobody from being reminded.
    with leaves.consequences(tx):
        note: Any = approvals.say(tx, record.value, "reminder", f"{text} waiting for {people}", by="kernel")
    tx.note(REMINDED, (escalation, note))
    return True
