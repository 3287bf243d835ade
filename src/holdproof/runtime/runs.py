"""A flow as a block of code: entered, worked in step by step, left.

Rules:
- Entering opens the flow and leases it; entering again (`resume`) leases one whose worker is gone.
- Leaving the block completes the flow. An exception fails it: its steps are undone in reverse order, each by a step of
  its own. Without anything to undo the flow is FAILED, else COMPENSATED. A flow that is being undone is undone to the
  end, however its block is left.
- An undoing that fails leaves the flow FAILED and dirty, with its locks. So does a block that was entered again and
  failed before it reached all that is to be undone, or one that left such a step in doubt (a time limit, a parallel
  step that failed): then nothing is undone out of order.
- A flow that was dirty already is not clean because its steps are undone: it is FAILED, and waits for a compensation.
- A block that left a step in doubt and goes on all the same (it caught the time limit) completes, and an audit event
  names the steps in doubt.
- An undoing is named after its step, so no other step's name starts with `undo `.
- A step contains no steps and no approvals of its own flow: when it is replayed they would not be counted, and the next
  of their name would get their results.
- An approval is requested once: a block that is entered again waits for its answer, or has it.
- A worker that lost its lease changes nothing more; one that is killed or cancelled leaves the flow to be recovered.
"""

from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

from holdproof import validation
from holdproof.db import Read, Refused, Tx, Work, Write, ask, lock_exclusive
from holdproof.errors import (
    CompensationFailedError,
    ContentionTimeoutError,
    FlowEndedError,
    InvalidInputError,
    LeaseLostError,
)
from holdproof.model.coordination import Escalation, Lock
from holdproof.model.flows import TERMINAL, UNDOABLE, Flow, is_legal
from holdproof.model.namespaces import MAIN
from holdproof.runtime import audit, calls, escalations, flows, inbox, leases, locks, sagas, steps
from holdproof.runtime.calls import FunctionCall
from holdproof.runtime.steps import OnUnknown, StepSpec, WorkerLease

_UNDO: Final = "undo "
_LONGEST_NUMBER: Final = " 999999"
"""The number of a step, at its longest."""
_IN_STEPS_OF: Final[ContextVar[frozenset[tuple[str, str]]]] = ContextVar("holdproof_steps", default=frozenset())
"""The flows, by namespace and id, inside one of whose steps the caller is."""


class _Undoing(NamedTuple):
    """A finished step that can be undone."""

    name: str
    n: int
    undo: Callable[[], Any]

    @property
    def label(self) -> str:
        """The step by name and number, as `compensates` names it."""
        return f"{self.name} {self.n}"


@dataclass(slots=True)
class FlowRun:
    """A leased flow in this process: how often each step and each approval was reached, and what there is to undo."""

    lease: WorkerLease
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    undoings: list[_Undoing] = field(default_factory=list)

    def count(self, kind: str, name: str) -> int:
        """Count one more of its name, and return its number."""
        self.counts[kind, name] += 1
        return self.counts[kind, name]


def enter(
    agent_id: str | None = None,
    *,
    resume: str | None = None,
    worker: str | None = None,
    lease_s: float = leases.LEASE_S,
    ns: str = MAIN,
    call: FunctionCall | None = None,
    **opening: Any,
) -> Work[FlowRun]:
    """Open a flow for an agent, or resume one; `opening` is what `flows.start` takes.

    `call` is the call of a registered function that a new flow runs.
    """
    if (agent_id is None) == (resume is None):
        raise InvalidInputError("give either agent_id to open a flow or resume to continue one", field="agent_id")

    def open_or_resume(tx: Tx) -> FlowRun:
        flow_id = resume if agent_id is None else flows.start(tx, agent_id, ns=ns, **opening).flow_id
        assert flow_id is not None
        flow = flows.lock(tx, flow_id, ns=ns)
        if call is not None:
            calls.record(tx, flow_id, call, ns=ns)
        if flow.status == "CREATED":
            flows.transition(tx, flow_id, "RUNNING", ns=ns)
        lease = leases.lease(tx, flow_id, worker or tx.new_id(), lease_s=lease_s, ns=ns)
        return FlowRun(WorkerLease(flow_id, lease.token, lease_s, ns))

    return (yield from ask(Write(open_or_resume)))


