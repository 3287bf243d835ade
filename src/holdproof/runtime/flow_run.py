"""A leased flow in this process: what its code has reached, what it records of itself, how it waits.

Rules:
- The code reaches steps in an order; a flow that is run again reaches what it recorded at the same places, else it is
  NonDeterminismError. Steps that run at once are numbered before the first of them starts.
- What a flow records of itself, as the moment at which it wakes up, is a step too, under a name that starts with
  `flow.`.
- Code that differs from the record can do nothing more either, whatever errors it catches.
- Where the code no longer asks for a patch (patches.py), what was recorded of it is passed over.
- What is not recorded is a matter of the flow's mode (flow_modes.py).
- After a flow was suspended nothing more can be done in it here: whatever its code tries leaves it again.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from holdproof import validation
from holdproof.db import Read, Tx, Work, Write, ask, lock_exclusive
from holdproof.errors import InvalidInputError, NonDeterminismError
from holdproof.executors.uses import IN_STEPS_OF
from holdproof.model import typed_json
from holdproof.model.times import later
from holdproof.runtime import recorded, steps, suspension
from holdproof.runtime.flow_modes import LIVE, RunMode
from holdproof.runtime.steps import Journal, StepSpec
from holdproof.runtime.suspension import FlowSuspended, WorkerLease

OWN: Final = "flow."
"""How the names of steps start that the flow itself records, as sleeping."""
PATCHED: Final = f"{OWN}patched "
"""How the names of the steps start that `patched` records."""
END_OF_CODE: Final = "the end"
"""What the code has reached when it returns, in place of a step's name."""


class Undoing(NamedTuple):
    """A finished step that can be undone."""

    name: str
    n: int
    undo: Callable[[], Any]

    @property
    def label(self) -> str:
        """The step by name and number, as `compensates` names it."""
        return f"{self.name} {self.n}"


@dataclass(slots=True, weakref_slot=True)
class FlowRun:
    """A leased flow in this process: how often each step and each approval was reached, and what there is to undo."""

    lease: WorkerLease
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    undoings: list[Undoing] = field(default_factory=list)
    journal: Journal = field(default_factory=dict)
    """The steps that were recorded before this process took the flow up, and have not been settled here."""
    unreached: dict[int, str] = field(default_factory=dict)
    """Of these, which the code has not reached again: their names, by position."""
    position: int = 0
    raw: bool = False
    """Whether the functions of steps run at the other end of a wire, and give tagged JSON."""
    promises: dict[str, str] = field(default_factory=dict)
    """The promises that the code has made so far, by id: how steps name them."""
    suspended: FlowSuspended | None = None
    """How the flow was suspended, after which nothing more can be done in it here."""
    difference: NonDeterminismError | None = None
    """How the code was found to differ from the record, after which nothing more is done either."""
    escalation: int | None = None
    """The escalation that a policy asked for before the flow begins, until it is answered."""
    mode: RunMode = LIVE
    patches: dict[str, bool] = field(default_factory=dict)
    """What `patched` answered, by the name of its step."""

    def count(self, kind: str, name: str) -> int:
        """Count one more of its name, and return its number."""
        self.counts[kind, name] += 1
        return self.counts[kind, name]

    def reach(self, name: str) -> tuple[int, int]:
        """Return number and position of the step that the code reaches now; NonDeterminismError where another was.

        What the flow records of itself is numbered like steps.
        """
        if self.suspended is not None:
            raise self.suspended
        if self.difference is not None:
            # The code kept it from leaving; what it reaches now would be run on wrong ground.
            raise self.difference
        n = self.count("step", name)
        self.position += 1
        self._pass_patches(name)
        recorded_here = self.unreached.pop(self.position, None)
        if recorded_here is None and (name, n) in self.journal:
            # Steps that ran at once may have been recorded in another order than they are reached in.
            self.unreached.pop(self.journal[name, n].value.position, None)
        elif recorded_here is not None and recorded_here != name:
            self.unreached[self.position] = recorded_here
            raise self.differs(name, recorded_here)
        elif recorded_here is None and self.unreached and min(self.unreached) < self.position:
            raise self.differs(name, self.unreached[min(self.unreached)])
        return n, self.position

    def _pass_patches(self, name: str) -> None:
        """Pass over patches that the code no longer asks for: it has the new way only, which the flow took."""
        while (recorded_here := self.unreached.get(self.position, name)) != name and recorded_here.startswith(PATCHED):
            del self.unreached[self.position]
            self.position += 1

    def differs(self, name: str, recorded_name: str) -> NonDeterminismError:
        """Return the error of code that reaches another step than was recorded."""
        place = name if name == END_OF_CODE else f"step {name}"
        self.difference = NonDeterminismError(
            f"the code reached {place} where the flow recorded step {recorded_name}",
            step=name,
            recorded=recorded_name,
            flow_id=self.lease.flow_id,
        )
        return self.difference

    def unfinished(self) -> NonDeterminismError | None:
        """Return the error of code that ends before it has reached all that was recorded; None where it has."""
        if self.difference is not None:
            return self.difference
        beyond = [name for _, name in sorted(self.unreached.items()) if not name.startswith(PATCHED)]
        return self.differs(END_OF_CODE, beyond[0]) if beyond else None

    def load(self, journal: Journal) -> None:
        """Load what was recorded before; the code will reach it again."""
        self.journal = journal
        self.unreached = {
            record.value.position: record.value.name for record in journal.values() if record.value.compensates is None
        }


