"""A flow as a block of code: entered, worked in step by step, left.

Rules:
- Entering opens the flow and takes it in hand; entering again (`resume`) takes up one whose worker is gone.
- Leaving the block completes the flow. An exception fails it: what its steps did is undone in reverse order, each
  undoing a step of its own. Without anything to undo the flow is FAILED, else COMPENSATED. A flow that is being undone
  is undone to the end, however its block is left.
- An undoing that fails leaves the flow FAILED and dirty, with its locks. So does a block that was entered again and
  failed before it came to all that is to be undone, or one that left such a step unfinished (a time limit, a neighbour
  that failed): then nothing is undone out of order.
- A flow that was dirty already is not clean because its steps are undone: it is FAILED, and waits for a compensation.
- A block that left a step unfinished and goes on all the same (it caught the time limit) completes, and an audit event
  says which steps nobody knows the end of.
- An undoing is named after its step, so no other step's name begins with `undo `.
- A step has no steps and asks no questions of its own flow inside: when it is replayed they would not be counted, and
  the next of their name would get their results.
- A question is asked once: a block that is entered again waits for its answer, or has it.
- A worker that lost the flow changes nothing more; one that is killed or cancelled leaves it to be recovered.
"""

from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from holdproof.db import Read, Refused, Tx, Work, Write, ask, lock_exclusive
from holdproof.errors import (
    CompensationFailedError,
    ContentionTimeoutError,
    FlowEndedError,
    InvalidInputError,
    LeaseLostError,
)
from holdproof.model.coordination import Escalation, Lock
from holdproof.model.flows import TERMINAL, UNDOABLE, Flow, legal
from holdproof.runtime import audit, calls, escalations, flows, inbox, leases, locks, logged_rows, sagas, steps
from holdproof.runtime.calls import Called
from holdproof.runtime.logged_rows import MAIN
from holdproof.runtime.steps import OnUnknown, Plan, StepLease

_UNDO: Final = "undo "
_MOST: Final = " 999999"
"""The number of a step, at its longest."""
_INSIDE: Final[ContextVar[frozenset[str]]] = ContextVar("holdproof_steps", default=frozenset())
"""The flows in one of whose steps the caller is."""


@dataclass(slots=True)
class Run:
    """A flow in hand: how often each step was taken and each question asked, and what there is to undo."""

    hand: StepLease
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    undoing: list[tuple[str, int, Callable[[], Any]]] = field(default_factory=list)

    def count(self, kind: str, name: str) -> int:
        """Which one this is of its name."""
        self.counts[kind, name] += 1
        return self.counts[kind, name]


def enter(
    agent_id: str | None = None,
    *,
    resume: str | None = None,
    worker: str | None = None,
    lease_s: float = leases.LEASE_S,
    ns: str = MAIN,
    called: Called | None = None,
    **opening: Any,
) -> Work[Run]:
    """Open a flow for an agent, or take up again the one to resume; `opening` is what `flows.start` takes.

    `called` is the registered function that a new flow runs.
    """
    if (agent_id is None) == (resume is None):
        raise InvalidInputError("say either whose flow is to be opened or which one to resume")

    def take(tx: Tx) -> Run:
        flow_id = resume if agent_id is None else flows.start(tx, agent_id, ns=ns, **opening).flow_id
        assert flow_id is not None
        flow = flows.hold(tx, flow_id, ns=ns)
        if called is not None:
            calls.record(tx, flow_id, called, ns=ns)
        if flow.status == "CREATED":
            flows.transition(tx, flow_id, "RUNNING", ns=ns)
        lease = leases.lease(tx, flow_id, worker or tx.new_id(), lease_s=lease_s, ns=ns)
        return Run(StepLease(flow_id, lease.token, lease_s, ns))

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
    _nameable(name, undone=compensate is not None)
    outside = _outside(run, f"step {name}")
    n = run.count("step", name)
    plan = Plan(name, n, undo=compensate is not None, on_unknown=on_unknown)
    _INSIDE.set(outside | {run.hand.flow_id})
    try:
        result = yield from steps.step(run.hand, plan, partial(fn, *args, **kwargs))
    finally:
        _INSIDE.set(outside)
    if compensate is not None:
        run.undoing.append((name, n, partial(compensate, result)))
    return result


def _outside(run: Run, what: str) -> frozenset[str]:
    """The flows in one of whose steps this is called; refused if ours is among them."""
    inside = _INSIDE.get()
    if run.hand.flow_id in inside:
        raise InvalidInputError(
            f"{what} is inside a step, which is replayed whole: take it out", flow_id=run.hand.flow_id
        )
    return inside


