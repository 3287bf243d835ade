"""Leases: which worker works on a flow, and when a flow is due.

Rules:
- One worker at a time; another acquires the lease only when it was given back or has expired, with a greater token.
- A flow that waits has no worker, and is due at a moment (`suspend`) or when it is woken (`flows.wake`). So a wake-up,
  a queued flow and one whose worker is gone are found in the same way: nobody has it, or its lease is over.
- A heartbeat extends a lease that nobody else has acquired; a lost one is LeaseLostError, and stays lost.
- What a flow does is a heartbeat too (`keep`, or `KEPT` in the statement of a step). It is not written where at least
  nine tenths of the lease are left: three indexes go by that time, and a step would rewrite them twice.
- An expired lease keeps no place in its queue. A heartbeat that comes too late extends it only where the queue has room
  for the flow: its place may be another flow's by now, and limits hold.
- Tokens only grow, so that no holder of an older lease passes for a newer one; the end of a flow ends its lease.
- `recover` leases each orphan (a RUNNING or COMPENSATING flow whose lease has expired) to exactly one worker.
- A worker that takes the place of a lost one leaves an audit event in the same transaction: who was lost, and when it
  was last heard of.
"""

from typing import Any, Final, NamedTuple

from holdproof import validation
from holdproof.crypto import canonical
from holdproof.db import Tx, sql, try_lock_exclusive
from holdproof.errors import ConflictError, FlowEndedError, LeaseLostError
from holdproof.evidence import leaves
from holdproof.model.defaults import LEASE_S
from holdproof.model.flows import TAKEN_OVER, WORKED_ON, Flow, Lease, Orphan
from holdproof.model.namespaces import MAIN
from holdproof.model.times import later, to_micros
from holdproof.runtime import audit, flows

_CANDIDATES: Final = 100
_ENOUGH: Final = 0.9
"""The part of its length that is left of a lease which need not be extended yet."""

# "No row" is the refusal: the lease of another worker has not expired.
_CLAIM = sql(
    "INSERT INTO flow_leases (dfid, worker, token, heartbeat_at, expires_at, ns)"
    " VALUES (:dfid, :worker, 1, :now, :until, :ns) ON CONFLICT (dfid, ns) DO UPDATE SET worker = excluded.worker,"
    " token = flow_leases.token + 1, heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at,"
    " waits_for = NULL, previous_worker = flow_leases.worker, previous_heartbeat_at = flow_leases.heartbeat_at"
    " WHERE flow_leases.worker = '' OR flow_leases.expires_at <= excluded.heartbeat_at"
    " RETURNING token, previous_worker, previous_heartbeat_at"
)
_HOLDER = sql("SELECT worker, expires_at FROM flow_leases WHERE dfid = :dfid AND ns = :ns AND worker <> ''")


class LeaseHolder(NamedTuple):
    """The worker that has a flow, and for how many more seconds unless it extends its lease."""

    worker: str
    remaining_s: float


def holder(tx: Tx, flow_id: str, *, ns: str) -> LeaseHolder | None:
    """Return who has leased a flow; None where nobody has."""
    row = tx.one(_HOLDER, dfid=flow_id, ns=ns)
    if row is None:
        return None
    worker, expires_at = row
    return LeaseHolder(worker, (to_micros(expires_at) - to_micros(tx.now)) / 1_000_000)


def lease(tx: Tx, flow_id: str, worker: str, *, lease_s: float = LEASE_S, ns: str = MAIN) -> Lease:
    """Lease a flow to a worker; ConflictError while another worker has it, FlowEndedError where it has ended."""
    validation.name("worker", worker)
    if flows.lock(tx, flow_id, ns=ns).ended:
        raise FlowEndedError("an ended flow needs no worker", flow_id=flow_id)
    lease = try_lease(tx, flow_id, worker, lease_s, ns)
    if lease is None:
        other = holder(tx, flow_id, ns=ns)
        worker_id = None if other is None else other.worker
        raise ConflictError(f"flow {flow_id} is leased to another worker", flow_id=flow_id, holder=worker_id)
    return lease


