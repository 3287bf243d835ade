"""The inbox of escalations: looking at them, and waiting for an answer.

Rules:
- The most urgent comes first: by deadline, then by impact, then by age; what has no deadline comes last.
"""

from typing import Final

from holdproof.db import Read, Tx, Wait, Work, Write, ask, sql
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.model.coordination import DuePage, Escalation, EscalationPage, Waiting
from holdproof.model.times import later
from holdproof.runtime import escalation_rows, escalations, logged_rows
from holdproof.runtime.logged_rows import BEGINNING, MAIN

_NEVER: Final = "9999-12-31T23:59:59.999999Z"
_RESOLUTIONS: Final = frozenset({"PENDING", "APPROVED", "REJECTED", "CANCELLED"})

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
    return escalation_rows.shown(row)


_PENDING = sql(
    "SELECT id, dfid, root_dfid, agent_id, reason, context_json, proposal_json, impact, status, human_decision,"
    " created_at, resolved_at, deadline, on_deadline, opened_by, resolved_by, comment, answer_json, ns"
    " FROM escalation_requests WHERE status = 'PENDING' AND ns = :ns AND id > :after"
    " AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id) ORDER BY id LIMIT :limit"
)


def pending(tx: Tx, *, agent_id: str | None = None, ns: str = MAIN, after: int = 0, limit: int = 100) -> EscalationPage:
    """Questions that wait for an answer, oldest first, a page at a time: pass `next` of a page as `after`."""
    found = tx.all(_PENDING, agent_id=agent_id, ns=ns, after=after, limit=logged_rows.limited(limit))
    return EscalationPage(*logged_rows.paged(found, limit, escalation_rows.shown, lambda asked: asked.id))


# HIGH_IMPACT sorts before LOW_IMPACT by its letters, in every collation.
_DUE = sql(
    "SELECT id, dfid, root_dfid, agent_id, reason, context_json, proposal_json, impact, status, human_decision,"
    " created_at, resolved_at, deadline, on_deadline, opened_by, resolved_by, comment, answer_json, ns"
    " FROM escalation_requests WHERE status = 'PENDING' AND ns = :ns"
    " AND (coalesce(deadline, :never), impact, id) > (:deadline, :impact, :id)"
    " ORDER BY coalesce(deadline, :never), impact, id LIMIT :limit"
)


def due(tx: Tx, *, ns: str = MAIN, after: str = "", limit: int = 100) -> DuePage:
    """Questions that wait for an answer, the most urgent first, a page at a time: pass `next` of a page as `after`."""
    found = tx.all(_DUE, never=_NEVER, ns=ns, limit=logged_rows.limited(limit), **_cursor(after))
    return DuePage(*logged_rows.paged(found, limit, escalation_rows.shown, _place))


def _place(asked: Escalation) -> str:
    return f"{asked.deadline or _NEVER} {asked.impact} {asked.id}"


def _cursor(after: str) -> dict[str, str | int]:
    try:
        deadline, impact, number = after.split(" ") if after else (BEGINNING, "", "0")
        return {
            "deadline": logged_rows.moment("after", deadline),
            "impact": impact,
            "id": logged_rows.position("after", int(number)),
        }
    except ValueError as error:
        raise InvalidInputError("`after` is the `next` of a page", after=after[:100]) from error


_LIST = sql(
    "SELECT id, dfid, root_dfid, agent_id, reason, context_json, proposal_json, impact, status, human_decision,"
    " created_at, resolved_at, deadline, on_deadline, opened_by, resolved_by, comment, answer_json, ns"
    " FROM escalation_requests WHERE ns = :ns AND id < :before AND (:settled = 0 OR status <> 'PENDING')"
    " AND (CAST(:status AS TEXT) IS NULL OR status = :status) AND (CAST(:dfid AS TEXT) IS NULL OR dfid = :dfid)"
    " AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id) ORDER BY id DESC LIMIT :limit"
)


def list(
    tx: Tx,
    *,
    status: str | None = None,
    settled: bool = False,
    agent_id: str | None = None,
    flow_id: str | None = None,
    ns: str = MAIN,
    before: int | None = None,
    limit: int = 100,
) -> EscalationPage:
    """Questions and their answers, newest first, a page at a time: pass `next` of a page as `before`.

    With `settled` only those that are answered.
    """
    if status is not None:
        logged_rows.one_of("status", status, _RESOLUTIONS)
    filters = {"status": status, "settled": int(settled), "agent_id": agent_id, "dfid": flow_id}
    until = logged_rows.LAST if before is None else logged_rows.position("before", before)
    found = tx.all(_LIST, **filters, ns=ns, before=until, limit=logged_rows.limited(limit))
    return EscalationPage(*logged_rows.paged(found, limit, escalation_rows.shown, lambda asked: asked.id))


_WAITING = sql(
    "SELECT count(*), count(CASE WHEN impact = 'HIGH_IMPACT' THEN 1 END), count(CASE WHEN deadline <= :now THEN 1 END)"
    " FROM escalation_requests WHERE status = 'PENDING' AND ns = :ns"
)


def waiting(tx: Tx, *, ns: str = MAIN) -> Waiting:
    """How many questions wait for an answer."""
    row = tx.one(_WAITING, ns=ns, now=tx.now)
    assert row is not None, "counts always come"
    return Waiting(*row)


_NTH = sql(
    "SELECT id, dfid, root_dfid, agent_id, reason, context_json, proposal_json, impact, status, human_decision,"
    " created_at, resolved_at, deadline, on_deadline, opened_by, resolved_by, comment, answer_json, ns"
    " FROM escalation_requests WHERE dfid = :dfid AND opened_by = 'agent' AND reason = :reason"
    " ORDER BY id LIMIT 1 OFFSET :before"
)


def nth(tx: Tx, flow_id: str, reason: str, n: int) -> Escalation | None:
    """The n-th question that a flow itself asked for that reason, if it has."""
    row = tx.one(_NTH, dfid=flow_id, reason=reason, before=n - 1)
    return None if row is None else escalation_rows.shown(row)


def wait(id: int, *, timeout_s: float | None = None, ns: str = MAIN) -> Work[Escalation]:
    """Wait for the answer, or for the deadline to give one; still pending only if `timeout_s` ends first."""
    until = ""
    while True:
        asked, now = yield from ask(Read(lambda tx: (get(tx, id, ns=ns), tx.now)))
        if asked.status != "PENDING":
            return asked
        if asked.deadline is not None and asked.deadline <= now:
            return (yield from ask(Write(lambda tx: escalations.expire(tx, id, ns=ns))))
        until = until or ("" if timeout_s is None else later(now, logged_rows.seconds("timeout_s", timeout_s)))
        if until and now >= until:
            return asked
        moments = [moment for moment in (until, asked.deadline) if moment]
        yield Wait(f"escalation:{id}", min(moments) if moments else None)
