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

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from holdproof import validation
from holdproof.db import Read, Refused, Together, Tx, Work, Write, ask, lock_exclusive
from holdproof.errors import (
    CompensationFailedError,
    ContentionTimeoutError,
    FlowEndedError,
    InvalidInputError,
    LeaseLostError,
    NonDeterminismError,
    TamperedError,
)
from holdproof.model import typed_json
from holdproof.model.coordination import Escalation, Lock
from holdproof.model.flows import TERMINAL, UNDOABLE, Flow, is_legal
from holdproof.model.namespaces import MAIN
from holdproof.model.times import END, later
from holdproof.runtime import (
    audit,
    autocreate,
    calls,
    escalations,
    flows,
    inbox,
    leases,
    locks,
    recorded,
    sagas,
    steps,
    suspension,
)
from holdproof.runtime.calls import CallSpec
from holdproof.runtime.steps import Journal, OnUnknown, RetryPolicy, StepSpec
from holdproof.runtime.suspension import FlowSuspended, WorkerLease

_UNDO: Final = "undo "
OWN: Final = "flow."
"""How the names of steps start that the flow itself records, as sleeping."""
_LONGEST_NUMBER: Final = " 999999"
"""The number of a step, at its longest."""
_STOPPED_S: Final = 300.0
"""When a flow whose code did not match its record is offered to workers again."""
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


@dataclass(slots=True, weakref_slot=True)
class FlowRun:
    """A leased flow in this process: how often each step and each approval was reached, and what there is to undo."""

    lease: WorkerLease
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    undoings: list[_Undoing] = field(default_factory=list)
    journal: Journal = field(default_factory=dict)
    """The steps that were recorded before this process took the flow up, and have not been settled here."""
    unreached: dict[int, str] = field(default_factory=dict)
    """Of these, which the code has not reached again: their names, by position."""
    position: int = 0
    raw: bool = False
    """Whether the functions of steps run at the other end of a wire, and give tagged JSON."""
    suspended: FlowSuspended | None = None
    """How the flow was suspended, after which nothing more can be done in it here."""

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
        n = self.count("step", name)
        self.position += 1
        recorded_here = self.unreached.pop(self.position, None)
        if recorded_here is None and (name, n) in self.journal:
            # Steps that ran at once may have been recorded in another order than they are reached in.
            self.unreached.pop(self.journal[name, n].value.position, None)
        elif recorded_here is not None and recorded_here != name:
            raise self.differs(name, recorded_here)
        elif recorded_here is None and self.unreached and min(self.unreached) < self.position:
            raise self.differs(name, self.unreached[min(self.unreached)])
        return n, self.position

    def differs(self, name: str, recorded_name: str) -> NonDeterminismError:
        """Return the error of code that reaches another step than was recorded."""
        return NonDeterminismError(
            f"the code reached step {name} where the flow recorded step {recorded_name}",
            step=name,
            recorded=recorded_name,
            flow_id=self.lease.flow_id,
        )

    def load(self, journal: Journal) -> None:
        """Take over what was recorded before; the code will reach it again."""
        self.journal = journal
        self.unreached = {
            record.value.position: record.value.name for record in journal.values() if record.value.compensates is None
        }


# --- entering ----------------------------------------------------------------------------------------------------


class EarlierFlow(NamedTuple):
    """A flow that has the id which a call asks for, with the same inputs."""

    flow: Flow


