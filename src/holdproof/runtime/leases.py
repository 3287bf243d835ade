"""Leases: which worker has a flow in hand.

Rules:
- One worker at a time; another takes over only when the lease has run out, with a greater token.
- A heartbeat extends a lease as long as nobody else took over; a lost one is LeaseLostError, and stays lost.
- Tokens only grow, so that no holder of an older lease passes for a newer one; the end of a flow ends its lease.
- `recover` hands each orphan (a RUNNING or COMPENSATING flow whose lease has run out) to exactly one worker.
"""

from typing import Final

from holdproof.db import Tx, sql
from holdproof.errors import ConflictError, FlowEndedError, LeaseLostError
from holdproof.model.flows import WORKED_ON, Lease, Orphan
from holdproof.model.times import later
from holdproof.runtime import flows, logged_rows
from holdproof.runtime.logged_rows import MAIN

LEASE_S: Final = 30.0
_CANDIDATES: Final = 100

_CLAIM = sql(
    "INSERT INTO flow_leases (dfid, worker, token, heartbeat_at, expires_at, ns)"
    " VALUES (:dfid, :worker, 1, :now, :until, :ns) ON CONFLICT (dfid) DO UPDATE SET worker = excluded.worker,"
    " token = flow_leases.token + 1, heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at"
    " WHERE flow_leases.expires_at <= excluded.heartbeat_at RETURNING token"
)
_HOLDER = sql("SELECT worker, expires_at FROM flow_leases WHERE dfid = :dfid")


def lease(tx: Tx, flow_id: str, worker: str, *, lease_s: float = LEASE_S, ns: str = MAIN) -> Lease:
    """Take a flow in hand; ConflictError while another worker has it."""
    logged_rows.name("worker", worker)
    if flows.hold(tx, flow_id, ns=ns).ended:
        raise FlowEndedError("an ended flow needs no worker", flow_id=flow_id)
    taken = _claim(tx, flow_id, worker, lease_s, ns)
    if taken is None:
        holder = tx.one(_HOLDER, dfid=flow_id)
        raise ConflictError("another worker has the flow in hand", flow_id=flow_id, holder=holder and holder[0])
    return taken


def _claim(tx: Tx, flow_id: str, worker: str, lease_s: float, ns: str) -> Lease | None:
    until = later(tx.now, logged_rows.seconds("lease_s", lease_s, least=0.001))
    row = tx.one(_CLAIM, dfid=flow_id, worker=worker, now=tx.now, until=until, ns=ns)
    return None if row is None else Lease(flow_id, worker, row[0], tx.now, until, ns)


_BEAT = sql(
    "UPDATE flow_leases SET heartbeat_at = :now, expires_at = :until"
    " WHERE dfid = :dfid AND token = :token AND ns = :ns RETURNING worker"
)


def heartbeat(tx: Tx, flow_id: str, token: int, *, lease_s: float = LEASE_S, ns: str = MAIN) -> Lease:
    """Say that the worker lives; LeaseLostError if the flow is no longer its own."""
    until = later(tx.now, logged_rows.seconds("lease_s", lease_s, least=0.001))
    row = tx.one(_BEAT, dfid=flow_id, token=token, now=tx.now, until=until, ns=ns)
    if row is None:
        raise LeaseLostError("another worker took over, or the flow has ended", flow_id=flow_id, token=token)
    return Lease(flow_id, row[0], token, tx.now, until, ns)


_AGAIN = sql(
    "UPDATE flow_leases SET worker = :worker, token = token + 1, heartbeat_at = :now, expires_at = :until"
    " WHERE dfid = :dfid AND token = :token + 1 AND worker = '' AND ns = :ns RETURNING token"
)


def again(tx: Tx, flow_id: str, token: int, *, lease_s: float = LEASE_S, ns: str = MAIN) -> Lease:
    """Take in hand again what an end of the flow took out of this very hand; LeaseLostError if others came between."""
    worker, until = tx.new_id(), later(tx.now, logged_rows.seconds("lease_s", lease_s, least=0.001))
    row = tx.one(_AGAIN, dfid=flow_id, token=token, worker=worker, now=tx.now, until=until, ns=ns)
    if row is None:
        raise LeaseLostError("another worker took over", flow_id=flow_id, token=token)
    return Lease(flow_id, worker, row[0], tx.now, until, ns)


_END = sql(
    "UPDATE flow_leases SET expires_at = :now, worker = '', token = token + 1"
    " WHERE dfid = :dfid AND token = :token AND ns = :ns"
)


def release(tx: Tx, flow_id: str, token: int, *, ns: str = MAIN) -> bool:
    """Let a flow go; whether it was still one's own."""
    return tx.count(_END, dfid=flow_id, token=token, now=tx.now, ns=ns) == 1


_ORPHANS = sql(
    "SELECT l.dfid, l.worker, l.expires_at, c.name, c.version, c.agent_id FROM decision_flows f"
    " JOIN flow_leases l ON l.dfid = f.dfid LEFT JOIN flow_calls c ON c.dfid = f.dfid"
    " WHERE f.status IN ('RUNNING', 'COMPENSATING') AND f.ns = :ns AND l.expires_at <= :now"
    " ORDER BY l.dfid LIMIT :limit"
)


def orphans(tx: Tx, *, ns: str = MAIN, limit: int = 1_000) -> tuple[Orphan, ...]:
    """Flows that nobody has in hand any more, oldest first; looking at them takes none in hand."""
    return tuple(Orphan(*row) for row in tx.all(_ORPHANS, now=tx.now, ns=ns, limit=logged_rows.limited(limit)))


_ORPHANS_OF = sql(
    "SELECT l.dfid FROM decision_flows f JOIN flow_leases l ON l.dfid = f.dfid JOIN flow_calls c ON c.dfid = f.dfid"
    " WHERE f.status IN ('RUNNING', 'COMPENSATING') AND f.ns = :ns AND l.expires_at <= :now"
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
    """Take orphans in hand that run that function, by name and version; what another worker took is not among them.

    Of those that an agent asked for, only that of `agent_id`.
    """
    logged_rows.name("worker", worker)
    taken: list[Lease] = []
    wanted = {"name": of[0], "version": of[1], "agent_id": agent_id or ""}
    for (flow_id,) in tx.all(_ORPHANS_OF, **wanted, now=tx.now, ns=ns, limit=_CANDIDATES):
        if flows.hold(tx, flow_id, ns=ns).status in WORKED_ON and (lease := _claim(tx, flow_id, worker, lease_s, ns)):
            taken.append(lease)
        if len(taken) == logged_rows.limited(limit):
            break
    return tuple(taken)
