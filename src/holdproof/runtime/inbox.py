"""Reading escalations: listing them, counting them, and waiting for one to be resolved."""

import json
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from holdproof import paging, validation
from holdproof.db import Query, Read, Tx, Wait, Work, Write, ask, sql
from holdproof.errors import InvalidInputError, NotFoundError, TamperedError
from holdproof.evidence import logged_tables
from holdproof.model.coordination import IMPACTS, Escalation, EscalationCounts, EscalationFacet
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.times import BEGINNING, END, later
from holdproof.runtime import escalation_rows, escalations, people
from holdproof.runtime.escalation_rows import ESCALATIONS

_STATUSES: Final = frozenset({"PENDING", "APPROVED", "REJECTED", "CANCELLED"})
_RESOLVED: Final = "RESOLVED"
"""A filter of `list`: every status but PENDING."""

_GET = sql(ESCALATIONS.select("WHERE id = :id AND ns = :ns"))


def get(tx: Tx, id: int, *, ns: str = MAIN) -> Escalation:
    """Return one escalation."""
    escalation = ESCALATIONS.find(tx, _GET, id=id, ns=ns)
    if escalation is None:
        raise NotFoundError(f"there is no escalation {id}", listed_by="escalations list", id=id)
    return escalation_rows.shown(tx, escalation)


_CONFIRM = logged_tables.selecting(ESCALATIONS.logged, "id", "t.id = :id AND t.ns = :ns")


def confirmed(tx: Tx, id: int, *, ns: str) -> Escalation:
    """Return an escalation whose answer is about to be acted on, compared with its entry in the log."""
    rows = logged_tables.confirm(tx, ESCALATIONS.logged, _CONFIRM, id=id, ns=ns)
    if not rows:
        raise TamperedError(f"escalation {id} was removed", table=ESCALATIONS.name, row=str(id))
    [columns] = rows
    return escalation_rows.shown(tx, ESCALATIONS.from_columns(columns))


_FILTERS: Final = (
    "ns = :ns AND (CAST(:status AS TEXT) IS NULL OR status = :status) AND (:resolved = 0 OR status <> 'PENDING')"
    " AND (CAST(:dfid AS TEXT) IS NULL OR dfid = :dfid) AND coalesce(deadline, :never) <= :due_before"
    " AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id)"
    " AND (CAST(:only_impact AS TEXT) IS NULL OR impact = :only_impact)"
    " AND (CAST(:flow_type AS TEXT) IS NULL OR EXISTS (SELECT 1 FROM decision_flows f"
    " WHERE f.dfid = escalation_requests.dfid AND f.ns = escalation_requests.ns AND f.flow_type = :flow_type))"
    # Who resolved it, or gave one of several answers; a person is named with or without their role.
    " AND (CAST(:person AS TEXT) IS NULL OR resolved_by IN (:person, :operator) OR EXISTS (SELECT 1 FROM"
    " escalation_answers a WHERE a.escalation_id = escalation_requests.id AND a.person = :person))"
    " AND (:all_lines = 1 OR coalesce(approvers, '') IN (SELECT value FROM json_each(:lines)))"
)
_EACH_LINE: Final = ("SELECT value FROM json_each(:lines)", "SELECT json_array_elements_text(CAST(:lines AS JSON))")


def _both(text: str) -> Query:
    return sql(text, postgres=text.replace(*_EACH_LINE))


_NEWEST = _both(ESCALATIONS.select(f"WHERE {_FILTERS} AND id < :before ORDER BY id DESC LIMIT :limit"))
# HIGH_IMPACT sorts before LOW_IMPACT by its letters, in every collation; what has no deadline comes last.
_DUE = _both(
    ESCALATIONS.select(
        f"WHERE {_FILTERS} AND (coalesce(deadline, :never), impact, id) > (:deadline, :impact, :id)"
        " ORDER BY coalesce(deadline, :never), impact, id LIMIT :limit"
    )
)


def list(
    tx: Tx,
    *,
    status: str | None = None,
    order: str = "newest",
    agent_id: str | None = None,
    flow_id: str | None = None,
    flow_type: str | None = None,
    impact: str | None = None,
    approvers: Sequence[str] | None = None,
    answered_by: str | None = None,
    due_before: str = END,
    cursor: str | None = None,
    limit: int = 100,
    ns: str = MAIN,
) -> Page[Escalation]:
    """List escalations, newest first, or by deadline and impact with `order="due"`.

    `status` is PENDING, APPROVED, REJECTED, CANCELLED, or RESOLVED for all but PENDING. `approvers` are lines such as
    `2 of finance`; the empty line stands for escalations that anybody may answer.
    """
    if status is not None:
        validation.one_of("status", status, _STATUSES | {_RESOLVED})
    validation.one_of("order", order, {"newest", "due"})
    if impact is not None:
        validation.one_of("impact", impact, IMPACTS)
    if isinstance(approvers, str):
        raise InvalidInputError('approvers is a list of lines, such as ["2 of finance"]', field="approvers")
    person = None if answered_by is None else people.person_of(validation.name("answered_by", answered_by))
    filters: dict[str, Any] = {
        "person": person,
        "operator": None if person is None else f"{people.OPERATOR}{person}",
        "status": None if status == _RESOLVED else status,
        "resolved": int(status == _RESOLVED),
        "agent_id": agent_id,
        "dfid": flow_id,
        "flow_type": flow_type,
        "only_impact": impact,
        "all_lines": int(approvers is None),
        "lines": json.dumps([*(approvers or ())]),
        "due_before": validation.moment("due_before", due_before),
        "never": END,
        "ns": ns,
    }
    if order == "newest":
        page = ESCALATIONS.page(tx, _NEWEST, cursor, limit, **filters)
        return Page([escalation_rows.shown(tx, each, whole=False) for each in page.items], page.next_cursor)
    # The cursor of this order has three parts; one of the other order is refused by its length.
    deadline, impact, number = paging.decode(cursor, BEGINNING, "", 0)
    filters |= {"deadline": paging.moment(deadline), "impact": impact, "id": number}
    rows = ESCALATIONS.all(tx, _DUE, **filters, limit=paging.fetch(limit))
    values = [escalation_rows.shown(tx, each, whole=False) for each in rows]
    return paging.page(values, limit, lambda each: (each.deadline or END, each.impact, each.id))


