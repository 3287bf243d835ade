"""Audit: what happened in a flow, in the order it happened; rows are only added.

Rules:
- An unknown severity is an error, never another one.
- Every event has a leaf of its own.
"""

from collections.abc import Mapping
from typing import Any, Final

from holdproof.db import Row, Tx
from holdproof.db.sql import sql
from holdproof.errors import NotFoundError
from holdproof.evidence.leaves import Projection
from holdproof.model.records import SEVERITIES, AuditEvent, AuditPage
from holdproof.runtime import logged_rows
from holdproof.runtime.logged_rows import BEGINNING, MAIN

AUDIT: Final = logged_rows.register(
    Projection(
        "decision_audit_events",
        1,
        (
            *("id", "dfid", "root_dfid", "event_type", "severity", "correlation_id", "causation_id", "step_id"),
            *("state", "detail_json", "created_at", "ns"),
        ),
    ),
    kind="audit",
    key="id",
    first=-1,
)

_ROOT = logged_rows.numbered(
    "SELECT root_dfid, {id} FROM decision_flows WHERE dfid = :dfid AND ns = :ns", "decision_audit_events"
)
_ADD = sql(
    "INSERT INTO decision_audit_events (id, dfid, root_dfid, event_type, severity, correlation_id, causation_id,"
    " step_id, state, detail_json, created_at, ns, leaf_id, leaf_ver, leaf_salt) VALUES (:id, :dfid, :root_dfid,"
    " :event_type, :severity, :correlation_id, :causation_id, :step_id, :state, :detail_json, :created_at, :ns,"
    " :leaf_id, :leaf_ver, :leaf_salt)"
)


def record(
    tx: Tx,
    flow_id: str,
    event_type: str,
    *,
    severity: str = "INFO",
    step_id: str = "",
    state: str = "",
    detail: Any = None,
    correlation_id: str | None = None,
    causation_id: str | None = None,
    ns: str = MAIN,
) -> AuditEvent:
    """Add an event to a flow."""
    logged_rows.name("event_type", event_type)
    logged_rows.one_of("severity", severity, SEVERITIES)
    said = {"severity": severity, "correlation_id": correlation_id, "causation_id": causation_id}
    said |= {"step_id": step_id, "state": state, "detail_json": logged_rows.dump({} if detail is None else detail)}
    return write(tx, flow_id, said | {"event_type": event_type}, ns=ns)


def write(tx: Tx, flow_id: str, said: Mapping[str, Any], *, ns: str) -> AuditEvent:
    """Write an event in full, in columns; `said` may name another root than the flow's."""
    flow = tx.one(_ROOT, dfid=flow_id, ns=ns)
    if flow is None:
        raise NotFoundError(f"there is no flow {flow_id}", flow_id=flow_id)
    known = {"id": flow[1], "dfid": flow_id, "root_dfid": flow[0], "created_at": tx.now, "ns": ns}
    row = {**dict.fromkeys(AUDIT.columns), **known, **said}
    logged_rows.add(tx, _ADD, "audit", AUDIT, row)
    return _event(tuple(row.values()))


_GET = sql(
    "SELECT id, dfid, root_dfid, event_type, severity, correlation_id, causation_id, step_id, state, detail_json,"
    " created_at, ns FROM decision_audit_events WHERE id = :id AND ns = :ns"
)


def get(tx: Tx, id: int, *, ns: str = MAIN) -> AuditEvent:
    """One event."""
    row = tx.one(_GET, id=id, ns=ns)
    if row is None:
        raise NotFoundError(f"there is no event {id}", id=id)
    return _event(row)


_FOR_FLOW = sql(
    "SELECT id, dfid, root_dfid, event_type, severity, correlation_id, causation_id, step_id, state, detail_json,"
    " created_at, ns FROM decision_audit_events WHERE dfid = :dfid AND ns = :ns AND id > :after"
    " ORDER BY id LIMIT :limit"
)


def for_flow(tx: Tx, flow_id: str, *, ns: str = MAIN, after: int = 0, limit: int = 100) -> AuditPage:
    """The events of one flow, oldest first, a page at a time."""
    found = tx.all(_FOR_FLOW, dfid=flow_id, ns=ns, after=after, limit=logged_rows.limited(limit))
    return AuditPage(*logged_rows.paged(found, limit, _event, lambda event: event.id))


_SEARCH = sql(
    "SELECT id, dfid, root_dfid, event_type, severity, correlation_id, causation_id, step_id, state, detail_json,"
    " created_at, ns FROM decision_audit_events WHERE ns = :ns AND id > :after"
    " AND (CAST(:event_type AS TEXT) IS NULL OR event_type = :event_type)"
    " AND (CAST(:severity AS TEXT) IS NULL OR severity = :severity) AND created_at >= :since ORDER BY id LIMIT :limit"
)


def search(
    tx: Tx,
    *,
    event_type: str | None = None,
    severity: str | None = None,
    since: str = BEGINNING,
    ns: str = MAIN,
    after: int = 0,
    limit: int = 100,
) -> AuditPage:
    """Events of all flows, oldest first, a page at a time: pass `next` of a page as `after`.

    On PostgreSQL an event may come to light after one with a larger number, since transactions end in another order
    than they begin: whoever follows events as they come asks again from a moment before, and drops what is known.
    """
    if severity is not None:
        logged_rows.one_of("severity", severity, SEVERITIES)
    filters = {"event_type": event_type, "severity": severity, "since": logged_rows.moment("since", since)}
    found = tx.all(_SEARCH, **filters, ns=ns, after=after, limit=logged_rows.limited(limit))
    return AuditPage(*logged_rows.paged(found, limit, _event, lambda event: event.id))


def _event(row: Row) -> AuditEvent:
    return AuditEvent(*(*row[:9], logged_rows.load(row[9]), *row[10:]))
