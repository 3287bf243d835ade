"""Timelines: a flow with its sub-flows, and what happened in them, from every table that records it.

Rules:
- Events come in the order of their time, and within one moment causes before effects.
- Locks are among them while they are held: a released lock leaves no row. That a flow waited for one stays.
"""

import re
from typing import Final

from holdproof import paging
from holdproof.db import Tx, sql
from holdproof.model.flows import LOCK_ACQUIRED, LOCK_AWAITED, LOCK_GIVEN_UP
from holdproof.model.namespaces import MAIN
from holdproof.model.timelines import Timeline, TimelineEvent
from holdproof.model.times import BEGINNING
from holdproof.runtime import calls, flow_queries, flows, recorded, results, steps
from holdproof.runtime.flows import FLOWS
from holdproof.runtime.steps import STEPS

# The flow and all below it; every query of a timeline starts with it.
_BELOW: Final = (
    "WITH RECURSIVE below (dfid, ns) AS (SELECT dfid, ns FROM decision_flows WHERE dfid = :dfid AND ns = :ns UNION ALL"
    " SELECT f.dfid, f.ns FROM decision_flows f JOIN below b ON f.dfid_parent = b.dfid AND f.ns = b.ns) "
)
_FLOWS = sql(
    f"{_BELOW}SELECT {FLOWS.listed('f')} FROM decision_flows f JOIN below b ON b.dfid = f.dfid AND b.ns = f.ns"  # noqa: S608
    " ORDER BY f.created_at, f.dfid"
)
_STEPS = sql(
    f"{_BELOW}SELECT {STEPS.listed('s')} FROM flow_steps s JOIN below b"  # noqa: S608
    " ON b.dfid = s.dfid AND b.ns = s.ns ORDER BY s.step_id"
)
# For each kind of event: when, its place within a moment (causes before effects), the row's number and id, the text.
_HAPPENED: Final = (
    f"{_BELOW}SELECT at, place, seq, ref, kind, dfid, what, note FROM ("  # noqa: S608
    "SELECT t.created_at AS at, 0 AS place, 0 AS seq, t.dfid AS ref, 'opened' AS kind, t.dfid AS dfid,"
    " t.flow_type || ' ' || t.flow_version AS what, 'by ' || t.agent_id AS note"
    " FROM below b JOIN decision_flows t ON t.dfid = b.dfid AND t.ns = b.ns"
    " UNION ALL SELECT t.finished_at, 5, 0, t.step_id, 'step ended', t.dfid, t.name || ' ' || t.state, t.error"
    " FROM below b JOIN flow_steps t ON t.dfid = b.dfid AND t.ns = b.ns WHERE t.finished_at IS NOT NULL"
    " UNION ALL SELECT t.resolved_at, 2, t.id, CAST(t.id AS TEXT), 'answered', t.dfid,"
    " t.status || coalesce(' by ' || t.resolved_by, ''), t.comment"
    " FROM below b JOIN escalation_requests t ON t.dfid = b.dfid AND t.ns = b.ns WHERE t.resolved_at IS NOT NULL"
    " UNION ALL SELECT t.created_at, 1, t.id, CAST(t.id AS TEXT), 'asked', t.dfid, t.reason, t.impact"
    " FROM below b JOIN escalation_requests t ON t.dfid = b.dfid AND t.ns = b.ns"
    " UNION ALL SELECT t.created_at, 3, t.id, CAST(t.id AS TEXT), 'transition', t.dfid, t.to_status, t.reason"
    " FROM below b JOIN flow_transitions t ON t.dfid = b.dfid AND t.ns = b.ns"
    " UNION ALL SELECT t.started_at, 4, 0, t.step_id, 'step begun', t.dfid, t.name, t.compensates"
    " FROM below b JOIN flow_steps t ON t.dfid = b.dfid AND t.ns = b.ns"
    " UNION ALL SELECT t.acquired_at, 6, t.fence, t.resource_id, 'lock', t.dfid, t.resource_id,"
    " 'fence ' || CAST(t.fence AS TEXT) FROM below b JOIN resource_locks t ON t.dfid = b.dfid AND t.ns = b.ns"
    " UNION ALL SELECT t.created_at, 7, t.id, CAST(t.id AS TEXT), 'audit', t.dfid, t.event_type"
    f" || CASE WHEN t.event_type IN ('{LOCK_AWAITED}', '{LOCK_ACQUIRED}', '{LOCK_GIVEN_UP}')"
    " THEN ' ' || coalesce(json_extract(t.detail_json, '$.lock'), '') ELSE '' END,"
    " t.severity || coalesce(' by ' || json_extract(t.detail_json, '$.recorded_by'), '')"
    " FROM below b JOIN decision_audit_events t ON t.dfid = b.dfid AND t.ns = b.ns"
    ") AS happened WHERE (at, place, seq, ref) > (:at, :place, :seq, :ref) ORDER BY at, place, seq, ref LIMIT :limit"
)
# How both databases read a member of a JSON text.
_MEMBER: Final = re.compile(r"json_extract\(t\.detail_json, '\$\.(\w+)'\)")
_EVENTS = sql(_HAPPENED, postgres=_MEMBER.sub(r"(t.detail_json ->> '\1')", _HAPPENED))


def timeline(tx: Tx, flow_id: str, *, cursor: str | None = None, limit: int = 200, ns: str = MAIN) -> Timeline:
    """Return a flow with its sub-flows and their steps, and a page of what happened in them, oldest first."""
    flows.get(tx, flow_id, ns=ns)
    at, place, seq, ref = paging.decode(cursor, BEGINNING, 0, 0, "")
    keys = {"at": paging.moment(at), "place": place, "seq": seq, "ref": ref}
    rows = tx.all(_EVENTS, dfid=flow_id, ns=ns, **keys, limit=paging.fetch(limit))
    # The sort key of an event is not part of it: the page is made of rows, then each row becomes an event.
    page = paging.page(rows, limit, lambda row: row[:4])
    below = [FLOWS.from_row(row) for row in tx.all(_FLOWS, dfid=flow_id, ns=ns)]
    done = tuple(steps.shown(tx, STEPS.from_row(row)) for row in tx.all(_STEPS, dfid=flow_id, ns=ns))
    events = tuple(_event(tx, *row) for row in page.items)
    call = calls.find(tx, flow_id, ns=ns)
    outcome = results.stored(tx, flow_id, ns=ns)
    return Timeline(flow_queries.branch(below, flow_id), done, events, page.next_cursor, call, outcome)


def _event(  # noqa: PLR0917 (the columns of a row)
    tx: Tx, at: str, _place: int, _seq: int, ref: str, kind: str, flow_id: str, what: str, note: str | None
) -> TimelineEvent:
    # Only of these may the text be a person's: names of steps and resources are anybody's, and never opened.
    if kind == "asked":
        what = recorded.open_text(tx, what) or ""
    elif kind in ("answered", "transition"):
        note = recorded.open_text(tx, note)
    return TimelineEvent(at, kind, flow_id, what, note, ref)