def enter(
    agent_id: str | None = None,
    *,
    resume: str | None = None,
    worker: str | None = None,
    lease_s: float = leases.LEASE_S,
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

    return (yield from ask(Write(open_or_resume)))


def take_up(tx: Tx, flow: Flow, *, worker: str | None, lease_s: float, loads: bool, suspends: bool = False) -> FlowRun:
    """Lease a flow, start it if it is new, and load what it recorded before."""
    lock_exclusive(tx, f"flow:{flow.flow_id}")
    if flow.status == "CREATED":
        flows.transition(tx, flow.flow_id, "RUNNING", ns=flow.ns)
    name = worker or tx.new_id()
    lease = leases.lease(tx, flow.flow_id, name, lease_s=lease_s, ns=flow.ns)
    return leased_run(tx, flow, lease.token, worker=name, lease_s=lease_s, loads=loads, suspends=suspends)


def leased_run(
    tx: Tx, flow: Flow, token: int, *, worker: str, lease_s: float, loads: bool = True, suspends: bool = False
) -> FlowRun:
    """Return a flow that is leased already, with what it recorded before; TamperedError where that was edited."""
    run = FlowRun(WorkerLease(flow.flow_id, token, lease_s, flow.ns, worker, flow.subject, suspends))
    if loads:
        run.load(steps.journal(tx, flow.flow_id, ns=flow.ns))
    return run


def enter_call(
    agent_id: str | None,
    call: CallSpec,
    *,
    flow_id: str | None = None,
    worker: str | None = None,
    lease_s: float = leases.LEASE_S,
    ns: str = MAIN,
    **opening: Any,
) -> Work[FlowRun | EarlierFlow]:
    """Open a flow that runs a registered function; or return the flow that a call with this id opened before."""
    if agent_id is None:
        raise InvalidInputError("name the agent: @store.flow(agent=…), or opening(agent=…)", field="agent")

    def open_flow(tx: Tx) -> FlowRun | EarlierFlow:
        flow = open_call(tx, agent_id, call, flow_id=flow_id, ns=ns, **opening)
        if isinstance(flow, EarlierFlow):
            return flow
        return take_up(tx, flow, worker=worker, lease_s=lease_s, loads=False)

    return (yield from ask(Write(open_flow)))


def open_call(
    tx: Tx, agent_id: str, call: CallSpec, *, flow_id: str | None = None, ns: str, **opening: Any
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
    autocreate.agent(tx, agent_id, ns=ns)
    flow = flows.open_flow(
        tx, agent_id, flow_id=flow_id, flow_type=call.name, flow_version=call.version, ns=ns, **opening
    )
    calls.record(tx, flow, call)
    return flow


# --- steps -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How a step is run."""

    compensate: Callable[[Any], Any] | None = None
    on_unknown: OnUnknown = "ask"
    retries: int = 0
    backoff_s: float = 1.0
    retry_on: type[BaseException] | tuple[type[BaseException], ...] = Exception
    timeout_s: float | None = None
    record_args: bool = True


OPTIONS: Final = frozenset(each.name for each in fields(StepOptions))
"""The keywords of a step that are not its function's."""


@dataclass(frozen=True, slots=True)
class StepCall:
    """A step that has not begun: what `flow.call` gives, for `flow.gather`."""

    name: str
    fn: Callable[[], Any]
    arguments: str | None
    options: StepOptions

    def check(self) -> None:
        """Refuse, before anything is recorded, what could not be run or undone."""
        options = self.options
        validate_name(self.name, undoable=options.compensate is not None)
        validation.count("retries", options.retries)
        validation.seconds("backoff_s", options.backoff_s)
        if options.timeout_s is not None:
            validation.seconds("timeout_s", options.timeout_s, least=0.001)


def prepare(first: Any, args: Sequence[Any], kwargs: Mapping[str, Any], options: StepOptions) -> StepCall:
    """Return a step, given its function, or its name and its function, and what the function is called with."""
    name, fn, rest = (first, args[0] if args else None, args[1:]) if isinstance(first, str) else (None, first, args)
    if not callable(fn):
        raise InvalidInputError("a step is a function, or a name and a function", field="fn")
    call = StepCall(
        _name_of(fn) if name is None else name,
        partial(fn, *rest, **kwargs),
        _arguments(rest, kwargs, required=options.record_args),
        options,
    )
    call.check()
    return call


def _name_of(fn: Any) -> str:
    """The name of a function, also of one that is partly applied; of another callable, that of its class."""
    while isinstance(fn, partial):
        fn = fn.func
    return str(getattr(fn, "__name__", type(fn).__name__))


def _arguments(args: Sequence[Any], kwargs: Mapping[str, Any], *, required: bool) -> str | None:
    try:
        return calls.arguments_text(args, kwargs)
    except InvalidInputError:
        if required:
            raise
        # There is nothing to tell such arguments by, and their caller wants them nowhere.
        return None


def step(
    run: FlowRun,
    first: Any,
    /,
    *args: Any,
    compensate: Callable[[Any], Any] | None = None,
    on_unknown: OnUnknown = "ask",
    retries: int = 0,
    backoff_s: float = 1.0,
    retry_on: type[BaseException] | tuple[type[BaseException], ...] = Exception,
    timeout_s: float | None = None,
    record_args: bool = True,
    **kwargs: Any,
) -> Work[Any]:
    """Run a step once, whatever happens, and return its result: `step(pay, order)`, or `step("pay", pay, order)`.

    `compensate` gets the result if it is to be undone. A step that raises `retry_on` is tried `retries` times more, the
    first time after about `backoff_s`, then after twice as long. `on_unknown` is "ask", "retry" or "fail": what to do
    if it was started and never confirmed, by a worker that is gone or after `timeout_s`. With `record_args=False` what
    the function is called with is not recorded.
    """
    options = StepOptions(
        compensate=compensate,
        on_unknown=on_unknown,
        retries=retries,
        backoff_s=backoff_s,
        retry_on=retry_on,
        timeout_s=timeout_s,
        record_args=record_args,
    )
    return (yield from perform(run, prepare(first, args, kwargs, options)))


def perform(run: FlowRun, call: StepCall) -> Work[Any]:
    """Run a step that is prepared."""
    outside = outside_steps(run, f"step {call.name}")
    return (yield from _perform(run, call, _numbered(run, call), outside))


def _numbered(run: FlowRun, call: StepCall) -> StepSpec:
    n, position = run.reach(call.name)
    options = call.options
    return StepSpec(
        call.name,
        n,
        position,
        undo=options.compensate is not None,
        on_unknown=options.on_unknown,
        arguments=call.arguments,
        record_args=options.record_args,
        policy=RetryPolicy(options.retries, options.backoff_s, options.retry_on),
        timeout_s=options.timeout_s,
        raw=run.raw,
    )


def _perform(run: FlowRun, call: StepCall, spec: StepSpec, outside: frozenset[tuple[str, str]]) -> Work[Any]:
    # Set for the function that the step calls, which runs in this context.
    _IN_STEPS_OF.set(outside | {(run.lease.ns, run.lease.flow_id)})
    try:
        result = yield from steps.step(run.lease, spec, call.fn, run.journal)
    except FlowSuspended as suspended:
        run.suspended = suspended
        raise
    finally:
        _IN_STEPS_OF.set(outside)
    if call.options.compensate is not None:
        # Appended after the step: one that failed has nothing to undo.
        run.undoings.append(_Undoing(spec.name, spec.n, partial(call.options.compensate, result)))
    return result


def gather(
    run: FlowRun, /, *prepared: StepCall, concurrency: int | None = None, on_error: Literal["wait", "cancel"] = "wait"
) -> Work[list[Any]]:
    """Run steps at once, `concurrency` of them at a time, and return their results in the order they were passed.

    Each is what `flow.call` returns. Where one fails, the first failure in that order is raised once all have ended
    ("wait"), or once those that run have ended and the others were left out ("cancel").
    """
    validation.one_of("on_error", on_error, {"wait", "cancel"})
    if concurrency is not None:
        validation.count("concurrency", concurrency, least=1)
    for each in prepared:
        if not isinstance(each, StepCall):
            raise InvalidInputError(
                "gather takes what flow.call returns: flow.gather(flow.call(fn, 1), …)", field="calls"
            )
    outside = outside_steps(run, "gather")
    numbered = [_numbered(run, each) for each in prepared]
    failures: list[BaseException] = []

    def one(call: StepCall, spec: StepSpec) -> Work[Any]:
        if failures and on_error == "cancel":
            return None
        try:
            return (yield from _perform(run, call, spec, outside))
        except BaseException as error:
            failures.append(error)
            raise

    works = tuple(one(call, spec) for call, spec in zip(prepared, numbered, strict=True))
    outcomes = yield Together(works, concurrency)
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    # One that was suspended comes back: its flow goes on then, whatever became of the others.
    for error in sorted(errors, key=lambda error: not isinstance(error, FlowSuspended)):
        raise error
    return [outcome.value for outcome in outcomes]


def map(
    run: FlowRun,
    fn: Callable[..., Any],
    items: Iterable[Any],
    /,
    *,
    concurrency: int | None = None,
    on_error: Literal["wait", "cancel"] = "wait",
    **options: Any,
) -> Work[list[Any]]:
    """Run a function as one step for each item, at once, and return the results in their order; see `gather`."""
    step_options = StepOptions(**options)
    prepared = [prepare(fn, (item,), {}, step_options) for item in items]
    return (yield from gather(run, *prepared, concurrency=concurrency, on_error=on_error))


def outside_steps(run: FlowRun, what: str) -> frozenset[tuple[str, str]]:
    """Return the flows inside one of whose steps this is called; InvalidInputError if ours is among them."""
    inside = _IN_STEPS_OF.get()
    if (run.lease.ns, run.lease.flow_id) in inside:
        raise InvalidInputError(
            f"{what} is inside a step, which is replayed whole: move it out of the step", flow_id=run.lease.flow_id
        )
    return inside


def validate_name(name: str, *, undoable: bool) -> None:
    """Refuse a name now whose undoing would have a name that is too long, or one that the flow itself uses."""
    if validation.name("step", name).startswith((_UNDO, OWN)):
        raise InvalidInputError(f"names that start with {_UNDO!r} or {OWN!r} are the flow's own", step=name)
    if undoable:
        validation.name("a step and its undoing together", f"{_UNDO}{name}{_LONGEST_NUMBER}")


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
    yield from wait(run, lambda _: None, waits_for=f"{until}", until=until)


def record_own(run: FlowRun, name: str, value: Callable[[Tx], Any]) -> Work[Any]:
    """Return what the flow recorded here under a name of its own; or compute it in a transaction, and record it."""
    own = f"{OWN}{name}"
    n, position = run.reach(own)
    earlier = run.journal.get((own, n))
    if earlier is not None:
        return typed_json.decode(earlier.value.result)
    spec = StepSpec(own, n, position)
    return (yield from ask(Write(partial(_record_own, lease=run.lease, spec=spec, value=value))))


def _record_own(tx: Tx, lease: WorkerLease, spec: StepSpec, value: Callable[[Tx], Any]) -> Any:
    _lock_leased(tx, lease)
    result = value(tx)
    text = recorded.store(tx, recorded.dump(typed_json.encode(result)), lease.subject)
    steps.add(tx, lease, spec, {"state": "DONE", "result": text, "finished_at": tx.now})
    return result


def wait(
    run: FlowRun,
    attempt: Callable[[Tx], Any],
    *,
    waits_for: str,
    topic: str | None = None,
    until: str | None = None,
) -> Work[Any]:
    """Wait inside a flow, in place or suspended; see suspension.py."""
    try:
        return (yield from suspension.wait(run.lease, attempt, waits_for=waits_for, topic=topic, until=until))
    except FlowSuspended as suspended:
        run.suspended = suspended
        raise


# --- locks and approvals -----------------------------------------------------------------------------------------


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
    outside_steps(run, "an approval")
    lease = run.lease
    n = run.count("approve", reason)
    if run.suspended is not None:
        raise run.suspended
    escalation = yield from ask(Write(lambda tx: _requested(tx, lease, reason, n, options)))
    assert not isinstance(escalation, Refused), "the executor raises a refusal"
    try:
        answer = yield from steps.wait_for_decision(lease, escalation.id)
    except FlowSuspended as suspended:
        run.suspended = suspended
        raise
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
    suspension.extend(tx, lease)
    return escalations.request(tx, lease.flow_id, reason=reason, ns=lease.ns, **options)


def beat(run: FlowRun) -> Work[None]:
    """Extend the lease between steps that are far apart."""
    yield from ask(Write(lambda tx: suspension.extend(tx, run.lease)))


# --- leaving -----------------------------------------------------------------------------------------------------


def complete(run: FlowRun, result: str | None = None) -> Work[Flow]:
    """Complete the flow; one that is being undone is undone to the end, and FlowEndedError raised.

    `result` is the text of what the flow's function returned.
    """
    flow = yield from ask(Write(partial(_complete, lease=run.lease, result=result)))
    if flow.status != "COMPENSATING":
        return flow
    flow = yield from _undo(run, "it was being undone")
    raise FlowEndedError(f"flow {flow.flow_id} was being undone, and is {flow.status}", flow_id=flow.flow_id)


def _complete(tx: Tx, lease: WorkerLease, result: str | None) -> Flow:
    flow = flows.lock(tx, lease.flow_id, ns=lease.ns)
    if flow.ended or flow.status == "COMPENSATING":  # the block ended it itself, or it did not fail a second time
        return flow
    leases.heartbeat(tx, lease.flow_id, lease.token, ns=lease.ns)
    in_doubt = [f"{name} {n}" for name, n in flows.in_doubt(tx, lease.flow_id, ns=lease.ns)]
    if in_doubt:
        audit.record(tx, lease.flow_id, "STEPS_UNFINISHED", severity="WARNING", detail={"steps": in_doubt}, ns=lease.ns)
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
    if isinstance(error, NonDeterminismError | TamperedError):
        return (yield from ask(Write(partial(_stop, lease=run.lease, error=error))))
    return (yield from _undo(run, steps.error_text(run.lease, error)))


def _stop(tx: Tx, lease: WorkerLease, error: Exception) -> Flow:
    """Give a flow back as it is: other code may match its record; one that was edited waits for a person."""
    _lock_leased(tx, lease)
    due = END if isinstance(error, TamperedError) else later(tx.now, _STOPPED_S)
    detail = {"error": steps.error_text(lease, error)}
    audit.record(tx, lease.flow_id, "FLOW_STOPPED", severity="ERROR", detail=detail, ns=lease.ns)
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
        spec = StepSpec(f"{_UNDO}{undoing.name}", undoing.n, run.position, compensates=undoing.label)
        try:
            yield from steps.step(lease, spec, undoing.undo, run.journal)
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
    _lock_leased(tx, lease)
    to = "FAILED" if sagas.is_dirty(tx, lease.flow_id, ns=lease.ns) else "COMPENSATED"
    return flows.transition(tx, lease.flow_id, to, reason=reason, ns=lease.ns)


def _lock_leased(tx: Tx, lease: WorkerLease) -> None:
    """Lock the flow, and extend its lease; LeaseLostError where it is another worker's by now."""
    lock_exclusive(tx, f"flow:{lease.flow_id}")
    suspension.extend(tx, lease)


def _mark_dirty(tx: Tx, lease: WorkerLease, to_undo: list[str], message: str) -> None:
    _lock_leased(tx, lease)
    sagas.mark_dirty(tx, lease.flow_id, to_undo[-1], {"to_undo": to_undo, "error": message}, ns=lease.ns)
    flows.transition(tx, lease.flow_id, "FAILED", reason="compensation failed", ns=lease.ns)
