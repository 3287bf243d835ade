"""Who works on a flow, what it waits for, and which workers were lost on it: what a person asks of one that is stuck.

Rules:
- It only reads: a flow goes by its lease and its record, never by what stands here.
- What a flow waits for is what its worker said last (`waits_for`), and what rows say: open escalations and promises,
  steps that are tried again, flows below it that have not ended. One that waits for a lock names the flow that has it.
- A lost worker is known by the audit event that the next one left (leases.py).
"""

import json
from typing import Final

from holdproof.db import Tx, sql, sql_by_key
from holdproof.model import jsontext
from holdproof.model.flows import ESCALATION, LOCK, TAKEN_OVER, Flow, FlowExecution, FlowWait, LeaseTakeover
from holdproof.model.namespaces import MAIN
from holdproof.model.times import END
from holdproof.runtime import flows

_MOST: Final = 50

_LEASE = sql(
    "SELECT l.worker, l.token, l.heartbeat_at, l.expires_at, l.queue, l.partition_key, l.waits_for FROM flow_leases l"
    " WHERE l.dfid = :dfid AND l.ns = :ns"
)
_DETAIL: Final = ("lost_worker", "last_heartbeat_at", "worker")
_NO_LEASE: Final = ("", 0, None, None, "", None, None)
_TAKEOVERS = sql(
    "SELECT e.created_at, e.detail_json, (SELECT count(*) FROM flow_steps s WHERE s.dfid = e.dfid AND s.ns = e.ns"
    " AND s.finished_at <= e.created_at) FROM decision_audit_events e"
    " WHERE e.dfid = :dfid AND e.ns = :ns AND e.event_type = :event_type ORDER BY e.id LIMIT :limit"
)
_PROCESSES = sql(
    "SELECT worker_id, name, host, pid FROM workers"
    " WHERE ns = :ns AND worker_id IN (SELECT value FROM json_each(:workers))",
    postgres="SELECT worker_id, name, host, pid FROM workers"
    " WHERE ns = :ns AND worker_id IN (SELECT value FROM json_array_elements_text(CAST(:workers AS JSON)))",
)


def get(tx: Tx, flow_id: str, *, ns: str = MAIN) -> FlowExecution:
    """Return who works on a flow, what it waits for, and which workers were lost on it."""
    flow = flows.get(tx, flow_id, ns=ns)
    row = tx.one(_LEASE, dfid=flow_id, ns=ns)
    worker, token, heartbeat_at, expires_at, queue, partition_key, waits_for = row or (
        "",
        0,
        None,
        None,
        "",
        None,
        None,
    )
    takeovers = _takeovers(tx, flow)
    orphaned = flow.is_worked_on and bool(worker) and expires_at <= tx.now
    return FlowExecution(
        flow_id,
        flow.status,
        worker or None,
        token,
        heartbeat_at,
        expires_at if worker else None,
        orphaned,
        queue or None,
        partition_key,
        () if flow.ended else _waits(tx, flow, None if worker else expires_at, waits_for),
        takeovers,
        _processes(tx, {worker, *(name for each in takeovers for name in (each.lost_worker, each.worker))}, ns),
    )


def _takeovers(tx: Tx, flow: Flow) -> tuple[LeaseTakeover, ...]:
    rows = tx.all(_TAKEOVERS, dfid=flow.flow_id, ns=flow.ns, event_type=TAKEN_OVER, limit=_MOST)
    takeovers: list[LeaseTakeover] = []
    for at, text, replayed in rows:
        detail = jsontext.load(text)
        # Anybody may record an audit event of any type: one that says nothing of workers is not of ours.
        if isinstance(detail, dict) and detail.keys() >= {*_DETAIL}:
            lost_worker = str(detail["lost_worker"])
            takeovers.append(
                LeaseTakeover(at, lost_worker, str(detail["last_heartbeat_at"]), str(detail["worker"]), replayed)
            )
    return tuple(takeovers)


def _processes(tx: Tx, workers: set[str], ns: str) -> dict[str, str]:
    names = json.dumps(sorted(filter(None, workers)))
    return {
        worker: f"{name} ({host}, pid {pid})" for worker, name, host, pid in tx.all(_PROCESSES, ns=ns, workers=names)
    }


# --- waiting -----------------------------------------------------------------------------------------------------

_ESCALATIONS = sql(
    "SELECT id, reason, deadline FROM escalation_requests WHERE dfid = :dfid AND ns = :ns AND status = 'PENDING'"
    " ORDER BY id LIMIT :limit"
)
_PROMISES = sql(
    "SELECT promise_id, name FROM flow_promises WHERE dfid = :dfid AND ns = :ns AND state = 'PENDING'"
    " ORDER BY promise_id LIMIT :limit"
)
_RETRIES = sql(
    "SELECT step_id, name, attempts, retry_at FROM flow_steps WHERE dfid = :dfid AND ns = :ns AND state = 'RETRYING'"
    " ORDER BY position LIMIT :limit"
)
_CHILDREN = sql_by_key(
    "SELECT dfid, flow_type FROM decision_flows WHERE dfid_parent = :dfid AND ns = :ns"
    " AND status IN ('CREATED', 'RUNNING', 'WAITING_ESCALATION', 'COMPENSATING') ORDER BY created_at, dfid LIMIT :limit"
)
_HOLDERS = sql(
    "SELECT dfid, expires_at FROM resource_locks WHERE ns = :ns AND resource_id = :resource AND dfid <> :dfid"
    " AND (expires_at IS NULL OR expires_at > :now) ORDER BY acquired_at, dfid LIMIT :limit"
)


def _waits(tx: Tx, flow: Flow, due: str | None, waits_for: str | None) -> tuple[FlowWait, ...]:
    """Return what an open flow waits for; `due` is when a worker may go on, where it has none."""
    keys = {"dfid": flow.flow_id, "ns": flow.ns, "limit": _MOST}
    waits = [
        FlowWait("escalation", f"{ESCALATION}{number}", until, str(number))
        for number, _, until in tx.all(_ESCALATIONS, **keys)
    ]
    waits += [FlowWait("promise", f"promise {name}", None, ref) for ref, name in tx.all(_PROMISES, **keys)]
    waits += [
        FlowWait("retry", f"try {attempts + 1} of the step {name}", until, ref)
        for ref, name, attempts, until in tx.all(_RETRIES, **keys)
    ]
    waits += [FlowWait("flow", f"{kind} below it", None, ref) for ref, kind in tx.all(_CHILDREN, **keys)]
    if waits_for is not None and waits_for.startswith(LOCK):
        return (*waits, *_lock_waits(tx, flow, waits_for))
    until = None if due is None or due >= END else due
    if waits_for is not None and not any(waits_for.startswith(each.what) for each in waits):
        waits.append(FlowWait("other", waits_for, until, ""))
    elif due is not None and due <= tx.now and not waits:
        waits.append(FlowWait("worker", "a worker", due, ""))
    return tuple(waits)


def _lock_waits(tx: Tx, flow: Flow, waits_for: str) -> tuple[FlowWait, ...]:
    """Return the flows that have what it waits for; the lock alone where it was let go of this moment."""
    resource = waits_for.removeprefix(LOCK)
    rows = tx.all(_HOLDERS, ns=flow.ns, resource=resource, dfid=flow.flow_id, now=tx.now, limit=_MOST)
    holders = tuple(FlowWait("lock", waits_for, until, holder) for holder, until in rows)
    return holders or (FlowWait("lock", waits_for, None, ""),)
