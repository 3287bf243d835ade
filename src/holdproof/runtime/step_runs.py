"""Running a step: it is begun, its function is called, and how that ended is recorded (steps.py).

Rules:
- A step is begun in a transaction of its own before its function is called, and ended in one after it: what was begun
  and not ended is in doubt.
- A result is given to its caller once it is recorded, as a replay would give it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from holdproof import validation
from holdproof.db import Call, Read, Refused, Tx, Work, Write, ask
from holdproof.errors import (
    FlowEndedError,
    InvalidInputError,
    ReplayedError,
    StepTimeoutError,
    UnrecordableError,
)
from holdproof.evidence.tables import StoredRecord
from holdproof.model import typed_json
from holdproof.model.coordination import Escalation
from holdproof.model.flows import Step
from holdproof.runtime import escalations, inbox, recorded, steps, suspension
from holdproof.runtime.policy_gate import Awaited
from holdproof.runtime.steps import Journal, StepSpec
from holdproof.runtime.suspension import WorkerLease


def step(lease: WorkerLease, spec: StepSpec, fn: Callable[[], Any], journal: Journal) -> Work[Any]:
    """Run a step and return its result, or return what it gave when it ran before.

    Raises ReplayedError where it failed before, and UnknownOutcomeError where it is in doubt and `on_unknown` is fail.
    """
    validation.name("step", spec.name)
    validation.one_of("on_unknown", spec.on_unknown, steps.ON_UNKNOWN)
    earlier = journal.get((spec.name, spec.n))
    if earlier is not None:
        steps.check_same(lease, earlier.value, spec)
        if earlier.value.state in ("DONE", "FAILED"):
            return _replayed(lease, spec, earlier.value)
    first = yield from _begun(lease, spec, earlier)
    if earlier is not None:
        # Settled below, by whichever way: the record that was loaded is no longer the newest.
        del journal[spec.name, spec.n]
    current = first if first.value.state != "UNKNOWN" else (yield from _resolved(lease, spec, first))
    if current.value.state in ("DONE", "FAILED"):
        return _replayed(lease, spec, current.value)
    if current.value.state == "RETRYING":
        current = yield from _next_try(lease, current)
    return (yield from _execute(lease, current, spec, fn))


def _begun(lease: WorkerLease, spec: StepSpec, earlier: StoredRecord[Step] | None) -> Work[StoredRecord[Step]]:
    """Begin a step; where a policy asks about it, or about another act of the flow, only once that is approved."""
    approved = False
    while True:
        outcome: StoredRecord[Step] | Awaited | Refused = yield from ask(
            Write(partial(steps.begin, lease=lease, spec=spec, earlier=earlier, approved=approved))
        )
        assert not isinstance(outcome, Refused), "the executor raises a refusal"
        if isinstance(outcome, StoredRecord):
            return outcome
        answer = yield from wait_for_decision(lease, outcome.escalation)
        if not answer.approved:
            raise FlowEndedError(
                f"{answer.outcome} by {answer.resolved_by}: {answer.comment or answer.reason}",
                flow_id=lease.flow_id,
                escalation=answer.id,
            )
        approved = approved or outcome.own


def _replayed(lease: WorkerLease, spec: StepSpec, step: Step) -> Any:
    if step.state == "FAILED":
        raise ReplayedError(
            f"step {spec.name} failed before: {step.error}", step=spec.name, flow_id=lease.flow_id, error=step.error
        )
    return spec.decoded(step.result)


def _execute(lease: WorkerLease, record: StoredRecord[Step], spec: StepSpec, fn: Callable[[], Any]) -> Work[Any]:
    """Call the function, and record how it ended; anything but an Exception (cancellation) leaves the step in doubt."""
    while True:
        call: Call[Any] = Call(fn, spec.timeout_s)
        try:
            result = yield from ask(call)
        except StepTimeoutError:
            record = yield from _overran(lease, record, spec)
            if record.value.state in ("DONE", "FAILED"):
                return _replayed(lease, spec, record.value)
            continue
        except Exception as error:
            message = steps.error_text(lease, error)
            if not spec.policy.applies(record.value.attempts, error):
                failed = {"state": "FAILED", "error": message}
                yield from ask(Write(partial(steps.end, lease=lease, record=record, changes=failed)))
                raise
            record = yield from _try_again(lease, record, spec, message)
            continue
        return (yield from _done(lease, record, spec, result))


def _done(lease: WorkerLease, record: StoredRecord[Step], spec: StepSpec, result: Any) -> Work[Any]:
    """Record the result of a step, and return it as a replay would return it."""
    try:
        # Nobody gets the result of an undoing, so that it need not be recordable.
        encoded = None if record.value.compensates is not None else _encoded(spec, result)
        text = recorded.dump(encoded)
    except InvalidInputError as error:
        # It has happened, so it is in doubt: FAILED would say that there is nothing to undo.
        raise UnrecordableError(f"the result of step {spec.name}: {error.message}", step=spec.name) from error
    yield from ask(Write(partial(steps.end, lease=lease, record=record, changes={"state": "DONE"}, result=text)))
    return spec.decoded(recorded.parse(text))


def _encoded(spec: StepSpec, result: Any) -> Any:
    # What comes over a wire may not stand for content that its sender was not given.
    return typed_json.encode(typed_json.tagged(result, "it") if spec.raw else result, "it")


def _try_again(
    lease: WorkerLease, record: StoredRecord[Step], spec: StepSpec, message: str
) -> Work[StoredRecord[Step]]:
    """Record that a try failed, wait, and start the next one."""
    record = yield from ask(
        Write(partial(steps.retry_later, lease=lease, record=record, policy=spec.policy, error=message))
    )
    return (yield from _next_try(lease, record))


def _next_try(lease: WorkerLease, record: StoredRecord[Step]) -> Work[StoredRecord[Step]]:
    until = record.value.retry_at
    yield from suspension.wait(lease, lambda _: None, waits_for=f"the next try of {record.value.name}", until=until)
    return (yield from ask(Write(partial(steps.start_again, lease=lease, record=record))))


def _overran(lease: WorkerLease, record: StoredRecord[Step], spec: StepSpec) -> Work[StoredRecord[Step]]:
    """Do with a step that ran over its time limit what is done with one in doubt."""
    doubtful: StoredRecord[Step] | Refused = yield from ask(
        Write(partial(steps.doubt, lease=lease, spec=spec, record=record))
    )
    assert not isinstance(doubtful, Refused), "the executor raises a refusal"
    return doubtful if doubtful.value.state != "UNKNOWN" else (yield from _resolved(lease, spec, doubtful))


# --- steps in doubt ---------------------------------------------------------------------------------------------------


def _resolved(lease: WorkerLease, spec: StepSpec, record: StoredRecord[Step]) -> Work[StoredRecord[Step]]:
    """Wait for the decision about a step in doubt; return the step as the person wants it."""
    number = int((record.value.error or "").removeprefix(steps.ESCALATION))
    answer = yield from wait_for_decision(lease, number)
    return (yield from ask(Write(partial(steps.settle, lease=lease, spec=spec, answer=answer))))


def wait_for_decision(lease: WorkerLease, number: int) -> Work[Escalation]:
    """Wait until an escalation is resolved, by a person or by its deadline."""

    def look(tx: Tx) -> Escalation | None:
        # Whoever waits applies the default of a deadline itself: no sweep need be running.
        escalation = escalations.expire(tx, number, ns=lease.ns)
        return None if escalation.status == "PENDING" else escalation

    deadline = (yield from ask(Read(lambda tx: inbox.get(tx, number, ns=lease.ns)))).deadline
    answer = None
    while answer is None:
        answer = yield from suspension.wait(
            lease, look, waits_for=f"escalation {number}", topic=f"escalation:{number}", until=deadline
        )
    # Read anew, now that it is committed with its entry: what is acted on is what the log has.
    return (yield from ask(Read(lambda tx: inbox.confirmed(tx, number, ns=lease.ns))))
