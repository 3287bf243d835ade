"""Locks of running flows: acquired as by anybody, and each wait for one is said in the flow's record.

Rules:
- A released lock leaves no row, so a wait leaves two audit events: when it began, with who held the lock, and when it
  ended, acquired or given up. A lock that is free leaves none.
- A wait that ended with its worker has no end of its own: the next worker begins another one.
"""

from functools import partial
from typing import Any

from holdproof.crypto import canonical
from holdproof.db import Refused, Tx, Work, Write, ask, sql
from holdproof.errors import ContentionTimeoutError
from holdproof.evidence import leaves
from holdproof.model.coordination import Lock
from holdproof.model.flows import LOCK, LOCK_ACQUIRED, LOCK_AWAITED, LOCK_GIVEN_UP
from holdproof.runtime import audit, locks, suspension
from holdproof.runtime.flow_run import FlowRun, lock_leased
from holdproof.runtime.suspension import WorkerLease


def lock(
    run: FlowRun, /, resources: dict[str, float], *, timeout_s: float = 5.0, **options: Any
) -> Work[tuple[Lock, ...]]:
    """Lock resources until the flow ends; options are those of `locks.acquire`. Waiting extends the lease."""
    lease = run.lease
    if run.mode.offline:
        # What was held is not recorded; nobody is kept from anything here.
        amounts = resources.items()
        return tuple(Lock(name, lease.flow_id, amount, "", None, None, 0, lease.ns) for name, amount in amounts)
    # Attempts three times within a lease, so that waiting never loses it.
    attempt = partial(_try_lock, lease=lease, resources=resources, options=options, waits=timeout_s > 0)
    try:
        return (
            yield from locks.acquire_with_retry(attempt, timeout_s=timeout_s, every_s=lease.lease_s / 3, ns=lease.ns)
        )
    except ContentionTimeoutError:
        if timeout_s > 0:
            yield from ask(Write(partial(_give_up, lease=lease)))
        raise


def _try_lock(
    tx: Tx, lease: WorkerLease, resources: dict[str, float], options: dict[str, Any], waits: bool
) -> tuple[Lock, ...] | Refused:
    """Lock the resources, if this worker still has the lease; a refusal is committed, so that it is a heartbeat too."""
    awaited = _awaited(tx, lease)
    lock_leased(tx, lease)
    try:
        acquired = locks.try_acquire(tx, lease.flow_id, resources, ns=lease.ns, **options)
    except ContentionTimeoutError as error:
        resource = str(error.fields["resource"])
        if waits:
            suspension.extend(tx, lease, waits_for=f"{LOCK}{resource}")
            if awaited is None:
                _note(tx, lease, LOCK_AWAITED, {"lock": resource, "holder": str(error.fields["holder"])})
        return Refused(error)
    if awaited is not None:
        _note(tx, lease, LOCK_ACQUIRED, {"lock": awaited})
    return acquired


def _give_up(tx: Tx, lease: WorkerLease) -> None:
    """Say that the wait is over, and that the flow waits for nothing."""
    awaited = _awaited(tx, lease)
    lock_leased(tx, lease)
    if awaited is not None:
        _note(tx, lease, LOCK_GIVEN_UP, {"lock": awaited})


_WAITS_FOR = sql("SELECT waits_for FROM flow_leases WHERE dfid = :dfid AND token = :token AND ns = :ns")


def _awaited(tx: Tx, lease: WorkerLease) -> str | None:
    """Return the lock that the flow waits for; None where it waits for none."""
    row = tx.one(_WAITS_FOR, dfid=lease.flow_id, token=lease.token, ns=lease.ns)
    (waits_for,) = row or (None,)
    return waits_for.removeprefix(LOCK) if waits_for and waits_for.startswith(LOCK) else None


def _note(tx: Tx, lease: WorkerLease, event_type: str, detail: dict[str, str]) -> None:
    columns = {"event_type": event_type, "severity": "INFO", "step_id": "", "state": "", "correlation_id": None}
    columns |= {"detail_json": canonical.dump_text(detail)}
    # Not sealed: names of resources are nobody's, and a flow also waits where its person was erased.
    with leaves.consequences(tx):
        audit.write(tx, lease.flow_id, columns, ns=lease.ns, sealed=False)