def _until(tx: Tx, lease_s: float) -> str:
    return later(tx.now, validation.seconds("lease_s", lease_s, least=0.001))


def try_lease(tx: Tx, flow_id: str, worker: str, lease_s: float, ns: str) -> Lease | None:
    """Lease a flow that is locked; None while another worker has it."""
    until = _until(tx, lease_s)
    row = tx.one(_CLAIM, dfid=flow_id, worker=worker, now=tx.now, until=until, ns=ns)
    if row is None:
        return None
    token, lost_worker, last_heartbeat_at = row
    if lost_worker and lost_worker != worker:
        detail = {"lost_worker": lost_worker, "last_heartbeat_at": last_heartbeat_at, "worker": worker}
        _note_takeover(tx, flow_id, detail, ns)
    return Lease(flow_id, worker, token, tx.now, until, ns)


def _note_takeover(tx: Tx, flow_id: str, detail: dict[str, str], ns: str) -> None:
    columns = {"event_type": TAKEN_OVER, "severity": "WARNING", "step_id": "", "state": "", "correlation_id": None}
    # Not sealed: it names processes and no person, and a flow is taken over also where its person was erased.
    with leaves.consequences(tx):
        audit.write(tx, flow_id, {**columns, "detail_json": canonical.dump_text(detail)}, ns=ns, sealed=False)


# Without a queue not by time: a worker that was slow, and whose expired lease nobody acquired, still has its flow.
# Each heartbeat says what the flow waits for, but those that only keep a lease (`:keeps`) do not know.
_WAITS: Final = "waits_for = CASE WHEN :keeps = 1 THEN waits_for ELSE :waits_for END"
_BEAT = sql(
    f"UPDATE flow_leases SET heartbeat_at = :now, expires_at = :until, {_WAITS}"  # noqa: S608 (a text from above)
    " WHERE dfid = :dfid AND token = :token AND ns = :ns AND (queue = '' OR expires_at > :now) RETURNING worker"
)
_QUEUE_OF = sql("SELECT queue FROM flow_leases WHERE dfid = :dfid AND token = :token AND ns = :ns")
# What runs is counted as claims.py counts it; the expired lease itself is not among that.
_RUNS: Final = (
    "(SELECT count(*) FROM flow_leases o{index} WHERE o.ns = flow_leases.ns AND o.queue = flow_leases.queue"
    " AND o.worker <> '' AND o.expires_at > :now"
)
_LATE: Final = (
    "UPDATE flow_leases SET heartbeat_at = :now, expires_at = :until, {waits}"
    " WHERE dfid = :dfid AND token = :token AND ns = :ns AND NOT EXISTS (SELECT 1 FROM queues q"
    " WHERE q.name = flow_leases.queue AND q.ns = flow_leases.ns AND q.deleted_at IS NULL"
    " AND (q.concurrency <= {runs})"
    " OR q.worker_concurrency <= {runs} AND o.worker = flow_leases.worker)"
    " OR q.partition_concurrency <= {runs} AND o.partition_key = flow_leases.partition_key)))"
    " RETURNING worker"
)
_BEAT_LATE = sql(
    _LATE.format(waits=_WAITS, runs=_RUNS.format(index=" INDEXED BY idx_flow_leases_worker")),
    postgres=_LATE.format(waits=_WAITS, runs=_RUNS.format(index="")),
)


def _extend(
    tx: Tx, flow_id: str, token: int, until: str, ns: str, *, keeps: bool = False, waits_for: str | None = None
) -> str | None:
    """Extend a lease and return its worker; None where it is another's, or its place in the queue is.

    With `keeps` what the flow waits for stays as it was said last.
    """
    says = {"keeps": int(keeps), "waits_for": waits_for}
    row = tx.one(_BEAT, dfid=flow_id, token=token, now=tx.now, until=until, ns=ns, **says)
    if row is None:
        queue = tx.one(_QUEUE_OF, dfid=flow_id, token=token, ns=ns)
        # Whoever leases flows of the queue now may be about to give the place away. Waiting for them, with the flow
        # locked, could be for ever: they lock the queue first, and then flows.
        if queue is not None and try_lock_exclusive(tx, queue_key(*queue, ns=ns)):
            row = tx.one(_BEAT_LATE, dfid=flow_id, token=token, now=tx.now, until=until, ns=ns, **says)
    if row is None:
        return None
    (worker,) = row
    return str(worker)


