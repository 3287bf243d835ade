"""Locks of running flows: acquired as by anybody, and each wait for one is said in the flow's record.

Rules:
- A released lock leaves no row, so a wait leaves two audit events: when it began, with who held the lock, and when it
  ended, acquired or given up. A lock that is free leaves none.
- A call says the ends of its own waits and of no other: works of one flow may wait at once, each for another lock, and
  a call for several locks may find now this one taken and now that one.
- A wait that ended with its worker, or was cancelled, has no end of its own: whoever waits anew begins another one.
"""

from functools import partial
from typing import Any

from holdproof import validation
from holdproof.crypto import canonical
from holdproof.db import Refused, Tx, Work, Write, ask
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
    is_patient = validation.seconds("timeout_s", timeout_s) > 0
    awaited: list[str] = []

    def attempt(tx: Tx) -> tuple[Lock, ...] | Refused:
        return _try_lock(tx, lease, resources, options, awaited if is_patient else None)

    def remember(refusal: ContentionTimeoutError) -> None:
        # Once its entry is committed, and not within the attempt: that may run several times.
        resource = str(refusal.fields["resource"])
        if resource not in awaited:
            awaited.append(resource)

    # Attempts three times within a lease, so that waiting never loses it.
    every_s = lease.lease_s / 3
    try:
        return (
            yield from locks.acquire_with_retry(
                attempt, timeout_s=timeout_s, every_s=every_s, on_refusal=remember, ns=lease.ns
            )
        )
    except ContentionTimeoutError:
        if is_patient:
            yield from ask(Write(partial(_give_up, lease=lease, awaited=awaited)))
        raise


def _try_lock(
    tx: Tx, lease: WorkerLease, resources: dict[str, float], options: dict[str, Any], awaited: list[str] | None
) -> tuple[Lock, ...] | Refused:
    """Lock the resources, if this worker still has the lease; a refusal is committed, so that it is a heartbeat too.

    `awaited` are those that this call is known to wait for; None where it does not wait.
    """
    lock_leased(tx, lease)
    try:
        acquired = locks.try_acquire(tx, lease.flow_id, resources, ns=lease.ns, **options)
    except ContentionTimeoutError as error:
        resource = str(error.fields["resource"])
        if awaited is not None:
            suspension.extend(tx, lease, waits_for=f"{LOCK}{resource}")
            if resource not in awaited:
                _note(tx, lease, LOCK_AWAITED, {"lock": resource, "holder": str(error.fields["holder"])})
        return Refused(error)
    for resource in awaited or ():
        _note(tx, lease, LOCK_ACQUIRED, {"lock": resource})
    return acquired


def _give_up(tx: Tx, lease: WorkerLease, awaited: list[str]) -> None:
    """Say that the wait is over, and that the flow waits for nothing."""
    lock_leased(tx, lease)
    for resource in awaited:
        _note(tx, lease, LOCK_GIVEN_UP, {"lock": resource})


def _note(tx: Tx, lease: WorkerLease, event_type: str, detail: dict[str, str]) -> None:
    columns = {"event_type": event_type, "severity": "INFO", "step_id": "", "state": "", "correlation_id": None}
    columns |= {"detail_json": canonical.dump_text(detail)}
    # Not sealed: names of resources are nobody's, and a flow also waits where its person was erased.
    with leaves.consequences(tx):
        audit.write(tx, lease.flow_id, columns, ns=lease.ns, sealed=False)