def _nameable(name: str, *, undone: bool) -> None:
    """Refuse a name now that its undoing could not bear later."""
    if logged_rows.name("step", name).startswith(_UNDO):
        raise InvalidInputError(f"steps that begin with {_UNDO!r} are those that undo others", step=name)
    if undone:
        logged_rows.name("a step and its undoing together", f"{_UNDO}{name}{_MOST}")


def lock(run: Run, /, resources: dict[str, float], *, timeout_s: float = 5.0, **options: Any) -> Work[tuple[Lock, ...]]:
    """Acquire resources until the flow ends; options are those of `locks.acquire`. Waiting keeps the flow in hand."""
    hand = run.hand
    attempt = partial(_granted, hand=hand, resources=resources, options=options)
    return (yield from locks.acquire_with_retry(attempt, timeout_s=timeout_s, every_s=hand.lease_s / 3, ns=hand.ns))


def _granted(
    tx: Tx, hand: StepLease, resources: dict[str, float], options: dict[str, Any]
) -> tuple[Lock, ...] | Refused:
    """The resources, if the flow is still ours; to be told to wait is a heartbeat too."""
    _still_ours(tx, hand)
    try:
        return locks.try_acquire(tx, hand.flow_id, resources, ns=hand.ns, **options)
    except ContentionTimeoutError as error:
        return Refused(error)


def question(run: Run, /, reason: str, **options: Any) -> Work[Escalation]:
    """Ask a person and wait; options are those of `escalations.request`. FlowEndedError unless they approve."""
    _outside(run, "a question")
    hand, n = run.hand, run.count("ask", reason)
    asked = yield from ask(Write(lambda tx: _asked(tx, hand, reason, n, options)))
    assert not isinstance(asked, Refused), "the face raises it"
    answer = yield from steps.attend(hand, asked.id)
    if not answer.approved:
        raise FlowEndedError(
            f"{answer.status} by {answer.resolved_by}: {answer.comment or reason}",
            flow_id=hand.flow_id,
            escalation=answer.id,
        )
    yield from beat(run)
    return answer


def _asked(tx: Tx, hand: StepLease, reason: str, n: int, options: dict[str, Any]) -> Escalation | Refused:
    """The question, asked now or by a worker that is gone."""
    flows.hold(tx, hand.flow_id, ns=hand.ns)
    if (known := inbox.nth(tx, hand.flow_id, reason, n)) is not None:
        return known
    leases.heartbeat(tx, hand.flow_id, hand.token, lease_s=hand.lease_s, ns=hand.ns)
    return escalations.request(tx, hand.flow_id, reason=reason, ns=hand.ns, **options)


def beat(run: Run) -> Work[None]:
    """Say that the worker lives, between steps that are far apart."""
    hand = run.hand
    yield from ask(Write(lambda tx: leases.heartbeat(tx, hand.flow_id, hand.token, lease_s=hand.lease_s, ns=hand.ns)))


# --- leaving -----------------------------------------------------------------------------------------------------


def complete(run: Run) -> Work[Flow]:
    """Leave the block as it should be left."""
    flow = yield from ask(Write(partial(_complete, run=run)))
    if flow.status != "COMPENSATING":
        return flow
    flow = yield from _undo(run, "it was being undone")
    raise FlowEndedError(f"flow {flow.flow_id} was being undone, and is {flow.status}", flow_id=flow.flow_id)


def _complete(tx: Tx, run: Run) -> Flow:
    hand = run.hand
    flow = flows.hold(tx, hand.flow_id, ns=hand.ns)
    if flow.ended or flow.status == "COMPENSATING":  # the block ended it itself, or it did not fail a second time
        return flow
    leases.heartbeat(tx, hand.flow_id, hand.token, ns=hand.ns)
    if unsure := flows.unfinished(tx, hand.flow_id):
        steps_left = [f"{name} {n}" for name, n in unsure]
        audit.record(tx, hand.flow_id, "STEPS_UNFINISHED", severity="WARNING", detail={"steps": steps_left}, ns=hand.ns)
    return flows.transition(tx, hand.flow_id, "COMPLETED", ns=hand.ns)


def abort(run: Run, error: Exception) -> Work[Flow]:
    """Leave the block by an exception: undo what was done, in reverse order."""
    if _lost(run, error):
        return (yield from ask(Read(lambda tx: flows.get(tx, run.hand.flow_id, ns=run.hand.ns))))
    return (yield from _undo(run, logged_rows.words(error)))


