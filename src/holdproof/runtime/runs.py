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
- An undoing is named after its step, so no other step's name starts with `undo `; nor with `flow.`, as sleeping does.
- A step contains no steps and no approvals of its own flow: when it is replayed they would not be counted, and the next
  of their name would get their results.
- An approval is requested once: a block that is entered again waits for its answer, or has it.
- A worker that lost its lease changes nothing more; one that is killed or cancelled leaves the flow to be recovered.
- A block that is entered again meets the steps it recorded (its journal), compared with their entries in the log. Code
  that does another thing than was recorded stops there, as does a record that was edited: nothing is undone or run, and
  the flow is left as it is.
- Steps that run at once (`gather`, `map`) are numbered before the first of them starts, in the order they are passed.
"""

from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from holdproof import validation
from holdproof.content import encryption
from holdproof.db import Read, Refused, Tx, Work, Write, ask, lock_exclusive
from holdproof.errors import (
    CompensationFailedError,
    FlowEndedError,
    InvalidInputError,
    LeaseLostError,
    TamperedError,
)
from holdproof.model.coordination import Escalation
from holdproof.model.defaults import LEASE_S
from holdproof.model.flows import TERMINAL, UNDOABLE, Flow, is_legal
from holdproof.model.namespaces import MAIN
from holdproof.model.times import END, later
from holdproof.runtime import (
    audit,
    autocreate,
    calls,
    escalations,
    flows,
    forks,
    inbox,
    leases,
    policy_decisions,
    recorded,
    sagas,
    step_runs,
    steps,
    suspension,
    undoable,
)
from holdproof.runtime.calls import CallSpec
from holdproof.runtime.flow_run import FlowRun, lock_leased, outside_steps
from holdproof.runtime.flow_steps import UNDO
from holdproof.runtime.steps import StepSpec
from holdproof.runtime.suspension import FlowSuspended, WorkerLease

_STOPPED_S: Final = 300.0
"""When a flow whose code did not match its record is offered to workers again."""


# --- entering ----------------------------------------------------------------------------------------------------


class EarlierFlow(NamedTuple):
    """A flow that has the id which a call asks for, with the same inputs."""

    flow: Flow


def enter(
    agent_id: str | None = None,
    *,
    resume: str | None = None,
    worker: str | None = None,
    lease_s: float = LEASE_S,
    ns: str = MAIN,
    **opening: Any,
) -> Work[FlowRun]:
    """Open a flow for an agent, or resume one; `opening` is what `flows.start` takes."""
    if (agent_id is None) == (resume is None):
        raise InvalidInputError("give either agent_id to open a flow or resume to continue one", field="agent_id")

    def open_or_resume(tx: Tx) -> FlowRun:
        if agent_id is None:
            assert resume is not None, "checked above"
            flow = flows.lock(tx, resume, ns=ns)
        else:
            flow = flows.start(tx, agent_id, ns=ns, **opening)
        return take_up(tx, flow, worker=worker, lease_s=lease_s, loads=agent_id is None)

    run = yield from ask(Write(open_or_resume))
    yield from begin(run)
    return run


def begin(run: FlowRun) -> Work[None]:
    """Wait for the answer that a policy asked for before the flow begins; FlowEndedError unless it is approved."""
    if run.escalation is None:
        return
    answer = yield from step_runs.wait_for_decision(run.lease, run.escalation)
    run.escalation = None
    _require_approval(answer, run.lease, "a policy asked before it began")
    yield from beat(run)


def _require_approval(answer: Escalation, lease: WorkerLease, reason: str) -> None:
    if not answer.approved:
        raise FlowEndedError(
            f"{answer.outcome} by {answer.resolved_by}: {answer.comment or reason}",
            flow_id=lease.flow_id,
            escalation=answer.id,
        )


def take_up(tx: Tx, flow: Flow, *, worker: str | None, lease_s: float, loads: bool, suspends: bool = False) -> FlowRun:
    """Lease a flow, start it if it is new, and load what it recorded before."""
    lock_exclusive(tx, f"flow:{flow.flow_id}")
    if flow.status == "CREATED":
        flows.transition(tx, flow.flow_id, "RUNNING", ns=flow.ns)
    name = worker or tx.new_id()
    lease = leases.lease(tx, flow.flow_id, name, lease_s=lease_s, ns=flow.ns)
    run = leased_run(tx, flow, lease.token, worker=name, lease_s=lease_s, loads=loads, suspends=suspends)
    if flow.status == "WAITING_ESCALATION":
        # Its inputs are those that the policy asked about: they are recorded with the flow, and never change.
        question = policy_decisions.asked(tx, flow.flow_id, "flow.start", flow.flow_type, 1, ns=flow.ns)
        run.escalation = None if question is None else question.escalation
    return run


def leased_run(
    tx: Tx, flow: Flow, token: int, *, worker: str, lease_s: float, loads: bool = True, suspends: bool = False
) -> FlowRun:
    """Return a flow that is leased already, with what it recorded before.

    Raises TamperedError where that was edited, and ErasedError where it was erased with its person.
    """
    if flow.subject is not None:
        encryption.check_alive(tx, flow.subject)
    lease = WorkerLease(flow.flow_id, token, lease_s, flow.ns, worker, flow.subject, suspends, agent_id=flow.agent_id)
    run = FlowRun(lease)
    if loads:
        journal, run.mode = forks.journal(tx, flow.flow_id, ns=flow.ns)
        run.load(journal)
    return run


def enter_call(
    agent_id: str | None,
    call: CallSpec,
    *,
    flow_id: str | None = None,
    worker: str | None = None,
    lease_s: float = LEASE_S,
    strict: bool = False,
    ns: str = MAIN,
    **opening: Any,
) -> Work[FlowRun | EarlierFlow]:
    """Open a flow that runs a registered function; or return the flow that a call with this id opened before.

    With `strict` its agent is not registered for it: NotFoundError where nobody has.
    """
    if agent_id is None:
        raise InvalidInputError("name the agent: @store.flow(agent=…), or opening(agent=…)", field="agent")

    def open_flow(tx: Tx) -> FlowRun | EarlierFlow:
        flow = open_call(tx, agent_id, call, flow_id=flow_id, strict=strict, ns=ns, **opening)
        if isinstance(flow, EarlierFlow):
            return flow
        return take_up(tx, flow, worker=worker, lease_s=lease_s, loads=False)

    run = yield from ask(Write(open_flow))
    if isinstance(run, FlowRun):
        yield from begin(run)
    return run


def open_call(
    tx: Tx, agent_id: str, call: CallSpec, *, flow_id: str | None = None, strict: bool = False, ns: str, **opening: Any
) -> Flow | EarlierFlow:
    """Write the flow of a call, and the call; or return the flow that has this id, if it was called the same way."""
    if flow_id is not None:
        lock_exclusive(tx, f"flow:{validation.name('flow_id', flow_id)}")
        existing = calls.find(tx, flow_id, ns=ns)
        if existing is not None:
            earlier = flows.get(tx, flow_id, ns=ns)
            calls.check_same(tx, earlier, existing, call)
            return EarlierFlow(earlier)
    # Whoever may run the code may name its agents; contracts and versions are for `agents.register`.
    if not strict:
        autocreate.agent(tx, agent_id, ns=ns)
    flow = flows.open_flow(
        tx,
        agent_id,
        flow_id=flow_id,
        flow_type=call.name,
        flow_version=call.version,
        inputs=call.arguments,
        function=call.function,
        ns=ns,
        **opening,
    )
    calls.record(tx, flow, call)
    return flow


# --- approvals ---------------------------------------------------------------------------------------------------


def approve(run: FlowRun, /, reason: str, **options: Any) -> Work[Escalation]:
    """Request a person's approval and wait for it; options are those of `escalations.request`.

    Raises FlowEndedError unless they approve.
    """
    outside_steps(run, "an approval")
    lease = run.lease
    n = run.count("approve", reason)
    if run.suspended is not None:
        raise run.suspended
    answer = run.mode.answer(reason, n, run.position)
    if answer is None:
        answer = yield from _ask_approval(run, reason, n, options)
    _require_approval(answer, lease, reason)
    return answer


def _ask_approval(run: FlowRun, reason: str, n: int, options: dict[str, Any]) -> Work[Escalation]:
    """Request an approval, or find it requested, and wait for the answer."""
    lease = run.lease
    escalation = yield from ask(Write(lambda tx: _requested(tx, lease, reason, n, options)))
    assert not isinstance(escalation, Refused), "the executor raises a refusal"
    try:
        answer = yield from step_runs.wait_for_decision(lease, escalation.id)
    except FlowSuspended as suspended:
        run.suspended = suspended
        raise
    if answer.approved:
        # The answer moved the flow back to RUNNING; the lease may be nearly over by now.
        yield from beat(run)
    return answer


def _requested(tx: Tx, lease: WorkerLease, reason: str, n: int, options: dict[str, Any]) -> Escalation | Refused:
    """Return the escalation that a worker before us requested, or request it."""
    flows.lock(tx, lease.flow_id, ns=lease.ns)
    earlier = inbox.nth(tx, lease.flow_id, reason, n, ns=lease.ns)
    if earlier is not None:
        return earlier
    suspension.extend(tx, lease)
    return escalations.request(tx, lease.flow_id, reason=reason, ns=lease.ns, **options)


def beat(run: FlowRun) -> Work[None]:
    """Extend the lease between steps that are far apart."""
    if run.mode.offline:
        return
    yield from ask(Write(lambda tx: suspension.extend(tx, run.lease)))


# --- leaving -----------------------------------------------------------------------------------------------------


def complete(run: FlowRun, result: str | None = None) -> Work[Flow]:
    """Complete the flow; one that is being undone is undone to the end, and FlowEndedError raised.

    `result` is the text of what the flow's function returned. A flow whose code left out what it recorded is left as it
    is: NonDeterminismError.
    """
    flow = yield from ask(Write(partial(_complete, run=run, result=result)))
    assert not isinstance(flow, Refused), "the executor raises a refusal"
    if flow.status != "COMPENSATING":
        return flow
    flow = yield from _undo(run, "it was being undone")
    raise FlowEndedError(f"flow {flow.flow_id} was being undone, and is {flow.status}", flow_id=flow.flow_id)


def _complete(tx: Tx, run: FlowRun, result: str | None) -> Flow | Refused:
    lease = run.lease
    flow = flows.lock(tx, lease.flow_id, ns=lease.ns)
    if flow.ended or flow.status == "COMPENSATING":  # the block ended it itself, or it did not fail a second time
        return flow
    leases.heartbeat(tx, lease.flow_id, lease.token, ns=lease.ns)
    difference = run.unfinished()
    if difference is not None:
        _stop(tx, lease, difference)
        return Refused(difference)
    in_doubt = [f"{name} {n}" for name, n in undoable.in_doubt(tx, lease.flow_id, ns=lease.ns)]
    if in_doubt:
        audit.observe(
            tx, lease.flow_id, "STEPS_UNFINISHED", severity="WARNING", detail={"steps": in_doubt}, ns=lease.ns
        )
    if result is None:
        return flows.transition(tx, lease.flow_id, "COMPLETED", ns=lease.ns)
    text = recorded.store(tx, result, lease.subject)
    return flows.end(tx, lease.flow_id, "COMPLETED", result=text, ns=lease.ns)


def abort(run: FlowRun, error: Exception) -> Work[Flow]:
    """Fail the flow because of an exception: undo its steps, in reverse order.

    What says that code or record are not what they were stops the flow instead: nothing is undone on such ground.
    """
    if _is_lost(run, error):
        return (yield from ask(Read(lambda tx: flows.get(tx, run.lease.flow_id, ns=run.lease.ns))))
    stopped = run.difference or (error if isinstance(error, TamperedError) else None)
    if stopped is not None:
        return (yield from ask(Write(partial(_stop, lease=run.lease, error=stopped))))
    return (yield from _undo(run, steps.error_text(run.lease, error)))


def _stop(tx: Tx, lease: WorkerLease, error: Exception) -> Flow:
    """Give a flow back as it is: other code may match its record; one that was edited waits for a person."""
    lock_leased(tx, lease)
    due = END if isinstance(error, TamperedError) else later(tx.now, _STOPPED_S)
    detail = {"error": steps.error_text(lease, error)}
    audit.observe(tx, lease.flow_id, "FLOW_STOPPED", severity="ERROR", detail=detail, ns=lease.ns)
    leases.suspend(tx, lease.flow_id, lease.token, due=due, ns=lease.ns)
    return flows.get(tx, lease.flow_id, ns=lease.ns)


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
        run.position += 1
        spec = StepSpec(f"{UNDO}{undoing.name}", undoing.n, run.position, compensates=undoing.label)
        try:
            yield from step_runs.step(lease, spec, undoing.undo, run.journal)
        except Exception as error:
            if _is_lost(run, error):
                raise
            to_undo = [each.label for each in run.undoings]
            message = steps.error_text(lease, error)
            yield from ask(Write(partial(_mark_dirty, lease=lease, to_undo=to_undo, message=message)))
            raise CompensationFailedError(f"step {undoing.name} could not be undone", flow_id=lease.flow_id) from error
        run.undoings.pop()
    return (yield from ask(Write(partial(_end_undoing, lease=lease, reason=reason))))


def _begin_undoing(tx: Tx, run: FlowRun, reason: str) -> _Compensation:
    """Move the flow to COMPENSATING and lease it; or to its end, where there is nothing to undo."""
    lease = run.lease
    reached = {(each.name, each.n) for each in run.undoings}
    flow = flows.lock(tx, lease.flow_id, ns=lease.ns)
    to_undo = undoable.to_undo(tx, lease.flow_id, ns=lease.ns)
    if flow.status in TERMINAL - UNDOABLE or (flow.ended and not to_undo):
        return _Compensation(flow, lease, [])
    in_doubt = undoable.in_doubt(tx, lease.flow_id, undo=True, ns=lease.ns)
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
        suspension.extend(tx, lease)
    if not is_legal(flow.status, to):  # it waits for an answer that nobody needs any more
        flows.transition(tx, lease.flow_id, "FAILED", reason=reason, ns=lease.ns)
    return flows.transition(tx, lease.flow_id, to, reason=reason, ns=lease.ns)


def _lease_again(tx: Tx, lease: WorkerLease) -> WorkerLease:
    """Extend the lease, or lease the flow again if its end took the lease away and no other worker came between."""
    try:
        suspension.extend(tx, lease)
    except LeaseLostError:
        renewed = leases.renew(tx, lease.flow_id, lease.token, lease_s=lease.lease_s, ns=lease.ns)
        return replace(lease, token=renewed.token)
    return lease


def _end_undoing(tx: Tx, lease: WorkerLease, reason: str) -> Flow:
    """End a flow whose steps are all undone; one that is dirty for another reason is not clean by that."""
    lock_leased(tx, lease)
    to = "FAILED" if sagas.is_dirty(tx, lease.flow_id, ns=lease.ns) else "COMPENSATED"
    return flows.transition(tx, lease.flow_id, to, reason=reason, ns=lease.ns)


def _mark_dirty(tx: Tx, lease: WorkerLease, to_undo: list[str], message: str) -> None:
    lock_leased(tx, lease)
    sagas.mark_dirty(tx, lease.flow_id, to_undo[-1], {"to_undo": to_undo, "error": message}, ns=lease.ns)
    flows.transition(tx, lease.flow_id, "FAILED", reason="compensation failed", ns=lease.ns)
