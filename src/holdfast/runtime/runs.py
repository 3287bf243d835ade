"""A flow as a block of code: entered, worked in step by step, left.

Rules:
- Entering opens the flow and takes it in hand; entering again (`resume`) takes up one whose worker is gone.
- Leaving the block completes the flow. An exception fails it: what its steps did is undone in reverse order, each
  undoing a step of its own. Without anything to undo the flow is FAILED, else COMPENSATED.
- An undoing that fails leaves the flow FAILED and dirty, with its locks.
- A worker that lost the flow changes nothing more; one that is killed or cancelled leaves it to be recovered.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from holdfast.db import Read, Refused, Tx, Work, Write, ask
from holdfast.errors import CompensationFailedError, FlowEndedError, InvalidInputError, LeaseLostError
from holdfast.model.flows import Flow
from holdfast.model.guards import Escalation, Lock
from holdfast.runtime import escalations, flows, inbox, leases, locks, sagas, steps
from holdfast.runtime.rows import MAIN
from holdfast.runtime.steps import Hand, OnUnknown, Plan


@dataclass(slots=True)
class Run:
    """A flow in hand: how often each name was stepped, and what there is to undo."""

    hand: Hand
    counts: dict[str, int] = field(default_factory=dict)
    undoing: list[tuple[str, int, Callable[[], Any]]] = field(default_factory=list)


def enter(
    agent_id: str | None = None,
    *,
    resume: str | None = None,
    worker: str | None = None,
    lease_s: float = leases.LEASE_S,
    ns: str = MAIN,
    **opening: Any,
) -> Work[Run]:
    """Open a flow for an agent, or take up again the one to resume; `opening` is what `flows.start` takes."""
    if (agent_id is None) == (resume is None):
        raise InvalidInputError("say either whose flow is to be opened or which one to resume")

    def take(tx: Tx) -> Run:
        dfid = resume if agent_id is None else flows.start(tx, agent_id, ns=ns, **opening).dfid
        assert dfid is not None
        flow = flows.hold(tx, dfid, ns=ns)
        if flow.status == "CREATED":
            flows.transition(tx, dfid, "RUNNING", ns=ns)
        lease = leases.lease(tx, dfid, worker or tx.new_id(), lease_s=lease_s, ns=ns)
        return Run(Hand(dfid, lease.token, lease_s, ns))

    return (yield from ask(Write(take)))


def step(
    run: Run,
    name: str,
    fn: Callable[..., Any],
    /,
    *args: Any,
    compensate: Callable[[Any], Any] | None = None,
    on_unknown: OnUnknown = "ask",
    **kwargs: Any,
) -> Work[Any]:
    """Run a step once, whatever happens, and give its result; `compensate` gets the result if it is to be undone.

    `on_unknown` is "ask", "retry" or "fail": what to do if a worker that is gone began it and never finished.
    """
    n = run.counts[name] = run.counts.get(name, 0) + 1
    plan = Plan(name, n, undo=compensate is not None, on_unknown=on_unknown)
    result = yield from steps.step(run.hand, plan, partial(fn, *args, **kwargs))
    if compensate is not None:
        run.undoing.append((name, n, partial(compensate, result)))
    return result


def lock(run: Run, /, resources: dict[str, float], **options: Any) -> Work[tuple[Lock, ...]]:
    """Acquire resources until the flow ends; options are those of `locks.acquire`."""
    return (yield from locks.acquire(run.hand.dfid, resources, ns=run.hand.ns, **options))


def question(run: Run, /, reason: str, **options: Any) -> Work[Escalation]:
    """Ask a person and wait; options are those of `escalations.request`. FlowEndedError unless they approve."""
    hand = run.hand
    asked: Escalation | Refused = yield from ask(
        Write(lambda tx: escalations.request(tx, hand.dfid, reason=reason, ns=hand.ns, **options))
    )
    assert not isinstance(asked, Refused), "the face raises it"
    answer = yield from inbox.wait(asked.id, ns=hand.ns)
    if not answer.approved:
        raise FlowEndedError(
            f"{answer.status} by {answer.resolved_by}: {answer.comment or reason}", dfid=hand.dfid, escalation=answer.id
        )
    yield from beat(run)
    return answer


def beat(run: Run) -> Work[None]:
    """Say that the worker lives, between steps that are far apart."""
    hand = run.hand
    yield from ask(Write(lambda tx: leases.heartbeat(tx, hand.dfid, hand.token, lease_s=hand.lease_s, ns=hand.ns)))


# --- leaving -----------------------------------------------------------------------------------------------------


def complete(run: Run) -> Work[Flow]:
    """Leave the block as it should be left."""
    hand = run.hand

    def end(tx: Tx) -> Flow:
        flow = flows.hold(tx, hand.dfid, ns=hand.ns)
        if flow.ended:  # the block did that itself
            return flow
        leases.heartbeat(tx, hand.dfid, hand.token, ns=hand.ns)
        return flows.transition(tx, hand.dfid, "COMPLETED", ns=hand.ns)

    return (yield from ask(Write(end)))


def abort(run: Run, error: Exception) -> Work[Flow]:
    """Leave the block by an exception: undo what was done, in reverse order."""
    if isinstance(error, LeaseLostError):
        return (yield from ask(Read(lambda tx: flows.get(tx, run.hand.dfid, ns=run.hand.ns))))
    reason = f"{type(error).__name__}: {error}"
    if not run.undoing:
        return (yield from ask(Write(partial(_fail, run=run, reason=reason))))
    hand = run.hand = yield from ask(Write(partial(_compensating, run=run, reason=reason)))
    while run.undoing:
        name, n, undo = run.undoing[-1]
        plan = Plan(f"undo {name}", n, compensates=f"{name} {n}")
        try:
            yield from steps.step(hand, plan, undo)
        except LeaseLostError:
            raise
        except Exception as trouble:
            yield from ask(Write(partial(_dirty, run=run, words=f"{type(trouble).__name__}: {trouble}")))
            raise CompensationFailedError(f"step {name} could not be undone", dfid=hand.dfid) from trouble
        run.undoing.pop()
    return (yield from ask(Write(lambda tx: flows.transition(tx, hand.dfid, "COMPENSATED", reason=reason, ns=hand.ns))))


def _fail(tx: Tx, run: Run, reason: str) -> Flow:
    hand = run.hand
    flow = flows.hold(tx, hand.dfid, ns=hand.ns)
    if flow.ended:
        return flow
    leases.heartbeat(tx, hand.dfid, hand.token, ns=hand.ns)
    return flows.transition(tx, hand.dfid, "FAILED", reason=reason, ns=hand.ns)


def _compensating(tx: Tx, run: Run, reason: str) -> Hand:
    """The flow in hand for undoing: still, or again if its end took it away."""
    hand = run.hand
    flow = flows.hold(tx, hand.dfid, ns=hand.ns)
    if flow.status == "WAITING_ESCALATION":
        flow = flows.transition(tx, hand.dfid, "FAILED", reason=reason, ns=hand.ns)
    if flow.ended:
        flows.transition(tx, hand.dfid, "COMPENSATING", reason=reason, ns=hand.ns)
        lease = leases.lease(tx, hand.dfid, tx.new_id(), lease_s=hand.lease_s, ns=hand.ns)
        return Hand(hand.dfid, lease.token, hand.lease_s, hand.ns)
    leases.heartbeat(tx, hand.dfid, hand.token, lease_s=hand.lease_s, ns=hand.ns)
    if flow.status == "RUNNING":
        flows.transition(tx, hand.dfid, "COMPENSATING", reason=reason, ns=hand.ns)
    return hand


def _dirty(tx: Tx, run: Run, words: str) -> None:
    hand, left = run.hand, [f"{name} {n}" for name, n, _ in run.undoing]
    sagas.mark_dirty(tx, hand.dfid, left[-1], {"to_undo": left, "error": words}, ns=hand.ns)
    flows.transition(tx, hand.dfid, "FAILED", reason="compensation failed", ns=hand.ns)