def _lost(run: Run, error: Exception) -> bool:
    """Whether it is this flow that was lost, and not another one, or a key, that its functions work on."""
    return isinstance(error, LeaseLostError) and error.fields.get("flow_id") == run.hand.flow_id


def _undo(run: Run, reason: str) -> Work[Flow]:
    flow, hand, missed = yield from ask(Write(partial(_compensating, run=run, reason=reason)))
    if flow.ended:
        return flow
    run.hand = hand
    if missed:
        yield from ask(Write(partial(_dirty, hand=hand, left=missed, words=reason)))
        raise CompensationFailedError(f"the block failed without knowing how {missed[-1]} ended", flow_id=hand.flow_id)
    while run.undoing:
        name, n, undo = run.undoing[-1]
        plan = Plan(f"{_UNDO}{name}", n, compensates=f"{name} {n}")
        try:
            yield from steps.step(hand, plan, undo)
        except Exception as trouble:
            if _lost(run, trouble):
                raise
            left, words = [f"{name} {n}" for name, n, _ in run.undoing], logged_rows.words(trouble)
            yield from ask(Write(partial(_dirty, hand=hand, left=left, words=words)))
            raise CompensationFailedError(f"step {name} could not be undone", flow_id=hand.flow_id) from trouble
        run.undoing.pop()
    return (yield from ask(Write(partial(_undone, hand=hand, reason=reason))))


def _compensating(tx: Tx, run: Run, reason: str) -> tuple[Flow, StepLease, list[str]]:
    """The flow in hand for undoing, and what this run cannot undo; or ended, with nothing to undo."""
    hand, reached = run.hand, {(name, n) for name, n, _ in run.undoing}
    flow, left = flows.hold(tx, hand.flow_id, ns=hand.ns), flows.to_undo(tx, hand.flow_id)
    if flow.status in TERMINAL - UNDOABLE or (flow.ended and not left):
        return flow, hand, []
    unsure = flows.unfinished(tx, hand.flow_id, undo=True)
    if flow.status != "COMPENSATING":
        flow = _failing(tx, hand, flow, "COMPENSATING" if left or reached or unsure else "FAILED", reason)
    beyond = [step for step in left if step not in reached]
    missed = [f"{name} {n}" for name, n in (*left, *unsure)] if beyond or unsure else []
    return flow, hand if flow.ended else _in_hand(tx, hand), missed


def _failing(tx: Tx, hand: StepLease, flow: Flow, to: str, reason: str) -> Flow:
    """Fail a flow that is ours, if it has not failed yet, or begin to undo it."""
    if not flow.ended:
        leases.heartbeat(tx, hand.flow_id, hand.token, lease_s=hand.lease_s, ns=hand.ns)
    if not legal(flow.status, to):  # it waits for an answer that nobody needs any more
        flows.transition(tx, hand.flow_id, "FAILED", reason=reason, ns=hand.ns)
    return flows.transition(tx, hand.flow_id, to, reason=reason, ns=hand.ns)


def _in_hand(tx: Tx, hand: StepLease) -> StepLease:
    """The flow still in hand, or again if its end took it away and nobody else has had it since."""
    try:
        leases.heartbeat(tx, hand.flow_id, hand.token, lease_s=hand.lease_s, ns=hand.ns)
    except LeaseLostError:
        return replace(hand, token=leases.again(tx, hand.flow_id, hand.token, lease_s=hand.lease_s, ns=hand.ns).token)
    return hand


def _undone(tx: Tx, hand: StepLease, reason: str) -> Flow:
    """All steps are undone; a flow that is dirty for another reason is not clean by that."""
    _still_ours(tx, hand)
    to = "FAILED" if sagas.is_dirty(tx, hand.flow_id) else "COMPENSATED"
    return flows.transition(tx, hand.flow_id, to, reason=reason, ns=hand.ns)


def _still_ours(tx: Tx, hand: StepLease) -> None:
    lock_exclusive(tx, f"flow:{hand.flow_id}")
    leases.heartbeat(tx, hand.flow_id, hand.token, lease_s=hand.lease_s, ns=hand.ns)


def _dirty(tx: Tx, hand: StepLease, left: list[str], words: str) -> None:
    _still_ours(tx, hand)
    sagas.mark_dirty(tx, hand.flow_id, left[-1], {"to_undo": left, "error": words}, ns=hand.ns)
    flows.transition(tx, hand.flow_id, "FAILED", reason="compensation failed", ns=hand.ns)
