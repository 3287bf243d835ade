"""Decisions: functions that are registered, so that what one worker began any other can end.

Rules:
- Calling one opens its flow and writes down the call in one transaction; the flow ends as the function ends (runs.py).
- `recover` runs orphans again whose function is registered here, in the version that began them, one after the other.
  Each is in the hands of exactly one worker; what it did before is replayed (steps.py).
- How a function ends is its flow's affair: no failure keeps `recover` from the next.
- What an agent asked for at the server is run again only by a function that is registered for that agent: nobody has
  the function of somebody else run with arguments of their own.
- What nobody here can run is left as it is, and named: plain blocks (`flows.run(resume=…)`), other functions, other
  versions.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdproof.db import Call, Read, Tx, Work, Write, ask
from holdproof.model.flows import Flow, Recovered, Rerun
from holdproof.runtime import calls, flows, leases, logged_rows, runs
from holdproof.runtime.calls import Called
from holdproof.runtime.logged_rows import MAIN
from holdproof.runtime.runs import Run
from holdproof.runtime.steps import StepLease

Runnable = tuple[str, str, str | None]
"""A function by name and version, called by the agent or by no agent."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Which function flows run, for how long a worker has one in hand, and whose it is."""

    name: str
    version: str
    lease_s: float
    agent_id: str | None
    """The agent that it is registered for, if for one."""

    @property
    def runs(self) -> set[Runnable]:
        """Which calls it takes up again."""
        return {(self.name, self.version, None), (self.name, self.version, self.agent_id)}


@dataclass(frozen=True, slots=True)
class Registered(Kind):
    """A function that flows run; `bind` gives it a flow in hand and its arguments."""

    bind: Callable[[Run, Sequence[Any], Mapping[str, Any]], Callable[[], Any]]


def decide(decision: Registered, args: Sequence[Any], kwargs: Mapping[str, Any], **opening: Any) -> Work[Any]:
    """Open a flow and run the function in it; `opening` is what `runs.enter` takes."""
    call = calls.called(decision.name, decision.version, args, kwargs)
    opening |= {"flow_type": decision.name, "flow_version": decision.version}
    run = yield from runs.enter(**opening, lease_s=decision.lease_s, called=call)
    return (yield from _conduct(decision, run, call))


def _conduct(decision: Registered, run: Run, called: Called) -> Work[Any]:
    """Run the function in a flow that is in hand, and end the flow as it ends."""
    call: Call[Any] = Call(decision.bind(run, *calls.arguments(called)))
    try:
        result = yield from ask(call)
    except Exception as error:
        yield from runs.abort(run, error)
        raise
    yield from runs.complete(run)
    return result


# --- recovering --------------------------------------------------------------------------------------------------


def recover(
    registry: Mapping[str, Registered], worker: str | None = None, *, limit: int = 100, ns: str = MAIN
) -> Work[Recovered]:
    """Run orphaned flows again whose function is registered here, `limit` at most; the rest is left, and named.

    A function that has to ask a person waits here for the answer; any number of workers may recover at once.
    """
    again: list[Rerun] = []
    for decision in tuple(registry.values()):
        while len(again) < logged_rows.limited(limit):
            taken = yield from ask(Write(partial(take, decision=decision, worker=worker, ns=ns)))
            if taken is None:
                break
            again.append((yield from _again(decision, *taken)))
    known = {runnable for decision in registry.values() for runnable in decision.runs}
    return Recovered(tuple(again), (yield from ask(Read(lambda tx: left(tx, known, limit, ns)))))


def take(tx: Tx, decision: Kind, worker: str | None, ns: str) -> tuple[Run, Called] | None:
    """One orphan of a function, in hand."""
    found = leases.recover(
        tx,
        worker or tx.new_id(),
        of=(decision.name, decision.version),
        agent_id=decision.agent_id,
        lease_s=decision.lease_s,
        limit=1,
        ns=ns,
    )
    for lease in found:
        call = calls.find(tx, lease.flow_id)
        assert call is not None, "it was found by its call"
        return Run(StepLease(lease.flow_id, lease.token, decision.lease_s, ns)), call
    return None


def _again(decision: Registered, run: Run, called: Called) -> Work[Rerun]:
    words: str | None = None
    try:
        yield from _conduct(decision, run, called)
    except Exception as error:
        words = logged_rows.words(error)
    return Rerun((yield from ask(Read(lambda tx: flows.get(tx, run.hand.flow_id, ns=run.hand.ns)))), words)


def left(tx: Tx, known: Collection[Runnable], limit: int, ns: str) -> tuple[Flow, ...]:
    """Orphans that none of the functions runs which are known."""
    others = [one.flow_id for one in leases.orphans(tx, ns=ns) if (one.name, one.version, one.asked_by) not in known]
    return tuple(flows.get(tx, flow_id, ns=ns) for flow_id in others[:limit])