_COUNT = sql(
    "SELECT count(*), count(CASE WHEN impact = 'HIGH_IMPACT' THEN 1 END), count(CASE WHEN deadline <= :now THEN 1 END)"
    " FROM escalation_requests WHERE status = :status AND ns = :ns"
)


def count(tx: Tx, *, status: str = "PENDING", ns: str = MAIN) -> EscalationCounts:
    """Count escalations of one status."""
    validation.one_of("status", status, _STATUSES)
    row = tx.one(_COUNT, status=status, ns=ns, now=tx.now)
    assert row is not None, "an aggregate has one row"
    return EscalationCounts(*row)


_FACETS = sql(
    "SELECT e.agent_id, f.flow_type, e.impact, coalesce(e.approvers, ''), count(*),"
    " count(CASE WHEN e.deadline <= :soon THEN 1 END) FROM escalation_requests e"
    " JOIN decision_flows f ON f.dfid = e.dfid AND f.ns = e.ns WHERE e.status = 'PENDING' AND e.ns = :ns"
    " GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4 LIMIT :limit"
)
_MOST_FACETS: Final = 10_000


def facets(tx: Tx, *, due_within_s: float = 3600.0, ns: str = MAIN) -> tuple[EscalationFacet, ...]:
    """Count pending escalations by agent, type of flow, impact and who has to answer; and those due soon."""
    soon = later(tx.now, validation.seconds("due_within_s", due_within_s))
    return tuple(EscalationFacet(*row) for row in tx.all(_FACETS, soon=soon, ns=ns, limit=_MOST_FACETS))


_REQUESTED = sql(ESCALATIONS.select("WHERE dfid = :dfid AND ns = :ns AND opened_by = 'agent' ORDER BY id"))


def nth(tx: Tx, flow_id: str, reason: str, n: int, *, ns: str) -> Escalation | None:
    """Return the n-th escalation that a flow itself requested for a reason; None where it has not."""
    # Compared here and not by the database: of a person's flow reasons are sealed, each time differently.
    requested = (escalation_rows.shown(tx, each) for each in ESCALATIONS.all(tx, _REQUESTED, dfid=flow_id, ns=ns))
    return next(islice((each for each in requested if each.reason == reason), n - 1, None), None)


_REQUESTED = sql(ESCALATIONS.select("WHERE dfid = :dfid AND ns = :ns AND opened_by = 'agent' ORDER BY id"))


def requested(tx: Tx, flow_id: str, *, ns: str) -> tuple[Escalation, ...]:
    """Return all escalations that a flow itself requested, oldest first."""
    return tuple(ESCALATIONS.all(tx, _REQUESTED, dfid=flow_id, ns=ns))


def wait(id: int, *, timeout_s: float | None = None, ns: str = MAIN) -> Work[Escalation]:
    """Wait until an escalation is resolved, by a person or by its deadline; it is PENDING only after `timeout_s`."""
    until = ""
    while True:
        escalation, now = yield from ask(Read(lambda tx: (get(tx, id, ns=ns), tx.now)))
        if escalation.status != "PENDING":
            return escalation
        if escalation.deadline is not None and escalation.deadline <= now:
            # Whoever waits applies the default itself: no sweep need be running.
            return (yield from ask(Write(lambda tx: escalations.expire(tx, id, ns=ns))))
        if not until and timeout_s is not None:
            until = later(now, validation.seconds("timeout_s", timeout_s))
        if until and now >= until:
            return escalation
        moments = [moment for moment in (until, escalation.deadline) if moment]
        yield Wait(f"escalation:{id}", min(moments) if moments else None)


_SCAN = sql(ESCALATIONS.select("WHERE status = 'PENDING' AND ns = :ns AND id > :after ORDER BY id LIMIT :limit"))


def scan_pending(tx: Tx, *, after: int = 0, limit: int = 100, ns: str = MAIN) -> tuple[Escalation, ...]:
    """Return the next pending escalations, oldest first, for adapters; `after` is the id of the last one read."""
    pending = ESCALATIONS.all(tx, _SCAN, ns=ns, after=after, limit=validation.limited(limit))
    return tuple(escalation_rows.shown(tx, each, whole=False) for each in pending)