def step(
    run: FlowRun,
    name: str,
    fn: Callable[..., Any],
    /,
    *args: Any,
    compensate: Callable[[Any], Any] | None = None,
    on_unknown: OnUnknown = "ask",
    **kwargs: Any,
) -> Work[Any]:
    """Run a step once, whatever happens, and return its result; `compensate` gets the result if it is to be undone.

    `on_unknown` is "ask", "retry" or "fail": what to do if a worker that is gone started it and never finished.
    """
    _validate_name(name, undoable=compensate is not None)
    outside = _outside_steps(run, f"step {name}")
    n = run.count("step", name)
    spec = StepSpec(name, n, undo=compensate is not None, on_unknown=on_unknown)
    # Set for the function that the step calls, which runs in this context.
    _IN_STEPS_OF.set(outside | {(run.lease.ns, run.lease.flow_id)})
    try:
        result = yield from steps.step(run.lease, spec, partial(fn, *args, **kwargs))
    finally:
        _IN_STEPS_OF.set(outside)
    if compensate is not None:
        # Appended after the step: one that failed has nothing to undo.
        run.undoings.append(_Undoing(name, n, partial(compensate, result)))
    return result


def _outside_steps(run: FlowRun, what: str) -> frozenset[tuple[str, str]]:
    """Return the flows inside one of whose steps this is called; InvalidInputError if ours is among them."""
    inside = _IN_STEPS_OF.get()
    if (run.lease.ns, run.lease.flow_id) in inside:
        raise InvalidInputError(
            f"{what} is inside a step, which is replayed whole: move it out of the step", flow_id=run.lease.flow_id
        )
    return inside


def _validate_name(name: str, *, undoable: bool) -> None:
    """Refuse a name now whose undoing would have a name that is too long, or one that undoings have."""
    if validation.name("step", name).startswith(_UNDO):
        raise InvalidInputError(f"names that start with {_UNDO!r} are reserved for steps that undo others", step=name)
    if undoable:
        validation.name("a step and its undoing together", f"{_UNDO}{name}{_LONGEST_NUMBER}")


def lock(
    run: FlowRun, /, resources: dict[str, float], *, timeout_s: float = 5.0, **options: Any
) -> Work[tuple[Lock, ...]]:
    """Lock resources until the flow ends; options are those of `locks.acquire`. Waiting extends the lease."""
    # Attempts three times within a lease, so that waiting never loses it.
    lease = run.lease
    attempt = partial(_try_lock, lease=lease, resources=resources, options=options)
    return (yield from locks.acquire_with_retry(attempt, timeout_s=timeout_s, every_s=lease.lease_s / 3, ns=lease.ns))


def _try_lock(
    tx: Tx, lease: WorkerLease, resources: dict[str, float], options: dict[str, Any]
) -> tuple[Lock, ...] | Refused:
    """Lock the resources, if this worker still has the lease; a refusal is committed, so that it is a heartbeat too."""
    _lock_leased(tx, lease)
    try:
        return locks.try_acquire(tx, lease.flow_id, resources, ns=lease.ns, **options)
    except ContentionTimeoutError as error:
        return Refused(error)


