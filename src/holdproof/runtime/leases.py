"""Leases: which worker works on a flow, and when a flow is due.

Rules:
- One worker at a time; another acquires the lease only when it was given back or has expired, with a greater token.
- A flow that waits has no worker, and is due at a moment (`suspend`) or when it is woken (`flows.wake`). So a wake-up,
  a queued flow and one whose worker is gone are found in the same way: nobody has it, or its lease is over.
- A heartbeat extends a lease that nobody else has acquired; a lost one is LeaseLostError, and stays lost.
- Tokens only grow, so that no holder of an older lease passes for a newer one; the end of a flow ends its lease.
- `recover` leases each orphan (a RUNNING or COMPENSATING flow whose lease has expired) to exactly one worker.
"""

from typing import Final, NamedTuple

from holdproof import validation
from holdproof.db import Tx, sql
from holdproof.errors import ConflictError, FlowEndedError, LeaseLostError
from holdproof.model.flows import WORKED_ON, Flow, Lease, Orphan
from holdproof.model.namespaces import MAIN
from holdproof.model.times import later
from holdproof.runtime import flows

LEASE_S: Final = 30.0
_CANDIDATES: Final = 100

# "No row" is the refusal: the lease of another worker has not expired.
_CLAIM = sql(
    "INSERT INTO flow_leases (dfid, worker, token, heartbeat_at, expires_at, ns)"
    " VALUES (:dfid, :worker, 1, :now, :until, :ns) ON CONFLICT (dfid, ns) DO UPDATE SET worker = excluded.worker,"
    " token = flow_leases.token + 1, heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at"
    " WHERE flow_leases.worker = '' OR flow_leases.expires_at <= excluded.heartbeat_at RETURNING token"
)
_HOLDER = sql("SELECT worker FROM flow_leases WHERE dfid = :dfid AND ns = :ns")


def lease(tx: Tx, flow_id: str, worker: str, *, lease_s: float = LEASE_S, ns: str = MAIN) -> Lease:
    """Lease a flow to a worker; ConflictError while another worker has it, FlowEndedError where it has ended."""
    validation.name("worker", worker)
    if flows.lock(tx, flow_id, ns=ns).ended:
        raise FlowEndedError("an ended flow needs no worker", flow_id=flow_id)
    lease = try_lease(tx, flow_id, worker, lease_s, ns)
    if lease is None:
        (holder,) = tx.one(_HOLDER, dfid=flow_id, ns=ns) or (None,)
        raise ConflictError(f"flow {flow_id} is leased to another worker", flow_id=flow_id, holder=holder)
    return lease


def _until(tx: Tx, lease_s: float) -> str:
    return later(tx.now, validation.seconds("lease_s", lease_s, least=0.001))


def try_lease(tx: Tx, flow_id: str, worker: str, lease_s: float, ns: str) -> Lease | None:
    """Lease a flow that is locked; None while another worker has it."""
    until = _until(tx, lease_s)
    row = tx.one(_CLAIM, dfid=flow_id, worker=worker, now=tx.now, until=until, ns=ns)
    if row is None:
        return None
    (token,) = row
    return Lease(flow_id, worker, token, tx.now, until, ns)


# Not by time: a worker that was slow, and whose expired lease nobody acquired, still has its flow.
_BEAT = sql(
    "UPDATE flow_leases SET heartbeat_at = :now, expires_at = :until"
    " WHERE dfid = :dfid AND token = :token AND ns = :ns RETURNING worker"
)


def heartbeat(tx: Tx, flow_id: str, token: int, *, lease_s: float = LEASE_S, ns: str = MAIN) -> Lease:
    """Extend a lease; LeaseLostError where another worker has acquired it or the flow has ended."""
    until = _until(tx, lease_s)
    row = tx.one(_BEAT, dfid=flow_id, token=token, now=tx.now, until=until, ns=ns)
    if row is None:
        raise LeaseLostError("another worker has the lease, or the flow has ended", flow_id=flow_id, token=token)
    (worker,) = row
    return Lease(flow_id, worker, token, tx.now, until, ns)


