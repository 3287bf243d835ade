"""Children: flows that a flow starts, and whose results it uses.

Rules:
- A child is opened in the transaction that records, as a step of the parent's own, which flow it is: a parent that runs
  again finds its child, and starts no second one. Another function or other arguments there are NonDeterminismError.
- A child of a queue is run by a worker. One without a queue runs in this process, in the parent's place; where it would
  wait under a worker, it is suspended, and the parent with it.
- The child's end wakes the parent: with its result, as FlowFailedError, or as FlowEndedError where it was cancelled.
- Cancelling a flow cancels its children (flows.py). What a child records of a person's flow is sealed as the parent's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from holdproof.crypto import canonical
from holdproof.db import Read, Tx, Work, Write, ask
from holdproof.errors import NonDeterminismError, TamperedError
from holdproof.model.flows import Flow, FlowResult, Rerun
from holdproof.runtime import calls, flow_run, flows, functions, leases, results, runs
from holdproof.runtime.calls import CallSpec
from holdproof.runtime.flow_run import FlowRun
from holdproof.runtime.functions import LeasedCall, RegisteredFunction
from holdproof.runtime.runs import EarlierFlow
from holdproof.runtime.suspension import FlowSuspended, WorkerLease

_START: Final = "start"
_RUN: Final = "run"


@dataclass(frozen=True, slots=True)
class ChildCall:
    """A registered function, the text of what it is called with, and how its flow is opened."""

    function: RegisteredFunction
    arguments: str
    opening: Mapping[str, Any]


def start(run: FlowRun, child: ChildCall, *, queue: str, **queued: Any) -> Work[Flow]:
    """Open a child that a worker of the queue will run, and return it; it is opened once, also through crashes."""
    opens = partial(_enqueue, lease=run.lease, child=child, queue=queue, queued=queued)
    flow_id = yield from _recorded(run, _START, child, opens)
    return (yield from ask(Read(lambda tx: flows.get(tx, flow_id, ns=run.lease.ns))))


def call(run: FlowRun, child: ChildCall, *, queue: str | None = None, **queued: Any) -> Work[Any]:
    """Run a child to its end and return its result: by a worker of the queue, or without one in this process."""
    if queue is not None:
        flow = yield from start(run, child, queue=queue, **queued)
        return (yield from result(run, flow.flow_id))
    opens = partial(_open, lease=run.lease, child=child)
    flow_id = yield from _recorded(run, _RUN, child, opens)
    leased = yield from ask(Write(partial(_take, flow_id=flow_id, child=child, parent=run.lease)))
    if isinstance(leased, Rerun):
        raise TamperedError(f"flow {flow_id} was stopped: {leased.error}", table="flow_calls", row=flow_id)
    if leased is not None:
        yield from _conduct(child.function, leased)
    return (yield from result(run, flow_id))


def result(run: FlowRun, flow_id: str) -> Work[Any]:
    """Wait for a child to end, in place or suspended, and return its result.

    Raises FlowFailedError where it failed, and FlowEndedError where it was cancelled.
    """
    flow_run.outside_steps(run, "waiting for a flow")
    ended = yield from flow_run.wait(
        run,
        lambda tx: _ended(tx, flow_id, run.lease.ns),
        waits_for=f"flow {flow_id}",
        topic=f"flow:{flow_id}",
    )
    return results.value(ended)


def _ended(tx: Tx, flow_id: str, ns: str) -> FlowResult | None:
    child = results.get(tx, flow_id, ns=ns)
    return child if child.ended else None


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


def _recorded(run: FlowRun, name: str, child: ChildCall, opens: Any) -> Work[str]:
    """Return the id of the child that the parent recorded here, or open it."""
    flow_run.outside_steps(run, "starting a flow")
    # Of the arguments only a hash: the child's call has them whole.
    expected = {"function": child.function.name, "arguments": canonical.sha256_hex(child.arguments.encode())}
    record = yield from flow_run.record_own(run, name, lambda tx: {**expected, "flow_id": opens(tx)})
    if {**record, "flow_id": None} != {**expected, "flow_id": None}:
        what = f"{child.function.name} or its arguments"
        run.difference = NonDeterminismError(
            f"the code starts another flow than was recorded: {what} differ from those of {record['function']}",
            step=f"{flow_run.OWN}{name}",
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
        tx, name=function.name, version=function.version, arguments=child.arguments, queue=queue, **options
    )
    return flow.flow_id


def _open(tx: Tx, lease: WorkerLease, child: ChildCall) -> str:
    function = child.function
    spec = CallSpec(function.name, function.version, child.arguments)
    flow = runs.open_call(tx, call=spec, **_opening(tx, lease, child))
    return flow.flow.flow_id if isinstance(flow, EarlierFlow) else flow.flow_id


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