def approve(run: FlowRun, /, reason: str, **options: Any) -> Work[Escalation]:
    """Request a person's approval and wait for it; options are those of `escalations.request`.

    Raises FlowEndedError unless they approve.
    """
    _outside_steps(run, "an approval")
    lease = run.lease
    n = run.count("approve", reason)
    escalation = yield from ask(Write(lambda tx: _requested(tx, lease, reason, n, options)))
    assert not isinstance(escalation, Refused), "the executor raises a refusal"
    answer = yield from steps.wait_for_decision(lease, escalation.id)
    if not answer.approved:
        raise FlowEndedError(
            f"{answer.outcome} by {answer.resolved_by}: {answer.comment or reason}",
            flow_id=lease.flow_id,
            escalation=answer.id,
        )
    # The answer moved the flow back to RUNNING; the lease may be nearly over by now.
    yield from beat(run)
    return answer


def _requested(tx: Tx, lease: WorkerLease, reason: str, n: int, options: dict[str, Any]) -> Escalation | Refused:
    """Return the escalation that a worker before us requested, or request it."""
    flows.lock(tx, lease.flow_id, ns=lease.ns)
    earlier = inbox.nth(tx, lease.flow_id, reason, n, ns=lease.ns)
    if earlier is not None:
        return earlier
    steps.extend(tx, lease)
    return escalations.request(tx, lease.flow_id, reason=reason, ns=lease.ns, **options)


def beat(run: FlowRun) -> Work[None]:
    """Extend the lease between steps that are far apart."""
    yield from ask(Write(lambda tx: steps.extend(tx, run.lease)))


# --- leaving -----------------------------------------------------------------------------------------------------


def complete(run: FlowRun) -> Work[Flow]:
    """Complete the flow; one that is being undone is undone to the end, and FlowEndedError raised."""
    flow = yield from ask(Write(partial(_complete, lease=run.lease)))
    if flow.status != "COMPENSATING":
        return flow
    flow = yield from _undo(run, "it was being undone")
    raise FlowEndedError(f"flow {flow.flow_id} was being undone, and is {flow.status}", flow_id=flow.flow_id)


def _complete(tx: Tx, lease: WorkerLease) -> Flow:
    flow = flows.lock(tx, lease.flow_id, ns=lease.ns)
    if flow.ended or flow.status == "COMPENSATING":  # the block ended it itself, or it did not fail a second time
        return flow
    leases.heartbeat(tx, lease.flow_id, lease.token, ns=lease.ns)
    in_doubt = [f"{name} {n}" for name, n in flows.in_doubt(tx, lease.flow_id, ns=lease.ns)]
    if in_doubt:
        audit.record(tx, lease.flow_id, "STEPS_UNFINISHED", severity="WARNING", detail={"steps": in_doubt}, ns=lease.ns)
    return flows.transition(tx, lease.flow_id, "COMPLETED", ns=lease.ns)


def abort(run: FlowRun, error: Exception) -> Work[Flow]:
    """Fail the flow because of an exception: undo its steps, in reverse order."""
    if _is_lost(run, error):
        return (yield from ask(Read(lambda tx: flows.get(tx, run.lease.flow_id, ns=run.lease.ns))))
    return (yield from _undo(run, validation.error_text(error)))


def _is_lost(run: FlowRun, error: Exception) -> bool:
    """Whether it is this flow's lease that was lost, and not that of another flow, or key, that its functions use."""
    return isinstance(error, LeaseLostError) and error.fields.get("flow_id") == run.lease.flow_id


class _Compensation(NamedTuple):
    """A flow about to be undone: its lease, and the steps that this run cannot undo."""

    flow: Flow
    lease: WorkerLease
    unreached: list[str]


def _undo(run: FlowRun, reason: str) -> Work[Flow]:
    compensation = yield from ask(Write(partial(_begin_undoing, run=run, reason=reason)))
    if compensation.flow.ended:
        return compensation.flow
    lease = compensation.lease
    run.lease = lease
    if compensation.unreached:
        yield from ask(Write(partial(_mark_dirty, lease=lease, to_undo=compensation.unreached, message=reason)))
        last = compensation.unreached[-1]
        raise CompensationFailedError(f"the block failed without knowing how {last} ended", flow_id=lease.flow_id)
    while run.undoings:
        undoing = run.undoings[-1]
        spec = StepSpec(f"{_UNDO}{undoing.name}", undoing.n, compensates=undoing.label)
        try:
            yield from steps.step(lease, spec, undoing.undo)
        except Exception as error:
            if _is_lost(run, error):
                raise
            to_undo = [each.label for each in run.undoings]
            message = validation.error_text(error)
            yield from ask(Write(partial(_mark_dirty, lease=lease, to_undo=to_undo, message=message)))
            raise CompensationFailedError(f"step {undoing.name} could not be undone", flow_id=lease.flow_id) from error
        run.undoings.pop()
    return (yield from ask(Write(partial(_end_undoing, lease=lease, reason=reason))))


