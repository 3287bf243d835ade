"""Children: flows that a flow starts, and whose results it uses.

Rules:
- A child is opened in the transaction that records, as a step of the parent's own, which flow it is: a parent that runs
  again finds its child, and starts no second one. Another function or other arguments there are NonDeterminismError.
- A child of a queue is run by a worker. One without a queue runs in this process, in the parent's place; where it would
  wait under a worker, it is suspended, and the parent with it.
- A replay starts and runs none: it takes the results from the children that were recorded.
- The child's end wakes the parent: with its result, as FlowFailedError, or as FlowEndedError where it was cancelled.
- A flow that another one started (deduplicated, by its id, a handle) is waited for, and wakes its own parent only: who
  else waits looks again after LOOK_AGAIN_S. It is never cancelled from here.
- Cancelling a flow cancels its children (flows.py). What a child records of a person's flow is sealed as the parent's.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from holdproof.crypto import canonical
from holdproof.db import Read, Tx, Work, Write, ask
from holdproof.errors import NonDeterminismError, TamperedError, WrongClientError
from holdproof.model.flows import Flow, FlowResult, Rerun
from holdproof.model.times import later
from holdproof.runtime import calls, flow_run, flows, functions, leases, results, runs
from holdproof.runtime.calls import CallSpec
from holdproof.runtime.flow_run import FlowRun
from holdproof.runtime.functions import FunctionSpec, LeasedCall, RegisteredFunction
from holdproof.runtime.runs import EarlierFlow
from holdproof.runtime.steps import StepSpec
from holdproof.runtime.suspension import FlowSuspended, WorkerLease, extend

_START: Final = "start"
_RUN: Final = "run"
_CANCELLABLE: Final = frozenset({"CREATED", "RUNNING", "WAITING_ESCALATION"})
LOOK_AGAIN_S: Final = 30.0
"""After how long a suspended flow looks again for the end of a flow that is not its child."""


@dataclass(frozen=True, slots=True)
class ChildCall:
    """A registered function, the text of what it is called with, and how its flow is opened."""

    function: FunctionSpec
    arguments: str
    opening: Mapping[str, Any]
    called_by: str | None = None
    """The agent that asked for it at the server, if one did."""


class ChildFunction(ABC):
    """A registered function as flows call it."""

    @abstractmethod
    def queueing(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Remove and return the keywords that say how it is queued, and are not the function's own."""

    @abstractmethod
    def child_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ChildCall:
        """Return a call of the function as it is recorded, and how its flow is opened."""


@dataclass(frozen=True, slots=True)
class ChildRun:
    """A child that has not begun: what `flow.call` gives for a registered function, for `flow.gather`."""

    child: ChildCall
    queue: str | None
    queued: Mapping[str, Any]


