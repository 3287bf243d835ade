"""Audit: what happened in a flow; rows are only added.

Rules:
- An unknown severity is an error, never replaced by another one.
- Every event has a leaf of its own.
- Of a person's flow the detail is sealed, and read as erased once that person was.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from holdproof import validation
from holdproof.crypto import canonical
from holdproof.db import Tx, sql
from holdproof.errors import NotFoundError
from holdproof.evidence import leaves
from holdproof.evidence.tables import Table, numbered
from holdproof.model import jsontext
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.records import SEVERITIES, AuditEvent
from holdproof.model.times import BEGINNING
from holdproof.runtime import recorded

AUDIT: Final = Table(
    "decision_audit_events",
    AuditEvent,
    kind="audit",
    key="id",
    logged=(
        *("id", "dfid", "root_dfid", "event_type", "severity", "correlation_id", "causation_id", "step_id"),
        *("state", "detail_json", "created_at", "ns"),
    ),
    columns={"detail": "detail_json"},
    loads={"detail_json": jsontext.load},
)

# One read for both: the root of the flow, which must exist, and the number of the new row.
_ROOT = numbered(
    "SELECT root_dfid, subject, {id} FROM decision_flows WHERE dfid = :dfid AND ns = :ns", "decision_audit_events"
)
_ADD = sql(AUDIT.insert())


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
    by: str | None = None,
    ns: str = MAIN,
) -> AuditEvent:
    """Add an event to a flow.

    `by` is stored in the detail as `recorded_by`, and shown in timelines; at the server it is always the caller.
    """
    columns = {
        "event_type": validation.name("event_type", event_type),
        "severity": validation.one_of("severity", severity, SEVERITIES),
        "correlation_id": correlation_id,
        "causation_id": causation_id,
        "step_id": step_id,
        "state": state,
        "detail_json": canonical.dump_text(_with_author({} if detail is None else detail, by)),
    }
    return write(tx, flow_id, columns, ns=ns)


def observe(
    tx: Tx,
    flow_id: str,
    event_type: str,
    *,
    severity: str = "INFO",
    step_id: str = "",
    detail: Any = None,
    ns: str,
) -> AuditEvent:
    """Add an event of the kernel's own: it says what happened to a flow, so that no limit of a namespace refuses it."""
    with leaves.consequences(tx):
        return record(tx, flow_id, event_type, severity=severity, step_id=step_id, detail=detail, ns=ns)


def _with_author(detail: Any, by: str | None) -> Any:
    """Return the detail with its author, whatever author it names itself."""
    if by is None:
        return detail
    return {**(detail if isinstance(detail, Mapping) else {"detail": detail}), "recorded_by": by}


def write(tx: Tx, flow_id: str, columns: Mapping[str, Any], *, ns: str, sealed: bool = True) -> AuditEvent:
    """Write an event, given by column; `columns` may name another root than the flow's.

    Without `sealed` its detail stays readable also where the flow is a person's: for what names no person.
    """
    flow = tx.one(_ROOT, dfid=flow_id, ns=ns)
    if flow is None:
        raise NotFoundError(f"there is no flow {flow_id}", listed_by="flows list", flow_id=flow_id)
    root, subject, number = flow
    # Every logged column has a value before the leaf is made; what nobody names is NULL.
    row = {
        **dict.fromkeys(AUDIT.columns),
        "id": number,
        "dfid": flow_id,
        "root_dfid": root,
        "created_at": tx.now,
        "ns": ns,
        **columns,
    }
    if sealed and row["detail_json"] is not None:
        row["detail_json"] = recorded.seal_json(tx, row["detail_json"], subject)
    AUDIT.add(tx, _ADD, row)
    return _shown(tx, AUDIT.from_columns(row))


def _shown(tx: Tx, event: AuditEvent) -> AuditEvent:
    return replace(event, detail=recorded.open_json(tx, event.detail))


_GET = sql(AUDIT.select("WHERE id = :id AND ns = :ns"))


def get(tx: Tx, id: int, *, ns: str = MAIN) -> AuditEvent:
    """Return one event."""
    event = AUDIT.find(tx, _GET, id=id, ns=ns)
    if event is None:
        raise NotFoundError(f"there is no event {id}", listed_by="audit list", id=id)
    return _shown(tx, event)


_FILTERS: Final = (
    "ns = :ns AND (CAST(:event_type AS TEXT) IS NULL OR event_type = :event_type)"
    " AND (CAST(:severity AS TEXT) IS NULL OR severity = :severity) AND created_at >= :since"
)
_NEWEST: Final = f"{_FILTERS} AND id < :before ORDER BY id DESC LIMIT :limit"
_OLDEST: Final = f"{_FILTERS} AND id > :after ORDER BY id LIMIT :limit"
# Two texts rather than one with an optional flow: "flow is NULL or equal" would keep both databases from the index.
_LIST = sql(AUDIT.select(f"WHERE {_NEWEST}"))
_LIST_OF_FLOW = sql(AUDIT.select(f"WHERE dfid = :dfid AND {_NEWEST}"))


def list(
    tx: Tx,
    *,
    flow_id: str | None = None,
    event_type: str | None = None,
    severity: str | None = None,
    since: str = BEGINNING,
    cursor: str | None = None,
    limit: int = 100,
    ns: str = MAIN,
) -> Page[AuditEvent]:
    """List events of one flow or of all, newest first."""
    query = _LIST if flow_id is None else _LIST_OF_FLOW
    page = AUDIT.page(tx, query, cursor, limit, **_filters(event_type, severity, since), dfid=flow_id, ns=ns)
    return Page([_shown(tx, each) for each in page.items], page.next_cursor)


def _filters(event_type: str | None, severity: str | None, since: str) -> dict[str, str | None]:
    # A severity that does not exist would find nothing, which reads like "nothing happened".
    if severity is not None:
        validation.one_of("severity", severity, SEVERITIES)
    return {"event_type": event_type, "severity": severity, "since": validation.moment("since", since)}


_SCAN = sql(AUDIT.select(f"WHERE {_OLDEST}"))
_SCAN_OF_FLOW = sql(AUDIT.select(f"WHERE dfid = :dfid AND {_OLDEST}"))


def scan(
    tx: Tx,
    *,
    flow_id: str | None = None,
    event_type: str | None = None,
    severity: str | None = None,
    since: str = BEGINNING,
    after: int = 0,
    limit: int = 100,
    ns: str = MAIN,
) -> tuple[AuditEvent, ...]:
    """Return the next events, oldest first, for exports and adapters; `after` is the id of the last one read.

    On PostgreSQL transactions commit in another order than they take their numbers: whoever follows events as they are
    written reads again from a moment before, and drops those it has.
    """
    query = _SCAN if flow_id is None else _SCAN_OF_FLOW
    filters = _filters(event_type, severity, since)
    events = AUDIT.all(tx, query, **filters, dfid=flow_id, ns=ns, after=after, limit=validation.limited(limit))
    return tuple(_shown(tx, each) for each in events)