def queue_key(queue: str, *, ns: str) -> str:
    """Return the key of the lock of a queue, which is held by who leases its flows or changes its limits."""
    return f"queue:{ns}:{queue}"


def heartbeat(
    tx: Tx, flow_id: str, token: int, *, lease_s: float = LEASE_S, waits_for: str | None = None, ns: str = MAIN
) -> Lease:
    """Extend a lease; LeaseLostError where another worker has acquired it or the flow has ended.

    `waits_for` says what the flow waits for, for people; without it, it waits for nothing.
    """
    until = _until(tx, lease_s)
    worker = _extend_or_raise(tx, flow_id, token, until, ns=ns, waits_for=waits_for)
    return Lease(flow_id, worker, token, tx.now, until, ns)


# The row is locked as the extension would lock it. One that lasts longer than asked for is made shorter.
_KEPT: Final = (
    "SELECT worker FROM flow_leases WHERE dfid = :dfid AND token = :token AND ns = :ns AND expires_at >= :enough"
    " AND expires_at <= :until AND coalesce(waits_for, '') = :waits_for"
)
_IS_KEPT = sql(_KEPT, postgres=f"{_KEPT} FOR UPDATE")


def keep(tx: Tx, flow_id: str, token: int, *, lease_s: float, waits_for: str | None = None, ns: str) -> None:
    """Extend a lease as `heartbeat` does, by seconds that were validated, unless nearly all of it is left.

    Every step begins and ends with it, and proves in the same transaction that its worker still has the lease.
    """
    times = bounds(tx, token, lease_s)
    if tx.one(_IS_KEPT, dfid=flow_id, ns=ns, waits_for=waits_for or "", **times) is None:
        _extend_or_raise(tx, flow_id, token, times["until"], ns=ns, waits_for=waits_for)


# The same as a condition of another statement about the flow, which waits for nothing: NULL where it does not hold.
KEPT_LOCKED: Final = (
    "(SELECT 1 FROM flow_leases l WHERE l.dfid = :dfid AND l.ns = :ns AND l.token = :token AND l.expires_at >= :enough"
    " AND l.expires_at <= :until AND l.waits_for IS NULL FOR UPDATE)"
)
KEPT: Final = KEPT_LOCKED.replace(" FOR UPDATE", "")


def bounds(tx: Tx, token: int, lease_s: float) -> dict[str, Any]:
    """Return the parameters of `KEPT`; where it does not hold, the lease is to be extended as by `keep`."""
    return {"token": token, "enough": later(tx.now, lease_s * _ENOUGH), "until": later(tx.now, lease_s)}


def _extend_or_raise(tx: Tx, flow_id: str, token: int, until: str, *, ns: str, waits_for: str | None) -> str:
    worker = _extend(tx, flow_id, token, until, ns, waits_for=waits_for)
    if worker is None:
        raise LeaseLostError(
            "another worker has the lease or its place in the queue, or the flow has ended",
            flow_id=flow_id,
            token=token,
        )
    return worker


def extend_unless_lost(tx: Tx, flow_id: str, token: int, *, lease_s: float, ns: str) -> bool:
    """Extend a lease, and return whether that was possible: another worker may have it, or the flow has ended."""
    return _extend(tx, flow_id, token, _until(tx, lease_s), ns, keeps=True) is not None


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
    "UPDATE flow_leases SET expires_at = :due, worker = '', token = token + 1, waits_for = :waits_for"
    " WHERE dfid = :dfid AND token = :token AND ns = :ns RETURNING queue"
)


def suspend(tx: Tx, flow_id: str, token: int, *, due: str, waits_for: str | None = None, ns: str) -> None:
    """Give a lease back until a moment; LeaseLostError where another worker has it."""
    row = tx.one(_SUSPEND, dfid=flow_id, token=token, due=due, waits_for=waits_for, ns=ns)
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