def is_inside_step(run: FlowRun) -> bool:
    """Return whether this is called by the function of one of the flow's steps."""
    return (run.lease.ns, run.lease.flow_id) in IN_STEPS_OF.get()


def outside_steps(run: FlowRun, what: str) -> frozenset[tuple[str, str]]:
    """Return the flows inside one of whose steps this is called; InvalidInputError if ours is among them."""
    inside = IN_STEPS_OF.get()
    if is_inside_step(run):
        raise InvalidInputError(
            f"{what} is inside a step, which is replayed whole: move it out of the step", flow_id=run.lease.flow_id
        )
    return inside


def lock_leased(tx: Tx, lease: WorkerLease) -> None:
    """Lock the flow, and extend its lease; LeaseLostError where it is another worker's by now."""
    lock_exclusive(tx, f"flow:{lease.flow_id}")
    suspension.extend(tx, lease)


# --- time --------------------------------------------------------------------------------------------------------


def sleep(
    run: FlowRun,
    seconds: float = 0.0,
    *,
    minutes: float = 0.0,
    hours: float = 0.0,
    days: float = 0.0,
) -> Work[None]:
    """Sleep for a while, also through crashes: the moment of waking is recorded once."""
    parts = {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days}
    for name, value in parts.items():
        validation.seconds(name, value)
    total = seconds + 60 * minutes + 3600 * hours + 86_400 * days
    yield from _sleep(run, lambda tx: later(tx.now, total))


def sleep_until(run: FlowRun, moment: str) -> Work[None]:
    """Sleep until a moment, given with its time zone; one that has passed does not sleep."""
    until = validation.moment("moment", moment)
    yield from _sleep(run, lambda _: until)


def _sleep(run: FlowRun, wake_at: Callable[[Tx], str]) -> Work[None]:
    outside_steps(run, "sleeping")
    until = yield from record_own(run, "sleep", wake_at)
    # A flow that runs again because it has slept long enough needs no transaction that writes to learn that.
    if (yield from ask(Read(lambda tx: tx.now))) < until:
        yield from wait(run, lambda _: None, waits_for=f"{until}", until=until)


def record_own(run: FlowRun, name: str, value: Callable[[Tx], Any]) -> Work[Any]:
    """Return what the flow recorded here under a name of its own; or compute it in a transaction, and record it."""
    return (yield from record_reached(run, reach_own(run, name), value))


def reach_own(run: FlowRun, name: str) -> StepSpec:
    """Number the step of the flow's own that the code reaches now."""
    own = f"{OWN}{name}"
    n, position = run.reach(own)
    return StepSpec(own, n, position)


def record_reached(run: FlowRun, spec: StepSpec, value: Callable[[Tx], Any]) -> Work[Any]:
    """Return what the flow recorded in a step of its own that is numbered; or compute it, and record it."""
    earlier = run.journal.get((spec.name, spec.n))
    if earlier is not None:
        return typed_json.decode(earlier.value.result)
    value = run.mode.own(spec.name, spec.n, value)
    return (yield from ask(Write(partial(_record_own, lease=run.lease, spec=spec, value=value))))


def _record_own(tx: Tx, lease: WorkerLease, spec: StepSpec, value: Callable[[Tx], Any]) -> Any:
    lock_leased(tx, lease)
    result = value(tx)
    text = recorded.dump(typed_json.encode(result))
    columns = {"state": "DONE", "result": recorded.store(tx, text, lease.subject), "finished_at": tx.now}
    steps.add(tx, lease, spec, columns)
    # As a replay will get it.
    return typed_json.decode(recorded.parse(text))


def wait(
    run: FlowRun,
    attempt: Callable[[Tx], Any],
    *,
    waits_for: str,
    topic: str | None = None,
    until: str | None = None,
) -> Work[Any]:
    """Wait inside a flow, in place or suspended; see suspension.py."""
    if not run.mode.waits(waits_for, until):
        return None
    try:
        return (yield from suspension.wait(run.lease, attempt, waits_for=waits_for, topic=topic, until=until))
    except FlowSuspended as suspended:
        run.suspended = suspended
        raise
