"""Steps: durable units of work inside a flow.

Rules:
- A step that is DONE never runs again: its result is returned. One that FAILED fails again in the same way.
- A step that was started by a worker that is gone is in doubt (UNKNOWN), and never run again silently: `retry` runs it,
  `fail` fails it, `ask` (the default) escalates, at no cost to the agent's budget. Approved as proposed runs it again,
  approved with changes takes the changes as its result, anything else fails it.
- Only the worker that has the flow's lease starts and ends steps; each of them is a heartbeat, and one that waits for a
  person sends more.
- While a flow compensates, no new step starts but those that undo.
- A result that is not JSON fails its step; a step that can be undone stays in doubt instead, since it has happened.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from holdproof import validation
from holdproof.crypto import canonical
from holdproof.db import Call, Refused, Tx, Work, Write, ask, lock_exclusive, sql
from holdproof.errors import FlowEndedError, LeaseLostError, ReplayedError, UnknownOutcomeError
from holdproof.evidence.tables import StoredRecord, Table
from holdproof.model import jsontext
from holdproof.model.coordination import Escalation
from holdproof.model.flows import Step
from holdproof.model.namespaces import MAIN
from holdproof.runtime import escalations, flows, inbox, leases

STEPS: Final = Table(
    "flow_steps",
    Step,
    kind="step",
    key="step_id",
    logged=(
        *("step_id", "dfid", "name", "n", "state", "compensates", "result", "error", "undo", "started_at"),
        *("finished_at", "ns"),
    ),
    loads={"result": jsontext.load, "undo": bool},
)
OnUnknown = Literal["ask", "retry", "fail"]
ON_UNKNOWN: Final = frozenset({"ask", "retry", "fail"})
_ESCALATION: Final = "escalation:"
"""The `error` of a step in doubt: this, and the number of its escalation."""


@dataclass(frozen=True, slots=True)
class WorkerLease:
    """The lease by which this worker works on a flow."""

    flow_id: str
    token: int
    lease_s: float = leases.LEASE_S
    ns: str = MAIN


@dataclass(frozen=True, slots=True)
class StepSpec:
    """A step as its caller declares it; `compensates` is the step that it undoes."""

    name: str
    n: int
    undo: bool = False
    on_unknown: OnUnknown = "ask"
    compensates: str | None = None


def extend(tx: Tx, lease: WorkerLease) -> None:
    """Extend the lease of a flow that is locked; LeaseLostError where it is another worker's by now."""
    leases.heartbeat(tx, lease.flow_id, lease.token, lease_s=lease.lease_s, ns=lease.ns)


def step(lease: WorkerLease, spec: StepSpec, fn: Callable[[], Any]) -> Work[Any]:
    """Run a step and return its result, or return what it gave when it ran before.

    Raises ReplayedError where it failed before, and UnknownOutcomeError where it is in doubt and `on_unknown` is fail.
    """
    validation.name("step", spec.name)
    validation.one_of("on_unknown", spec.on_unknown, ON_UNKNOWN)
    first: Step | Refused = yield from ask(Write(partial(_begin, lease=lease, spec=spec)))
    assert not isinstance(first, Refused), "the executor raises a refusal"
    current = first if first.state != "UNKNOWN" else (yield from _resolved(lease, spec, first))
    if current.state == "DONE":
        return current.result
    if current.state == "FAILED":
        raise ReplayedError(f"step {spec.name} failed before: {current.error}", step=spec.name, flow_id=lease.flow_id)
    return (yield from _execute(lease, current, fn))


def _execute(lease: WorkerLease, current: Step, fn: Callable[[], Any]) -> Work[Any]:
    """Call the function, and record how it ended; anything but an Exception (cancellation) leaves the step in doubt."""
    call: Call[Any] = Call(fn)
    happened = False
    try:
        result = yield from ask(call)
        happened = True
        # Nobody gets the result of an undoing, so that it need not be JSON.
        text = canonical.dump_text(result if current.compensates is None else None)
    except Exception as error:
        if happened and current.undo:  # FAILED would say that there is nothing to undo
            raise
        message = validation.error_text(error)
        yield from ask(Write(partial(_end, lease=lease, step=current, state="FAILED", error=message)))
        raise
    yield from ask(Write(partial(_end, lease=lease, step=current, state="DONE", result=text)))
    return jsontext.load(text)


# --- transactions ------------------------------------------------------------------------------------------------

_FIND = sql(STEPS.select("WHERE dfid = :dfid AND ns = :ns AND name = :name AND n = :n", leaf=True))
_ADD = sql(STEPS.insert())
_CHANGE = sql(
    STEPS.update(
        *("state", "result", "error", "started_at", "finished_at"),
        where="step_id = :step_id AND leaf_ver = :leaf_ver - 1",
    )
)


def _find(tx: Tx, lease: WorkerLease, name: str, n: int) -> StoredRecord[Step] | None:
    row = tx.one(_FIND, dfid=lease.flow_id, ns=lease.ns, name=name, n=n)
    return None if row is None else STEPS.record(row)


