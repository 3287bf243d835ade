"""Registered functions: what one worker started any other can finish.

Rules:
- Calling one opens its flow and records the call in one transaction; the flow ends as the function ends (runs.py), and
  its result is recorded with its last transition.
- A call with an id that was used before is not run again: it has the first one's result, or waits for it. Other inputs
  under that id are refused. It looks again when the other worker's lease is over, and says whom it waits for, once:
  after a crash that is a process which is gone.
- `recover` runs orphans again whose function is registered here, in the version that started them or one that the
  function declares `compatible`, one after the other. Each is leased to exactly one worker; its finished steps are
  replayed (steps.py). It never waits: a flow that does is left suspended, and named with what it waits for.
- What was recorded is compared with the log before anything is run again: an edited call stops its flow, and `recover`
  goes on with the next. A function that fails fails its own flow only.
- What an agent called at the server is run again only by a function that is registered for that agent: nobody can have
  another agent's function run with arguments of their own.
- What no function here can run is left as it is, and returned: plain blocks (`flows.run(resume=…)`), other functions,
  other versions.
"""

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from holdproof import validation
from holdproof.db import Call, Read, Tx, Work, Write, ask, lock_exclusive, sql
from holdproof.errors import ErasedError, InvalidInputError, TamperedError, TimeoutExpiredError
from holdproof.model import typed_json
from holdproof.model.flows import Flow, FunctionCall, Recovery, Rerun
from holdproof.model.namespaces import MAIN
from holdproof.model.times import END, later
from holdproof.runtime import audit, calls, flows, leases, recorded, results, runs
from holdproof.runtime.calls import CallSpec
from holdproof.runtime.flow_run import FlowRun
from holdproof.runtime.runs import EarlierFlow
from holdproof.runtime.suspension import FlowSuspended

_log = logging.getLogger("holdproof.runtime")

_SILENT_S: Final = 2.0
"""How long a call waits for another worker's flow before it says so."""
_LEAST_WAIT_S: Final = 0.05