def _begin_undoing(tx: Tx, run: FlowRun, reason: str) -> _Compensation:
    """Move the flow to COMPENSATING and lease it; or to its end, where there is nothing to undo."""
    lease = run.lease
    reached = {(each.name, each.n) for each in run.undoings}
    flow = flows.lock(tx, lease.flow_id, ns=lease.ns)
    to_undo = flows.to_undo(tx, lease.flow_id, ns=lease.ns)
    if flow.status in TERMINAL - UNDOABLE or (flow.ended and not to_undo):
        return _Compensation(flow, lease, [])
    in_doubt = flows.in_doubt(tx, lease.flow_id, undo=True, ns=lease.ns)
    if flow.status != "COMPENSATING":
        target = "COMPENSATING" if to_undo or reached or in_doubt else "FAILED"
        flow = _fail(tx, lease, flow, target, reason)
    beyond = [step for step in to_undo if step not in reached]
    # Nothing is undone out of order: one step that this run cannot undo leaves them all to a compensation.
    unreached = [f"{name} {n}" for name, n in (*to_undo, *in_doubt)] if beyond or in_doubt else []
    return _Compensation(flow, lease if flow.ended else _lease_again(tx, lease), unreached)


def _fail(tx: Tx, lease: WorkerLease, flow: Flow, to: str, reason: str) -> Flow:
    """Fail a flow that has not failed yet, or start to undo it."""
    if not flow.ended:
        steps.extend(tx, lease)
    if not is_legal(flow.status, to):  # it waits for an answer that nobody needs any more
        flows.transition(tx, lease.flow_id, "FAILED", reason=reason, ns=lease.ns)
    return flows.transition(tx, lease.flow_id, to, reason=reason, ns=lease.ns)


def _lease_again(tx: Tx, lease: WorkerLease) -> WorkerLease:
    """Extend the lease, or lease the flow again if its end took the lease away and no other worker came between."""
    try:
        steps.extend(tx, lease)
    except LeaseLostError:
        renewed = leases.renew(tx, lease.flow_id, lease.token, lease_s=lease.lease_s, ns=lease.ns)
        return replace(lease, token=renewed.token)
    return lease


def _end_undoing(tx: Tx, lease: WorkerLease, reason: str) -> Flow:
    """End a flow whose steps are all undone; one that is dirty for another reason is not clean by that."""
    _lock_leased(tx, lease)
    to = "FAILED" if sagas.is_dirty(tx, lease.flow_id, ns=lease.ns) else "COMPENSATED"
    return flows.transition(tx, lease.flow_id, to, reason=reason, ns=lease.ns)


def _lock_leased(tx: Tx, lease: WorkerLease) -> None:
    """Lock the flow, and extend its lease; LeaseLostError where it is another worker's by now."""
    lock_exclusive(tx, f"flow:{lease.flow_id}")
    steps.extend(tx, lease)


def _mark_dirty(tx: Tx, lease: WorkerLease, to_undo: list[str], message: str) -> None:
    _lock_leased(tx, lease)
    sagas.mark_dirty(tx, lease.flow_id, to_undo[-1], {"to_undo": to_undo, "error": message}, ns=lease.ns)
    flows.transition(tx, lease.flow_id, "FAILED", reason="compensation failed", ns=lease.ns)
