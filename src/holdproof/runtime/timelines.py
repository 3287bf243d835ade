"""Timelines: a flow with all that it delegated, and what happened there, from every table that tells of it.

Rules:
- What happened comes in the order of its time, and within one moment causes before effects.
- Locks are among it while they are held: a lock that was let go leaves no row.
"""

from typing import Final

from holdproof.db import Row, Tx, sql
from holdproof.errors import InvalidInputError
from holdproof.model.flows import Flow
from holdproof.model.timelines import Happening, Timeline
from holdproof.runtime import flow_queries, flows, logged_rows, steps
from holdproof.runtime.logged_rows import BEGINNING, MAIN

_BELOW: Final = (
    "WITH RECURSIVE below (dfid) AS (SELECT dfid FROM decision_flows WHERE dfid = :dfid AND ns = :ns UNION ALL"
    " SELECT f.dfid FROM decision_flows f JOIN below b ON f.dfid_parent = b.dfid) "
)
_FLOWS = sql(
    f"{_BELOW}SELECT f.dfid, root_dfid, dfid_parent, agent_id, flow_type, flow_version, status, created_by_type,"  # noqa: S608
    " created_by_id, priority, started_at, completed_at, created_at, updated_at, ns FROM decision_flows f"
    " JOIN below b ON b.dfid = f.dfid ORDER BY created_at, f.dfid"
)
_STEPS = sql(
    f"{_BELOW}SELECT step_id, s.dfid, name, n, state, compensates, result, error, undo, started_at, finished_at, ns"  # noqa: S608
    " FROM flow_steps s JOIN below b ON b.dfid = s.dfid ORDER BY step_id"
)
# For each kind: when, its place within a moment (causes before effects), the row's number and id, and the words.
_HAPPENED = sql(
    f"{_BELOW}SELECT at, place, seq, ref, kind, dfid, what, note FROM ("  # noqa: S608
    "SELECT t.created_at AS at, 0 AS place, 0 AS seq, t.dfid AS ref, 'opened' AS kind, t.dfid AS dfid,"
    " t.flow_type || ' ' || t.flow_version AS what, 'by ' || t.agent_id AS note"
    " FROM below b JOIN decision_flows t ON t.dfid = b.dfid"
    " UNION ALL SELECT t.finished_at, 5, 0, t.step_id, 'step ended', t.dfid, t.name || ' ' || t.state, t.error"
    " FROM below b JOIN flow_steps t ON t.dfid = b.dfid WHERE t.finished_at IS NOT NULL"
    " UNION ALL SELECT t.resolved_at, 2, t.id, CAST(t.id AS TEXT), 'answered', t.dfid,"
    " t.status || coalesce(' by ' || t.resolved_by, ''), t.comment"
    " FROM below b JOIN escalation_requests t ON t.dfid = b.dfid WHERE t.resolved_at IS NOT NULL"
    " UNION ALL SELECT t.created_at, 1, t.id, CAST(t.id AS TEXT), 'asked', t.dfid, t.reason, t.impact"
    " FROM below b JOIN escalation_requests t ON t.dfid = b.dfid"
    " UNION ALL SELECT t.created_at, 3, t.id, CAST(t.id AS TEXT), 'transition', t.dfid, t.to_status, t.reason"
    " FROM below b JOIN flow_transitions t ON t.dfid = b.dfid"
    " UNION ALL SELECT t.started_at, 4, 0, t.step_id, 'step begun', t.dfid, t.name, t.compensates"
    " FROM below b JOIN flow_steps t ON t.dfid = b.dfid"
    " UNION ALL SELECT t.acquired_at, 6, t.fence, t.resource_id, 'lock', t.dfid, t.resource_id,"
    " 'fence ' || CAST(t.fence AS TEXT) FROM below b JOIN resource_locks t ON t.dfid = b.dfid"
    " UNION ALL SELECT t.created_at, 7, t.id, CAST(t.id AS TEXT), 'audit', t.dfid, t.event_type, t.severity"
    " FROM below b JOIN decision_audit_events t ON t.dfid = b.dfid"
    ") AS happened WHERE (at, place, seq, ref) > (:at, :place, :seq, :ref) ORDER BY at, place, seq, ref LIMIT :limit"
)


def timeline(tx: Tx, flow_id: str, *, ns: str = MAIN, after: str = "", limit: int = 200) -> Timeline:
    """A flow and what happened in it and below, oldest first, a page at a time: pass `next` of a page as `after`."""
    flows.get(tx, flow_id, ns=ns)
    at, place, seq, ref = _cursor(after)
    page = {"at": at, "place": place, "seq": seq, "ref": ref, "limit": logged_rows.limited(limit)}
    found = tx.all(_HAPPENED, dfid=flow_id, ns=ns, **page)
    below = [Flow(*row) for row in tx.all(_FLOWS, dfid=flow_id, ns=ns)]
    done = tuple(steps.shown(row) for row in tx.all(_STEPS, dfid=flow_id, ns=ns))
    following = " ".join(str(part) for part in found[-1][:4]) if len(found) == limit else None
    return Timeline(flow_queries.branch(below, flow_id), done, tuple(_happening(row) for row in found), following)


def _cursor(after: str) -> tuple[str, int, int, str]:
    try:
        at, place, seq, ref = after.split(" ", 3) if after else (BEGINNING, "0", "0", "")
        return logged_rows.moment("after", at), int(place), int(seq), ref
    except ValueError as error:
        raise InvalidInputError("`after` is the `next` of a page", after=after) from error


def _happening(row: Row) -> Happening:
    at, _, _, ref, kind, flow_id, what, note = row
    return Happening(at, kind, flow_id, what, note, ref)
