"""Own steps: what a flow records of itself beside the steps of its code, as what it sent and what it received.

Rules:
- They are steps named `flow.…`, numbered like others, and replayed from the journal: each happens once, whatever
  happens to the worker.
- What is done and the step that records it are one transaction, in which the worker proves that it has the lease.
- A wait with a time limit records its deadline first, so that a flow that is run again waits no longer than the first
  run would have.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from holdproof import validation
from holdproof.db import Tx, Work, Write, ask, lock_exclusive
from holdproof.model import typed_json
from holdproof.model.flows import Step
from holdproof.model.times import later
from holdproof.runtime import flow_run, recorded, steps, suspension
from holdproof.runtime.flow_run import OWN, FlowRun, outside_steps
from holdproof.runtime.steps import StepSpec
from holdproof.runtime.suspension import WorkerLease

LONGEST_NAME: Final = 400
"""How long topics, keys and names of promises and streams are: names of steps hold them, with a word before."""


class StepOutcome(NamedTuple):
    """How an own step ended: the text of its result as a column holds it, and how it failed, if it did."""

    result: str
    error: str | None = None


class EndedStep(NamedTuple):
    """An own step that has ended: its result as tagged JSON, and how it failed, if it did."""

    result: Any
    error: str | None


def name(what: str, text: str) -> str:
    """Validate a name that becomes part of the name of a step."""
    return validation.name(what, text, most=LONGEST_NAME)


def encoded(value: Any, what: str) -> str:
    """Return the text of a value that is about to be recorded; UnrecordableError where it cannot be."""
    return recorded.dump(typed_json.encode(value, what))


def shown(run: FlowRun, value: Any) -> Any:
    """Return tagged JSON as the flow's code gets it; code at the other end of a wire decodes it there."""
    return value if run.raw else typed_json.decode(value)


def record(
    run: FlowRun, name: str, act: Callable[[Tx], Any], *, arguments: str | None = None, locks: tuple[str, ...] = ()
) -> Work[Any]:
    """Do something once, and return what it returned then; `locks` are further flows that it changes."""
    outside_steps(run, name)
    own = f"{OWN}{name}"
    n, position = run.reach(own)
    spec = StepSpec(own, n, position, arguments=arguments)
    earlier = run.journal.get((own, n))
    if earlier is not None:
        steps.check_same(run.lease, earlier.value, spec)
        return typed_json.decode(earlier.value.result)
    act = run.mode.own(own, n, act)
    return (yield from ask(Write(partial(_record, lease=run.lease, spec=spec, act=act, locks=locks))))


def _record(tx: Tx, *, lease: WorkerLease, spec: StepSpec, act: Callable[[Tx], Any], locks: tuple[str, ...]) -> Any:
    # In one order everywhere: two flows that send to each other at the same moment must not wait for each other.
    for flow_id in sorted({lease.flow_id, *locks}):
        lock_exclusive(tx, f"flow:{flow_id}")
    suspension.extend(tx, lease)
    result = act(tx)
    _add(tx, lease, spec, StepOutcome(recorded.store(tx, encoded(result, "the result"), lease.subject)))
    return result


def _add(tx: Tx, lease: WorkerLease, spec: StepSpec, outcome: StepOutcome) -> None:
    columns = {
        "state": "DONE" if outcome.error is None else "FAILED",
        "result": outcome.result,
        "error": outcome.error,
        "finished_at": tx.now,
    }
    steps.add(tx, lease, spec, columns)


def wait(
    run: FlowRun,
    name: str,
    look: Callable[[Tx], StepOutcome | None],
    *,
    waits_for: str,
    timeout_s: float | None,
    late: StepOutcome,
) -> Work[EndedStep]:
    """Wait until `look` returns how the step ended, and record that in the same transaction; `late` after the limit.

    `look` may change rows: the flow is locked, and the worker has its lease.
    """
    outside_steps(run, name)
    until = yield from _deadline(run, name, timeout_s)
    own = f"{OWN}{name}"
    n, position = run.reach(own)
    earlier = run.journal.get((own, n))
    if earlier is not None:
        return _ended(earlier.value)
    spec = StepSpec(own, n, position)
    look = _in_mode(run, own, n, look)

    def attempt(tx: Tx) -> EndedStep | None:
        # Before the look: a worker that lost its lease must not take what the next one waits for.
        suspension.extend(tx, run.lease)
        outcome = look(tx)
        if outcome is None and until is not None and tx.now >= until:
            outcome = late
        if outcome is None:
            return None
        _add(tx, run.lease, spec, outcome)
        return EndedStep(recorded.load(tx, outcome.result), outcome.error)

    ended: EndedStep | None = yield from flow_run.wait(run, attempt, waits_for=waits_for, until=until)
    assert ended is not None, "the attempt at the deadline ends the step"
    return ended


def _in_mode(
    run: FlowRun, own: str, n: int, look: Callable[[Tx], StepOutcome | None]
) -> Callable[[Tx], StepOutcome | None]:
    """Return what to look for: in a fork that simulates, what its origin got."""
    value = run.mode.own(own, n, look)
    if value is look:
        return look
    return lambda tx: StepOutcome(recorded.store(tx, encoded(value(tx), own), run.lease.subject))


def _ended(step: Step) -> EndedStep:
    return EndedStep(step.result, step.error)


def _deadline(run: FlowRun, name: str, timeout_s: float | None) -> Work[str | None]:
    """Return when a wait ends, recorded at the first run; None for one without a limit."""
    if timeout_s is None:
        return None
    limit_s = validation.seconds("timeout_s", timeout_s)
    if not limit_s:
        # A look that does not wait has no deadline that a later run could miss.
        return ""
    until: str = yield from flow_run.record_own(run, f"deadline {name}", lambda tx: later(tx.now, limit_s))
    return until