def prepare(function: ChildFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ChildRun:
    """Return a child that has not begun, given what `flow.run` takes."""
    named = {**kwargs}
    queued = function.queueing(named)
    queue = queued.pop("queue", None)
    return ChildRun(function.child_call(args, named), queue, queued)


def start(run: FlowRun, child: ChildCall, *, queue: str, **queued: Any) -> Work[Flow]:
    """Open a child that a worker of the queue will run, and return it; it is opened once, also through crashes."""
    prepared = ChildRun(child, queue, queued)
    flow_id = yield from recorded_id(run, reach(run, prepared), prepared)
    return (yield from ask(Read(lambda tx: flows.get(tx, flow_id, ns=run.lease.ns))))


def call(run: FlowRun, child: ChildCall, *, queue: str | None = None, **queued: Any) -> Work[Any]:
    """Run a child to its end and return its result: by a worker of the queue, or without one in this process."""
    prepared = ChildRun(child, queue, queued)
    return (yield from perform(run, prepared, reach(run, prepared)))


def reach(run: FlowRun, prepared: ChildRun) -> StepSpec:
    """Number the child that the code reaches now."""
    flow_run.outside_steps(run, "starting a flow")
    return flow_run.reach_own(run, _RUN if prepared.queue is None else _START)


def perform(
    run: FlowRun,
    prepared: ChildRun,
    spec: StepSpec,
    opened: Callable[[str], Work[None]] | None = None,
    is_left: Callable[[], bool] = lambda: False,
) -> Work[Any]:
    """Run a child that is numbered to its end, and return its result; `opened` gets its id before it is waited for."""
    flow_id = yield from recorded_id(run, spec, prepared)
    if opened is not None:
        yield from opened(flow_id)
    if prepared.queue is None and run.mode.conducts():
        yield from _run_here(run, prepared.child, flow_id)
    return (yield from result(run, flow_id, is_left))


def _run_here(run: FlowRun, child: ChildCall, flow_id: str) -> Work[None]:
    """Run a child in this process, unless it has ended or somebody works on it."""
    function = child.function
    if not isinstance(function, RegisteredFunction):
        raise WrongClientError(f"{function.name} is a function of a remote store, which runs it", name=function.name)
    leased = yield from take(run, child, flow_id)
    if leased is not None:
        yield from _conduct(function, leased)


def take(run: FlowRun, child: ChildCall, flow_id: str) -> Work[LeasedCall | None]:
    """Lease a child in order to run it for this flow; None where it has ended or somebody works on it."""
    leased = yield from ask(Write(partial(_take, flow_id=flow_id, child=child, parent=run.lease)))
    if isinstance(leased, Rerun):
        raise TamperedError(f"flow {flow_id} was stopped: {leased.error}", table="flow_calls", row=flow_id)
    return leased


def result(run: FlowRun, flow_id: str, is_left: Callable[[], bool] = lambda: False) -> Work[Any]:
    """Wait for a child to end, in place or suspended, and return its result; see `outcome`.

    Raises FlowFailedError where it failed, and FlowEndedError where it was cancelled.
    """
    return results.value((yield from outcome(run, flow_id, is_left)))


class _Standing(NamedTuple):
    """How a flow stands that is waited for."""

    ended: FlowResult | None
    is_own: bool
    """Whether it is a child of the flow that waits, which its end then wakes."""
    now: str


class _Left(NamedTuple):
    """What a look brings where a flow is no longer waited for."""


def outcome(run: FlowRun, flow_id: str, is_left: Callable[[], bool] = lambda: False) -> Work[FlowResult]:
    """Wait for a child to end, in place or suspended, and return how.

    The flow of another parent is waited for no longer once `is_left` says so: FlowSuspended, for `gather`.
    """
    flow_run.outside_steps(run, "waiting for a flow")
    waits_for = f"flow {flow_id}"
    while True:
        # What has ended stays as it is: a read is enough to learn that.
        standing = yield from ask(Read(partial(_standing, flow_id=flow_id, parent=run.lease)))
        if standing.ended is not None:
            return standing.ended
        look: Callable[[Tx], Any] = partial(_ended, flow_id=flow_id, ns=run.lease.ns)
        until = None
        # A replay does not wait, however long.
        if not standing.is_own and not run.mode.offline:
            look = partial(_ended_or_left, flow_id=flow_id, ns=run.lease.ns, is_left=is_left)
            until = later(standing.now, LOOK_AGAIN_S)
        end = yield from flow_run.wait(run, look, waits_for=waits_for, topic=f"flow:{flow_id}", until=until)
        if isinstance(end, _Left):
            raise FlowSuspended(run.lease.flow_id, waits_for)
        if isinstance(end, FlowResult):
            return end


def cancel(run: FlowRun, flow_id: str, *, reason: str) -> Work[bool]:
    """Cancel a child that is open, and return whether it was; one that is being undone is undone to the end.

    A flow that another one started is not cancelled.
    """
    return (yield from ask(Write(partial(_cancel, flow_id=flow_id, reason=reason, parent=run.lease))))


def _cancel(tx: Tx, flow_id: str, reason: str, parent: WorkerLease) -> bool:
    # The child is locked first, then the lease of its parent, as where a child ends.
    child = flows.lock(tx, flow_id, ns=parent.ns)
    extend(tx, parent)
    if child.parent_flow_id != parent.flow_id:
        # Whoever waits for it here looks, and leaves it.
        tx.notify(f"flow:{flow_id}")
        return False
    if child.status not in _CANCELLABLE:
        return False
    flows.cancel(tx, flow_id, reason=reason, ns=parent.ns)
    return True


def _standing(tx: Tx, flow_id: str, parent: WorkerLease) -> _Standing:
    is_own = flows.get(tx, flow_id, ns=parent.ns).parent_flow_id == parent.flow_id
    return _Standing(_ended(tx, flow_id, parent.ns), is_own, tx.now)


def _ended(tx: Tx, flow_id: str, ns: str) -> FlowResult | None:
    child = results.get(tx, flow_id, ns=ns)
    return child if child.ended else None


def _ended_or_left(tx: Tx, flow_id: str, ns: str, is_left: Callable[[], bool]) -> FlowResult | _Left | None:
    return _ended(tx, flow_id, ns) or (_Left() if is_left() else None)


def _conduct(function: RegisteredFunction, leased: LeasedCall) -> Work[None]:
    """Run a child here until it ends or is suspended."""
    try:
        yield from functions.conduct(function, leased.run, *calls.arguments(leased.call))
    except FlowSuspended:
        # Whoever wakes the child lets a worker go on with it; its end then wakes the parent.
        return
    except Exception:
        lease = leased.run.lease
        flow = yield from ask(Read(lambda tx: flows.get(tx, lease.flow_id, ns=lease.ns)))
        # A parent that runs again has only what was recorded: it gets the same error the first time.
        if not flow.ended:
            raise


def recorded_id(run: FlowRun, spec: StepSpec, prepared: ChildRun) -> Work[str]:
    """Return the id of the child that the parent recorded here, or open it."""
    child = prepared.child
    opens: Callable[[Tx], str] = (
        partial(_open, lease=run.lease, child=child)
        if prepared.queue is None
        else partial(_enqueue, lease=run.lease, child=child, queue=prepared.queue, queued=prepared.queued)
    )
    # Of the arguments only a hash: the child's call has them whole.
    expected = {"function": child.function.name, "arguments": canonical.sha256_hex(child.arguments.encode())}
    record = yield from flow_run.record_reached(run, spec, lambda tx: {**expected, "flow_id": opens(tx)})
    if {**record, "flow_id": None} != {**expected, "flow_id": None}:
        what = f"{child.function.name} or its arguments"
        run.difference = NonDeterminismError(
            f"the code starts another flow than was recorded: {what} differ from those of {record['function']}",
            step=spec.name,
            recorded=record["function"],
            flow_id=run.lease.flow_id,
        )
        raise run.difference
    return str(record["flow_id"])


def _opening(tx: Tx, lease: WorkerLease, child: ChildCall) -> dict[str, Any]:
    """Return how the child's flow is opened: for its own agent or the parent's, as a part of the parent's tree."""
    options = {**child.opening}
    agent_id = options.pop("agent_id", None) or flows.get(tx, lease.flow_id, ns=lease.ns).agent_id
    if options.get("subject") is None:
        options |= {"subject": None, "subject_handle": lease.subject}
    return {**options, "agent_id": agent_id, "parent": lease.flow_id, "ns": lease.ns}


def _enqueue(tx: Tx, lease: WorkerLease, child: ChildCall, queue: str, queued: Mapping[str, Any]) -> str:
    function = child.function
    options = {**_opening(tx, lease, child), **queued}
    flow = functions.enqueue(
        tx,
        name=function.name,
        version=function.version,
        arguments=child.arguments,
        queue=queue,
        called_by=child.called_by,
        function=function.code,
        **options,
    )
    return flow.flow_id


def _open(tx: Tx, lease: WorkerLease, child: ChildCall) -> str:
    function = child.function
    spec = CallSpec(function.name, function.version, child.arguments, agent_id=child.called_by, function=function.code)
    flow = runs.open_call(tx, call=spec, **_opening(tx, lease, child))
    if isinstance(flow, EarlierFlow):
        return flow.flow.flow_id
    if flow.status == "WAITING_ESCALATION":
        # A policy asks first: once that is approved, a worker runs the child, and its end wakes the parent.
        leases.offer(tx, flow)
    return flow.flow_id


def _take(tx: Tx, flow_id: str, child: ChildCall, parent: WorkerLease) -> LeasedCall | Rerun | None:
    """Lease a child in order to run it here; None where it has ended or somebody works on it."""
    flow = flows.lock(tx, flow_id, ns=parent.ns)
    if flow.ended or flow.status == "WAITING_ESCALATION":
        return None
    lease_s = child.function.lease_s
    lease = leases.try_lease(tx, flow_id, parent.worker, lease_s, parent.ns)
    if lease is None:
        return None
    leased = functions.confirm(
        tx, child.function, flow_id, lease.token, worker=parent.worker, suspends=parent.suspends, ns=parent.ns
    )
    if isinstance(leased, LeasedCall) and flow.status == "CREATED":
        flows.transition(tx, flow_id, "RUNNING", ns=parent.ns)
    return leased
