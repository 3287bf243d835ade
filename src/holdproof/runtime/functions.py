"""Registered functions: what one worker started any other can finish.

Rules:
- Calling one opens its flow and writes the call in one transaction; the flow ends as the function ends (runs.py).
- `recover` runs orphans again whose function is registered here, in the version that started them, one after the other.
  Each is leased to exactly one worker; its finished steps are replayed (steps.py).
- A function that fails fails its own flow; `recover` goes on with the next.
- What an agent called at the server is run again only by a function that is registered for that agent: nobody can have
  another agent's function run with arguments of their own.
- What no function here can run is left as it is, and returned: plain blocks (`flows.run(resume=…)`), other functions,
  other versions.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdproof import validation
from holdproof.db import Call, Read, Tx, Work, Write, ask
from holdproof.model.flows import Flow, Recovery, Rerun
from holdproof.model.namespaces import MAIN
from holdproof.runtime import calls, flows, leases, runs
from holdproof.runtime.calls import FunctionCall
from holdproof.runtime.runs import FlowRun
from holdproof.runtime.steps import WorkerLease

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

    @property
    def runs(self) -> set[Runnable]:
        """Which calls it runs again."""
        return {(self.name, self.version, None), (self.name, self.version, self.agent_id)}


@dataclass(frozen=True, slots=True)
class RegisteredFunction(FunctionSpec):
    """A function of this process; `bind` gives it the open flow and its arguments."""

    bind: Callable[[FlowRun, Sequence[Any], Mapping[str, Any]], Callable[[], Any]]


def call(function: RegisteredFunction, args: Sequence[Any], kwargs: Mapping[str, Any], **opening: Any) -> Work[Any]:
    """Open a flow and run the function in it; `opening` is what `runs.enter` takes."""
    written = calls.call_of(function.name, function.version, args, kwargs)
    opening |= {"flow_type": function.name, "flow_version": function.version}
    run = yield from runs.enter(**opening, lease_s=function.lease_s, call=written)
    return (yield from _conduct(function, run, written))


def _conduct(function: RegisteredFunction, run: FlowRun, written: FunctionCall) -> Work[Any]:
    """Run the function in a leased flow, and end the flow as the function ends."""
    args, kwargs = calls.arguments(written)
    effect: Call[Any] = Call(function.bind(run, args, kwargs))
    try:
        result = yield from ask(effect)
    except Exception as error:
        yield from runs.abort(run, error)
        raise
    yield from runs.complete(run)
    return result


# --- recovering --------------------------------------------------------------------------------------------------


def recover(
    registry: Mapping[str, RegisteredFunction], worker: str | None = None, *, limit: int = 100, ns: str = MAIN
) -> Work[Recovery]:
    """Run at most `limit` orphaned flows again whose function is registered here; the other orphans are returned.

    A function that requests a decision waits here for it; any number of workers may recover at once.
    """
    validation.limited(limit)
    reruns: list[Rerun] = []
    # A copy: a function that runs may register others.
    for function in tuple(registry.values()):
        while len(reruns) < limit:
            leased = yield from ask(Write(partial(lease_orphan, function=function, worker=worker, ns=ns)))
            if leased is None:
                break
            run, written = leased
            reruns.append((yield from _rerun(function, run, written)))
    runnable = {each for function in registry.values() for each in function.runs}
    # Read after the reruns: what they finished is no orphan any more.
    others = yield from ask(Read(lambda tx: orphans_except(tx, runnable, limit, ns)))
    return Recovery(tuple(reruns), others)


def lease_orphan(tx: Tx, function: FunctionSpec, worker: str | None, ns: str) -> tuple[FlowRun, FunctionCall] | None:
    """Lease one orphan of a function; None where there is none."""
    leased = leases.recover(
        tx,
        worker or tx.new_id(),
        of=(function.name, function.version),
        agent_id=function.agent_id,
        lease_s=function.lease_s,
        limit=1,
        ns=ns,
    )
    for lease in leased:
        written = calls.find(tx, lease.flow_id, ns=ns)
        assert written is not None, "the orphan was selected by its call"
        return FlowRun(WorkerLease(lease.flow_id, lease.token, function.lease_s, ns)), written
    return None


def _rerun(function: RegisteredFunction, run: FlowRun, written: FunctionCall) -> Work[Rerun]:
    message: str | None = None
    try:
        yield from _conduct(function, run, written)
    except Exception as error:
        message = validation.error_text(error)
    lease = run.lease
    flow = yield from ask(Read(lambda tx: flows.get(tx, lease.flow_id, ns=lease.ns)))
    return Rerun(flow, message)


def orphans_except(tx: Tx, runnable: Collection[Runnable], limit: int, ns: str) -> tuple[Flow, ...]:
    """Return the orphans that none of the named functions runs."""
    others = [
        orphan.flow_id
        for orphan in leases.orphans(tx, ns=ns)
        if (orphan.name, orphan.version, orphan.called_by) not in runnable
    ]
    return tuple(flows.get(tx, flow_id, ns=ns) for flow_id in others[:limit])
