"""The inbox of escalations: looking at them, and waiting for an answer."""

from holdfast.db import Read, Tx, Wait, Work, Write, ask, sql
from holdfast.errors import NotFoundError
from holdfast.model.guards import Escalation, EscalationPage
from holdfast.model.times import later
from holdfast.runtime import escalations, questions, rows
from holdfast.runtime.rows import MAIN

_FIND = sql(
    "SELECT id, dfid, root_dfid, agent_id, reason, context_json, proposal_json, impact, status, human_decision,"
    " created_at, resolved_at, deadline, on_deadline, opened_by, resolved_by, comment, answer_json, ns"
    " FROM escalation_requests WHERE id = :id AND ns = :ns"
)


def get(tx: Tx, id: int, *, ns: str = MAIN) -> Escalation:
    """One escalation."""
    row = tx.one(_FIND, id=id, ns=ns)
    if row is None:
        raise NotFoundError(f"there is no escalation {id}", id=id)
    return questions.shown(row)


_PENDING = sql(
    "SELECT id, dfid, root_dfid, agent_id, reason, context_json, proposal_json, impact, status, human_decision,"
    " created_at, resolved_at, deadline, on_deadline, opened_by, resolved_by, comment, answer_json, ns"
    " FROM escalation_requests WHERE status = 'PENDING' AND ns = :ns AND id > :after"
    " AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id) ORDER BY id LIMIT :limit"
)


def pending(tx: Tx, *, agent_id: str | None = None, ns: str = MAIN, after: int = 0, limit: int = 100) -> EscalationPage:
    """Questions that wait for an answer, oldest first, a page at a time: pass `next` of a page as `after`."""
    found = tx.all(_PENDING, agent_id=agent_id, ns=ns, after=after, limit=rows.limited(limit))
    return EscalationPage(*rows.paged(found, limit, questions.shown, lambda asked: asked.id))


_NTH = sql(
    "SELECT id, dfid, root_dfid, agent_id, reason, context_json, proposal_json, impact, status, human_decision,"
    " created_at, resolved_at, deadline, on_deadline, opened_by, resolved_by, comment, answer_json, ns"
    " FROM escalation_requests WHERE dfid = :dfid AND opened_by = 'agent' AND reason = :reason"
    " ORDER BY id LIMIT 1 OFFSET :before"
)


def nth(tx: Tx, dfid: str, reason: str, n: int) -> Escalation | None:
    """The n-th question that a flow itself asked for that reason, if it has."""
    row = tx.one(_NTH, dfid=dfid, reason=reason, before=n - 1)
    return None if row is None else questions.shown(row)


def wait(id: int, *, timeout_s: float | None = None, ns: str = MAIN) -> Work[Escalation]:
    """Wait for the answer, or for the deadline to give one; still pending only if `timeout_s` ends first."""
    until = ""
    while True:
        asked, now = yield from ask(Read(lambda tx: (get(tx, id, ns=ns), tx.now)))
        if asked.status != "PENDING":
            return asked
        if asked.deadline is not None and asked.deadline <= now:
            return (yield from ask(Write(lambda tx: escalations.expire(tx, id, ns=ns))))
        until = until or ("" if timeout_s is None else later(now, rows.seconds("timeout_s", timeout_s)))
        if until and now >= until:
            return asked
        moments = [moment for moment in (until, asked.deadline) if moment]
        yield Wait(f"escalation:{id}", min(moments) if moments else None)