def _begin(tx: Tx, lease: WorkerLease, spec: StepSpec) -> Step | Refused:
    """Return the step: STARTED if this worker is to run it now, DONE, FAILED, or UNKNOWN if a person is to decide."""
    # Starting a step is a heartbeat, and proves in the same transaction that the worker still has the lease.
    flow = flows.lock(tx, lease.flow_id, ns=lease.ns)
    extend(tx, lease)
    record = _find(tx, lease, spec.name, spec.n)
    if record is not None and record.value.state != "STARTED":
        return record.value
    if flow.status != ("RUNNING" if spec.compensates is None else "COMPENSATING"):
        raise FlowEndedError(f"flow {flow.flow_id} is {flow.status}", flow_id=flow.flow_id, flow_status=flow.status)
    if record is not None:
        return _in_doubt(tx, lease, spec, record)
    row = {
        **dict.fromkeys(STEPS.columns),
        "step_id": tx.new_id(),
        "dfid": lease.flow_id,
        "name": spec.name,
        "n": spec.n,
        "state": "STARTED",
        "compensates": spec.compensates,
        "undo": int(spec.undo),
        "started_at": tx.now,
        "ns": lease.ns,
    }
    STEPS.add(tx, _ADD, row)
    return STEPS.from_columns(row)


def _in_doubt(tx: Tx, lease: WorkerLease, spec: StepSpec, record: StoredRecord[Step]) -> Step | Refused:
    """Do with a step that a worker started and never finished what its caller says."""
    if spec.on_unknown == "retry":
        return _change(tx, record, {"state": "STARTED", "started_at": tx.now})
    reason = f"step {spec.name} was started and never finished"
    if spec.on_unknown == "fail":
        _change(tx, record, {"state": "FAILED", "error": "its outcome is unknown", "finished_at": tx.now})
        return Refused(UnknownOutcomeError(reason, step=spec.name, flow_id=lease.flow_id))
    context = {"step": spec.name, "n": spec.n, "started_at": record.value.started_at}
    escalation = escalations.alert(tx, lease.flow_id, reason=reason, context=context, ns=lease.ns)
    return _change(tx, record, {"state": "UNKNOWN", "error": f"{_ESCALATION}{escalation.id}"})


def _change(tx: Tx, record: StoredRecord[Step], changes: Mapping[str, Any]) -> Step:
    return STEPS.change(tx, _CHANGE, record, changes)


def _end(
    tx: Tx, *, lease: WorkerLease, step: Step, state: str, result: str | None = None, error: str | None = None
) -> None:
    """StoredRecord how a step ended, if this worker still has the lease."""
    lock_exclusive(tx, f"flow:{lease.flow_id}")
    extend(tx, lease)
    record = _find(tx, lease, step.name, step.n)
    if record is None or record.value.state != "STARTED":
        raise LeaseLostError(f"step {step.name} was settled by somebody else", flow_id=step.flow_id, step=step.name)
    _change(tx, record, {"state": state, "result": result, "error": error, "finished_at": tx.now})


def asks_about(step: Step, escalation_id: int) -> bool:
    """Whether an escalation asks about this step, which was started and never confirmed."""
    return step.state == "UNKNOWN" and step.error == f"{_ESCALATION}{escalation_id}"


def _resolved(lease: WorkerLease, spec: StepSpec, current: Step) -> Work[Step]:
    """Wait for the decision about a step in doubt; return the step as the person wants it."""
    number = int((current.error or "").removeprefix(_ESCALATION))
    answer = yield from wait_for_decision(lease, number)
    return (yield from ask(Write(partial(_settle, lease=lease, spec=spec, answer=answer))))


def wait_for_decision(lease: WorkerLease, number: int) -> Work[Escalation]:
    """Wait until an escalation is resolved, and extend the lease meanwhile."""
    while True:
        escalation = yield from inbox.wait(number, timeout_s=lease.lease_s / 3, ns=lease.ns)
        if escalation.status != "PENDING":
            return escalation
        yield from ask(Write(partial(_extend_pending, lease=lease, number=number)))


def _extend_pending(tx: Tx, lease: WorkerLease, number: int) -> None:
    lock_exclusive(tx, f"flow:{lease.flow_id}")
    # A resolution may have ended the flow, and with it the lease: that is no lost lease.
    if inbox.get(tx, number, ns=lease.ns).status == "PENDING":
        extend(tx, lease)


def _settle(tx: Tx, *, lease: WorkerLease, spec: StepSpec, answer: Escalation) -> Step:
    lock_exclusive(tx, f"flow:{lease.flow_id}")
    record = _find(tx, lease, spec.name, spec.n)
    assert record is not None, "steps are not removed"
    if record.value.state != "UNKNOWN":
        raise LeaseLostError(f"step {spec.name} was settled by somebody else", flow_id=lease.flow_id, step=spec.name)
    if not answer.approved:  # that ended the flow, and with it the lease
        message = f"its outcome is unknown, {answer.status} by {answer.resolved_by}"
        return _change(tx, record, {"state": "FAILED", "error": message, "finished_at": tx.now})
    extend(tx, lease)
    if answer.human_decision == "MODIFY":
        text = canonical.dump_text(answer.answer)
        return _change(tx, record, {"state": "DONE", "result": text, "error": None, "finished_at": tx.now})
    return _change(tx, record, {"state": "STARTED", "error": None, "started_at": tx.now})


_LIST = sql(STEPS.select("WHERE dfid = :dfid AND ns = :ns ORDER BY step_id"))


def list(tx: Tx, flow_id: str, *, ns: str = MAIN) -> tuple[Step, ...]:
    """Return the steps of a flow, in the order they started."""
    return tuple(STEPS.from_row(row) for row in tx.all(_LIST, dfid=flow_id, ns=ns))