def extend_unless_lost(tx: Tx, flow_id: str, token: int, *, lease_s: float, ns: str) -> bool:
    """Extend a lease, and return whether that was possible: another worker may have it, or the flow has ended."""
    return tx.one(_BEAT, dfid=flow_id, token=token, now=tx.now, until=_until(tx, lease_s), ns=ns) is not None


# The end of a flow cleared the worker and counted the token up by one; any other holder has counted further.
_RENEW = sql(
    "UPDATE flow_leases SET worker = :worker, token = token + 1, heartbeat_at = :now, expires_at = :until"
    " WHERE dfid = :dfid AND token = :token + 1 AND worker = '' AND ns = :ns RETURNING token"
)


def renew(tx: Tx, flow_id: str, token: int, *, lease_s: float = LEASE_S, ns: str = MAIN) -> Lease:
    """Lease a flow again after its end took this lease away; LeaseLostError where another worker came between."""
    worker = tx.new_id()
    until = _until(tx, lease_s)
    row = tx.one(_RENEW, dfid=flow_id, token=token, worker=worker, now=tx.now, until=until, ns=ns)
    if row is None:
        raise LeaseLostError("another worker has the lease", flow_id=flow_id, token=token)
    (new_token,) = row
    return Lease(flow_id, worker, new_token, tx.now, until, ns)


_QUEUE = sql(
    "INSERT INTO flow_leases (dfid, worker, token, heartbeat_at, expires_at, queue, partition_key, priority, ns)"
    " VALUES (:dfid, '', 0, :now, :due, :queue, :partition_key, :priority, :ns)"
)


def queue(tx: Tx, flow: Flow, *, queue: str, partition_key: str | None, due: str) -> None:
    """Make a new flow a task that any worker of the queue may take from a moment on."""
    tx.execute(
        _QUEUE,
        dfid=flow.flow_id,
        now=tx.now,
        due=due,
        queue=queue,
        partition_key=partition_key,
        priority=flow.priority,
        ns=flow.ns,
        expect=1,
    )
    tx.notify(flows.tasks_topic(flow.ns))


_OFFER = sql(
    "INSERT INTO flow_leases (dfid, worker, token, heartbeat_at, expires_at, priority, ns)"
    " VALUES (:dfid, '', 0, :now, :now, :priority, :ns)"
)


def offer(tx: Tx, flow: Flow) -> None:
    """Make a new flow due now, for the next worker that recovers flows: it belongs to no queue."""
    tx.execute(_OFFER, dfid=flow.flow_id, now=tx.now, priority=flow.priority, ns=flow.ns, expect=1)
    tx.notify(flows.tasks_topic(flow.ns))


_LEFT = sql("SELECT 1 FROM flow_leases WHERE dfid = :dfid AND ns = :ns AND expires_at <= :now AND queue = ''")


def is_left(tx: Tx, flow_id: str, *, ns: str) -> bool:
    """Return whether the lease of a flow that belongs to no queue has expired, or the flow is due."""
    return tx.one(_LEFT, dfid=flow_id, ns=ns, now=tx.now) is not None


_HOLD = sql(
    "SELECT token FROM flow_leases WHERE dfid = :dfid AND ns = :ns",
    postgres="SELECT token FROM flow_leases WHERE dfid = :dfid AND ns = :ns FOR UPDATE",
)


def hold(tx: Tx, flow_id: str, *, ns: str) -> None:
    """Let nobody wake the flow before this transaction ends."""
    tx.one(_HOLD, dfid=flow_id, ns=ns)


_SUSPEND = sql(
    "UPDATE flow_leases SET expires_at = :due, worker = '', token = token + 1"
    " WHERE dfid = :dfid AND token = :token AND ns = :ns RETURNING queue"
)


