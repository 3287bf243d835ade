"""Waiting inside a flow: in place, or suspended.

Rules:
- A flow that somebody called waits in place, and extends its lease meanwhile.
- One that a worker runs, or `recover`, is suspended where it would wait: it gives its lease back together with the
  moment at which it is due, and FlowSuspended leaves its function. Whoever brings what it waits for wakes it
  (`flows.wake`). It then runs again from the top, and what it did before is replayed. So a million flows that sleep
  cost no thread.
- Whether there is something to wait for is decided in the transaction that gives the lease back: nothing that is
  brought meanwhile is missed.
- Of several works at once (`gather`) the one that waits leaves, and the others go on: the lease is given back once all
  of them have ended or wait (`suspend_all`), until the first moment at which one of them is due.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from holdproof.db import Tx, Wait, Work, Write, ask, lock_exclusive
from holdproof.model.defaults import LEASE_S
from holdproof.model.namespaces import MAIN
from holdproof.model.times import END, later
from holdproof.runtime import flows, leases

T = TypeVar("T")

_IN_PLACE_S: Final = 1.0
"""Shorter waits are not worth running a flow again from the top."""


@dataclass(frozen=True, slots=True)
class WorkerLease:
    """The lease by which this worker works on a flow."""

    flow_id: str
    token: int
    lease_s: float = LEASE_S
    ns: str = MAIN
    worker: str = ""
    subject: str | None = None
    """The handle of the person whose flow it is."""
    suspends: bool = False
    """Whether the flow is suspended where it would wait."""
    gathers: bool = False
    """Whether several works of the flow are under way: one that waits leaves the lease to the others."""
    agent_id: str = ""
    """The agent whose flow it is, which never changes; empty where it was not looked up."""


class FlowSuspended(BaseException):
    """Leaves the function of a flow that waits: not an Exception, so that no `except Exception` keeps it.

    Never catch it: the flow was given back, and nothing more can be done in it here.
    """

    def __init__(
        self,
        flow_id: str,
        waits_for: str,
        attempt: Callable[[Tx], Any] | None = None,
        until: str | None = None,
    ) -> None:
        super().__init__(f"flow {flow_id} waits for {waits_for}")
        self.flow_id = flow_id
        self.waits_for = waits_for
        self.attempt = attempt
        """Returns what the flow waits for, once that is there; None where only time ends the wait."""
        self.until = until


def extend(tx: Tx, lease: WorkerLease, *, waits_for: str | None = None) -> None:
    """Extend the lease of a flow that is locked, and say what it waits for, if for anything.

    Raises LeaseLostError where it is another worker's by now.
    """
    leases.keep(tx, lease.flow_id, lease.token, lease_s=lease.lease_s, waits_for=waits_for, ns=lease.ns)


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
        look = yield from ask(Write(partial(_look, lease=lease, attempt=attempt, waits_for=waits_for, until=until)))
        if look.suspended:
            raise FlowSuspended(lease.flow_id, waits_for, attempt, until)
        if look.value is not None or look.over:
            value: T | None = look.value
            return value
        # Three looks within a lease, so that waiting never loses it.
        next_beat = later(look.now, lease.lease_s / 3)
        yield Wait(topic or f"flow:{lease.flow_id}", next_beat if until is None else min(until, next_beat))


def _look(tx: Tx, lease: WorkerLease, attempt: Callable[[Tx], Any], waits_for: str, until: str | None) -> _Look:
    lock_exclusive(tx, f"flow:{lease.flow_id}")
    # Before the look: whoever brings something writes this row too (`flows.wake`), and so comes before or after it.
    leases.hold(tx, lease.flow_id, ns=lease.ns)
    value = attempt(tx)
    over = until is not None and tx.now >= until
    # What ended the wait may have ended the flow too, and with it the lease: that is no lost lease.
    if value is not None or over:
        return _Look(value, over, False, tx.now)
    if lease.suspends and (until is None or until > later(tx.now, _IN_PLACE_S)):
        if lease.gathers:
            # The works beside this one still need the lease.
            extend(tx, lease, waits_for=waits_for)
        else:
            due = until or END
            leases.suspend(tx, lease.flow_id, lease.token, due=due, waits_for=waits_for, ns=lease.ns)
        return _Look(None, False, True, tx.now)
    extend(tx, lease, waits_for=waits_for)
    return _Look(None, False, False, tx.now)


def suspend_all(tx: Tx, lease: WorkerLease, waits: Sequence[FlowSuspended]) -> None:
    """Give the lease of a flow back whose works all wait: until one of them is due, or at once if one is by now."""
    lock_exclusive(tx, f"flow:{lease.flow_id}")
    leases.hold(tx, lease.flow_id, ns=lease.ns)
    due = min((wait.until for wait in waits if wait.until is not None), default=END)
    # Brought after the work that waits for it looked, and before this transaction: nobody would wake the flow again.
    if any(wait.attempt is not None and wait.attempt(tx) is not None for wait in waits):
        due = tx.now
    named = ", ".join(dict.fromkeys(wait.waits_for for wait in waits))
    leases.suspend(tx, lease.flow_id, lease.token, due=due, waits_for=named, ns=lease.ns)
    if due <= tx.now:
        tx.notify(flows.tasks_topic(lease.ns))
