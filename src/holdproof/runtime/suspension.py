"""Waiting inside a flow: in place, or suspended.

Rules:
- A flow that somebody called waits in place, and extends its lease meanwhile.
- One that a worker runs, or `recover`, is suspended where it would wait: it gives its lease back together with the
  moment at which it is due, and FlowSuspended leaves its function. Whoever brings what it waits for wakes it
  (`flows.wake`). It then runs again from the top, and what it did before is replayed. So a million flows that sleep
  cost no thread.
- Whether there is something to wait for is decided in the transaction that gives the lease back: nothing that is
  brought meanwhile is missed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from holdproof.db import Tx, Wait, Work, Write, ask, lock_exclusive
from holdproof.model.namespaces import MAIN
from holdproof.model.times import END, later
from holdproof.runtime import leases

T = TypeVar("T")

_IN_PLACE_S: Final = 1.0
"""Shorter waits are not worth running a flow again from the top."""


@dataclass(frozen=True, slots=True)
class WorkerLease:
    """The lease by which this worker works on a flow."""

    flow_id: str
    token: int
    lease_s: float = leases.LEASE_S
    ns: str = MAIN
    worker: str = ""
    subject: str | None = None
    """The handle of the person whose flow it is."""
    suspends: bool = False
    """Whether the flow is suspended where it would wait."""


class FlowSuspended(BaseException):
    """Leaves the function of a flow that waits: not an Exception, so that no `except Exception` keeps it.

    Never catch it: the flow was given back, and nothing more can be done in it here.
    """

    def __init__(self, flow_id: str, waits_for: str) -> None:
        super().__init__(f"flow {flow_id} waits for {waits_for}")
        self.flow_id = flow_id
        self.waits_for = waits_for


def extend(tx: Tx, lease: WorkerLease) -> None:
    """Extend the lease of a flow that is locked; LeaseLostError where it is another worker's by now."""
    leases.heartbeat(tx, lease.flow_id, lease.token, lease_s=lease.lease_s, ns=lease.ns)


class _Look(NamedTuple):
    """What a look brought: a value, that time is over, or that the flow was suspended; else the time of the look."""

    value: Any
    over: bool
    suspended: bool
    now: str


def wait(
    lease: WorkerLease,
    attempt: Callable[[Tx], T | None],
    *,
    waits_for: str,
    topic: str | None = None,
    until: str | None = None,
) -> Work[T | None]:
    """Wait until `attempt` returns something, and return that; None once the moment `until` has come.

    `attempt` is a function of a writing transaction in which the flow is locked; it returns None where there is nothing
    yet, and is asked again when `topic` (by default the flow's own) is notified.
    """
    while True:
        look = yield from ask(Write(partial(_look, lease=lease, attempt=attempt, until=until)))
        if look.suspended:
            raise FlowSuspended(lease.flow_id, waits_for)
        if look.value is not None or look.over:
            value: T | None = look.value
            return value
        # Three looks within a lease, so that waiting never loses it.
        next_beat = later(look.now, lease.lease_s / 3)
        yield Wait(topic or f"flow:{lease.flow_id}", next_beat if until is None else min(until, next_beat))


def _look(tx: Tx, lease: WorkerLease, attempt: Callable[[Tx], Any], until: str | None) -> _Look:
    lock_exclusive(tx, f"flow:{lease.flow_id}")
    # Before the look: whoever brings something writes this row too (`flows.wake`), and so comes before or after it.
    leases.hold(tx, lease.flow_id, ns=lease.ns)
    value = attempt(tx)
    over = until is not None and tx.now >= until
    # What ended the wait may have ended the flow too, and with it the lease: that is no lost lease.
    if value is not None or over:
        return _Look(value, over, False, tx.now)
    if lease.suspends and (until is None or until > later(tx.now, _IN_PLACE_S)):
        leases.suspend(tx, lease.flow_id, lease.token, due=until or END, ns=lease.ns)
        return _Look(None, False, True, tx.now)
    extend(tx, lease)
    return _Look(None, False, False, tx.now)