def suspend(tx: Tx, flow_id: str, token: int, *, due: str, ns: str) -> None:
    """Give a lease back until a moment; LeaseLostError where another worker has it."""
    row = tx.one(_SUSPEND, dfid=flow_id, token=token, due=due, ns=ns)
    if row is None:
        raise LeaseLostError("another worker has the lease, or the flow has ended", flow_id=flow_id, token=token)
    flows.tell_of_room(tx, row, ns=ns)


_END = sql(
    "UPDATE flow_leases SET expires_at = :now, worker = '', token = token + 1"
    " WHERE dfid = :dfid AND token = :token AND ns = :ns"
)


_TASK = sql("SELECT queue, partition_key, priority FROM flow_leases WHERE dfid = :dfid AND ns = :ns")


class Task(NamedTuple):
    """How a flow stands in its queue; '' is no queue."""

    queue: str
    partition_key: str | None
    priority: int


def task(tx: Tx, flow_id: str, *, ns: str) -> Task:
    """Return the task of a flow that is leased."""
    row = tx.one(_TASK, dfid=flow_id, ns=ns)
    assert row is not None, "a leased flow has a task"
    return Task(*row)


def release(tx: Tx, flow_id: str, token: int, *, ns: str = MAIN) -> bool:
    """End a lease; return whether it was still held."""
    return tx.count(_END, dfid=flow_id, token=token, now=tx.now, ns=ns) == 1


_ORPHANS = sql(
    "SELECT l.dfid, l.worker, l.expires_at, c.name, c.version, c.agent_id FROM decision_flows f"
    " JOIN flow_leases l ON l.dfid = f.dfid AND l.ns = f.ns"
    " LEFT JOIN flow_calls c ON c.dfid = f.dfid AND c.ns = f.ns"
    " WHERE f.status IN ('RUNNING', 'COMPENSATING') AND f.ns = :ns AND l.expires_at <= :now"
    " ORDER BY l.dfid LIMIT :limit"
)


def orphans(tx: Tx, *, ns: str = MAIN, limit: int = 1_000) -> tuple[Orphan, ...]:
    """Return flows whose lease has expired, oldest first, without leasing them."""
    return tuple(Orphan(*row) for row in tx.all(_ORPHANS, now=tx.now, ns=ns, limit=validation.limited(limit)))


_ORPHANS_OF = sql(
    "SELECT l.dfid FROM decision_flows f JOIN flow_leases l ON l.dfid = f.dfid AND l.ns = f.ns"
    " JOIN flow_calls c ON c.dfid = f.dfid AND c.ns = f.ns"
    " WHERE f.status IN ('RUNNING', 'COMPENSATING') AND f.ns = :ns AND l.expires_at <= :now AND l.queue = ''"
    " AND c.name = :name AND c.version = :version AND (c.agent_id IS NULL OR c.agent_id = :agent_id)"
    " ORDER BY l.dfid LIMIT :limit"
)


def recover(
    tx: Tx,
    worker: str,
    *,
    of: tuple[str, str],
    agent_id: str | None = None,
    lease_s: float = LEASE_S,
    limit: int = 100,
    ns: str = MAIN,
) -> tuple[Lease, ...]:
    """Lease orphans that run one function, by name and version; what another worker leased first is not among them.

    Those of a queue are left to its workers, which keep its limits. Of those that an agent called, only the calls of
    `agent_id`.
    """
    validation.name("worker", worker)
    validation.limited(limit)
    name, version = of
    rows = tx.all(
        _ORPHANS_OF, name=name, version=version, agent_id=agent_id or "", now=tx.now, ns=ns, limit=_CANDIDATES
    )
    leases: list[Lease] = []
    for (flow_id,) in rows:
        # Once locked, the flow may turn out to have ended, or to be another worker's.
        if flows.lock(tx, flow_id, ns=ns).status in WORKED_ON:
            lease = try_lease(tx, flow_id, worker, lease_s, ns)
            if lease is not None:
                leases.append(lease)
        if len(leases) == limit:
            break
    return tuple(leases)