Runnable = tuple[str, str, str | None]
"""A function by name and version, and the agent that called it, if one did."""


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """A function that flows run: its name and version, the length of its leases, and its agent."""

    name: str
    version: str
    lease_s: float
    agent_id: str | None
    """The agent that it is registered for, if for one."""
    compatible: tuple[str, ...] = ()
    """Further versions whose flows it continues."""
    code: Callable[..., Any] | None = None
    """The function as policies see it, where it is known here: without the open flow, its first parameter."""

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions whose flows it continues."""
        return (self.version, *self.compatible)

    @property
    def runs(self) -> set[Runnable]:
        """Which calls it runs again."""
        return {(self.name, version, agent) for version in self.versions for agent in (None, self.agent_id)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredFunction(FunctionSpec):
    """A function of this process; `bind` gives it the open flow and its arguments."""

    bind: Callable[[FlowRun, Sequence[Any], Mapping[str, Any]], Callable[[], Any]]
    keeps: Callable[[FlowRun], AbstractContextManager[None]] = lambda _: nullcontext()
    """Extends the lease of a flow while its steps are long (lease_keeper.py)."""


def call(function: RegisteredFunction, args: Sequence[Any], kwargs: Mapping[str, Any], **opening: Any) -> Work[Any]:
    """Open a flow and run the function in it; `opening` is what `runs.enter_call` takes."""
    spec = calls.call_of(function.name, function.version, args, kwargs, function=function.code)
    run = yield from runs.enter_call(call=spec, lease_s=function.lease_s, **opening)
    if isinstance(run, EarlierFlow):
        return (yield from _join(function, run.flow))
    # As a replay would get them: the first run and every later one see equal values.
    decoded = calls.decoded_arguments(spec.arguments)
    return (yield from conduct(function, run, *decoded))


def conduct(function: RegisteredFunction, run: FlowRun, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Work[Any]:
    """Run the function in a leased flow, and end the flow as the function ends; its lease is extended meanwhile."""
    with function.keeps(run):
        return (yield from _conduct(function, run, args, kwargs))


def _conduct(function: RegisteredFunction, run: FlowRun, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Work[Any]:
    effect: Call[Any] = Call(function.bind(run, args, kwargs))
    try:
        result = yield from ask(effect)
        if run.suspended is not None:
            # The code kept FlowSuspended from leaving it; nothing that it did since has been recorded.
            raise run.suspended
        text = recorded.dump(typed_json.encode(result, f"the result of {function.name}"))
    except Exception as error:
        yield from runs.abort(run, error)
        raise
    yield from runs.complete(run, text)
    return typed_json.decode(recorded.parse(text))


# --- queueing ----------------------------------------------------------------------------------------------------

DEFAULT_QUEUE: Final = "default"
_DUPLICATE = sql(
    "SELECT c.dfid FROM flow_calls c JOIN decision_flows f ON f.dfid = c.dfid AND f.ns = c.ns WHERE c.ns = :ns"
    " AND c.queue = :queue"
    " AND c.deduplicate = :deduplicate AND f.status IN ('CREATED', 'RUNNING', 'WAITING_ESCALATION', 'COMPENSATING')"
    " LIMIT 1"
)


def enqueue(
    tx: Tx,
    agent_id: str | None,
    name: str,
    version: str,
    arguments: str,
    *,
    queue: str = DEFAULT_QUEUE,
    delay_s: float = 0.0,
    not_before: str | None = None,
    partition: str | None = None,
    deduplicate: str | None = None,
    called_by: str | None = None,
    flow_id: str | None = None,
    function: Callable[..., Any] | None = None,
    ns: str = MAIN,
    **opening: Any,
) -> Flow:
    """Open a flow that a worker will run, and return it; `arguments` is the text of `calls.arguments_text`.

    It is due `delay_s` from now, or at `not_before`. While a flow of the queue with the same `deduplicate` is open,
    that one is returned instead; so is the flow that has `flow_id`, if it was called the same way.
    """
    if agent_id is None:
        raise InvalidInputError("name the agent: @store.flow(agent=…), or opening(agent=…)", field="agent")
    validation.name("queue", queue)
    if deduplicate is not None:
        lock_exclusive(tx, f"deduplicate:{ns}:{queue}:{validation.name('deduplicate', deduplicate)}")
        duplicate = tx.one(_DUPLICATE, ns=ns, queue=queue, deduplicate=deduplicate)
        if duplicate is not None:
            (existing,) = duplicate
            return flows.get(tx, existing, ns=ns)
    wait_s = validation.seconds("delay_s", delay_s)
    due = later(tx.now, wait_s) if not_before is None else validation.moment("not_before", not_before)
    spec = CallSpec(
        name,
        version,
        arguments,
        agent_id=called_by,
        queue=queue,
        partition_key=None if partition is None else validation.name("partition", partition),
        not_before=due,
        deduplicate=deduplicate,
        function=function,
    )
    flow = runs.open_call(tx, agent_id, spec, flow_id=flow_id, ns=ns, **opening)
    if isinstance(flow, EarlierFlow):
        return flow.flow
    leases.queue(tx, flow, queue=queue, partition_key=spec.partition_key, due=due)
    return flow


def enqueue_call(
    tx: Tx,
    agent_id: str,
    name: str,
    *,
    version: str = "1.0",
    args: list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    queue: str = DEFAULT_QUEUE,
    delay_s: float = 0.0,
    not_before: str | None = None,
    priority: int = 0,
    partition: str | None = None,
    deduplicate: str | None = None,
    flow_id: str | None = None,
    subject: str | None = None,
    called_by: str | None = None,
    ns: str = MAIN,
) -> Flow:
    """Open a flow that a worker will run, for callers that do not have the function, and return the flow.

    `args` and `kwargs` are what the function is called with: JSON, or the tagged JSON of other values. At the server an
    agent enqueues for itself only, and only functions registered for that agent run such a call.
    """
    arguments = recorded.dump({"args": args or [], "kwargs": kwargs or {}})
    return enqueue(
        tx,
        agent_id,
        validation.name("name", name),
        validation.name("version", version),
        arguments,
        queue=queue,
        delay_s=delay_s,
        not_before=not_before,
        partition=partition,
        deduplicate=deduplicate,
        called_by=called_by,
        flow_id=flow_id,
        priority=priority,
        subject=subject,
        ns=ns,
    )


# --- recovering --------------------------------------------------------------------------------------------------


class LeasedCall(NamedTuple):
    """A flow that this worker has leased in order to run its function again, and the call as it was recorded."""

    run: FlowRun
    call: FunctionCall


def recover(
    registry: Mapping[str, RegisteredFunction], worker: str | None = None, *, limit: int = 100, ns: str = MAIN
) -> Work[Recovery]:
    """Run at most `limit` orphaned flows again whose function is registered here; the other orphans are returned.

    A flow that waits for a person, a message or a moment is left waiting; any number of workers may recover at once.
    """
    validation.limited(limit)
    reruns: list[Rerun] = []
    # A copy: a function that runs may register others.
    for function in tuple(registry.values()):
        while len(reruns) < limit:
            leased = yield from ask(Write(partial(lease_orphan, function=function, worker=worker, ns=ns)))
            if leased is None:
                break
            reruns.append(leased if isinstance(leased, Rerun) else (yield from rerun(function, leased)))
    runnable = {each for function in registry.values() for each in function.runs}
    # Read after the reruns: what they finished is no orphan any more.
    others = yield from ask(Read(lambda tx: orphans_except(tx, runnable, limit, ns)))
    return Recovery(tuple(reruns), others)


def lease_orphan(
    tx: Tx, function: FunctionSpec, worker: str | None, ns: str, *, suspends: bool = True
) -> LeasedCall | Rerun | None:
    """Lease one orphan of a function; None where there is none, and a Rerun for one whose record was edited."""
    name = worker or tx.new_id()
    for version in function.versions:
        leased = leases.recover(
            tx,
            name,
            of=(function.name, version),
            agent_id=function.agent_id,
            lease_s=function.lease_s,
            limit=1,
            ns=ns,
        )
        for lease in leased:
            return confirm(tx, function, lease.flow_id, lease.token, worker=name, suspends=suspends, ns=ns)
    return None


def confirm(
    tx: Tx, function: FunctionSpec, flow_id: str, token: int, *, worker: str, suspends: bool, ns: str
) -> LeasedCall | Rerun:
    """Return a leased flow ready to be run again, all that it recorded compared with the log; or stop it."""
    flow = flows.get(tx, flow_id, ns=ns)
    try:
        call = calls.confirmed(tx, flow_id, ns=ns)
        _check_task(tx, flow, call)
        run = runs.leased_run(tx, flow, token, worker=worker, lease_s=function.lease_s, suspends=suspends)
    except (TamperedError, ErasedError) as error:
        # Due never again by itself: a person restores the record, and then wakes the flow; or cancels it, where what it
        # recorded was erased.
        leases.suspend(tx, flow_id, token, due=END, ns=ns)
        detail = {"error": validation.error_text(error)}
        severity = "CRITICAL" if isinstance(error, TamperedError) else "WARNING"
        audit.observe(tx, flow_id, "FLOW_STOPPED", severity=severity, detail=detail, ns=ns)
        return Rerun(flow, validation.error_text(error))
    return LeasedCall(run, call)


def _check_task(tx: Tx, flow: Flow, call: FunctionCall) -> None:
    """Refuse a task that is not in the queue, the partition or the place of its call, or was made due too early.

    Flow and call are under the log; the task, which is written with every heartbeat, is not.
    """
    task = leases.task(tx, flow.flow_id, ns=flow.ns)
    expected = leases.Task(call.queue or "", call.partition_key, flow.priority if call.queue else 0)
    too_early = flow.status == "CREATED" and call.not_before is not None and call.not_before > tx.now
    if task != expected:
        place = f"in {task.queue or 'no queue'}, partition {task.partition_key}, priority {task.priority}"
    elif too_early:
        place = f"due before {call.not_before}"
    else:
        return
    raise TamperedError(
        f"the task of flow {flow.flow_id} does not follow from its call: it is {place}",
        table="flow_leases",
        row=flow.flow_id,
    )


def rerun(function: RegisteredFunction, leased: LeasedCall) -> Work[Rerun]:
    """Run a leased flow again, and return how that ended."""
    message: str | None = None
    waits_for: str | None = None
    try:
        yield from conduct(function, leased.run, *calls.arguments(leased.call))
    except FlowSuspended as suspended:
        waits_for = suspended.waits_for
    except Exception as error:
        message = validation.error_text(error)
    lease = leased.run.lease
    flow = yield from ask(Read(lambda tx: flows.get(tx, lease.flow_id, ns=lease.ns)))
    return Rerun(flow, message, waits_for)


def orphans_except(tx: Tx, runnable: Collection[Runnable], limit: int, ns: str) -> tuple[Flow, ...]:
    """Return the orphans that none of the named functions runs."""
    others = [
        orphan.flow_id
        for orphan in leases.orphans(tx, ns=ns)
        if (orphan.name, orphan.version, orphan.called_by) not in runnable
    ]
    return tuple(flows.get(tx, flow_id, ns=ns) for flow_id in others[:limit])


# --- joining a flow that was called before ------------------------------------------------------------------------


def _join(function: RegisteredFunction, flow: Flow) -> Work[Any]:
    """Return the result of a flow that another call opened: wait for it, and resume it here if its worker is gone."""
    patience_s = _SILENT_S
    while True:
        leased = yield from ask(Write(partial(_lease_left, function=function, flow=flow)))
        if isinstance(leased, Rerun):
            raise TamperedError(
                f"flow {flow.flow_id} was stopped: {leased.error}", table="flow_calls", row=flow.flow_id
            )
        if isinstance(leased, LeasedCall):
            return (yield from conduct(function, leased.run, *calls.arguments(leased.call)))
        wait_s = function.lease_s / 2
        if leased is not None:
            # A worker that lives extends its lease by then; the end of one that died is not slept through.
            wait_s = min(wait_s, max(leased.remaining_s, _LEAST_WAIT_S))
        try:
            return (yield from results.wait(flow.flow_id, timeout_s=min(wait_s, patience_s), ns=flow.ns))
        except TimeoutExpiredError:
            if leased is not None and leased.remaining_s > patience_s:
                _tell_whom_it_waits_for(flow, leased)
                patience_s = math.inf


def _tell_whom_it_waits_for(flow: Flow, holder: leases.LeaseHolder) -> None:
    _log.warning(
        "flow %s belongs to worker %s, whose lease lasts another %.0f s: this call waits for its result, and continues"
        " the flow if that worker is gone by then (a shorter lease: lease_s=)",
        flow.flow_id,
        holder.worker,
        holder.remaining_s,
    )


def _lease_left(tx: Tx, function: FunctionSpec, flow: Flow) -> LeasedCall | Rerun | leases.LeaseHolder | None:
    """Lease a flow that nobody works on any more; else return who does, None for one that is due in a queue."""
    # Locked before the look: of several callers that find it left, those who come late find it leased again.
    if not flows.lock(tx, flow.flow_id, ns=flow.ns).is_worked_on or not leases.is_left(tx, flow.flow_id, ns=flow.ns):
        return leases.holder(tx, flow.flow_id, ns=flow.ns)
    worker = tx.new_id()
    lease = leases.try_lease(tx, flow.flow_id, worker, function.lease_s, flow.ns)
    if lease is None:
        return None
    return confirm(tx, function, flow.flow_id, lease.token, worker=worker, suspends=False, ns=flow.ns)
