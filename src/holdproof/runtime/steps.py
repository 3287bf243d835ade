"""Steps: durable units of work inside a flow.

Rules:
- A step that is DONE never runs again: its result is returned. One that FAILED fails again in the same way.
- What its function is called with and what it returns are recorded (recorded.py), under the entry of its row. Arguments
  that cannot be recorded are refused before the function runs; with `record_args=False` only their hash is recorded. A
  result that cannot be recorded leaves the step in doubt, since it has happened.
- A step that fails is tried again up to `retries` times, after a delay that doubles; between tries it is RETRYING,
  which is no doubt: a worker that goes on then tries again.
- A step that was started by a worker that is gone, or that ran over its time limit, is in doubt (UNKNOWN), and never
  run again silently: `retry` runs it, `fail` fails it and leaves the flow dirty, `ask` (the default) escalates, at no
  cost to the agent's budget. The answer `happened` records its result, `did_not_happen` runs it again, `undo` (and
  whatever ends the flow meanwhile) fails it.
- A flow that is run again meets the steps that it recorded, by name, number and arguments; other arguments, or another
  step at that place, are NonDeterminismError. What is replayed was compared with its entries in the log.
- Only the worker that has the flow's lease starts and ends steps; each of them is a heartbeat, and one that waits for a
  person sends more.
- While a flow compensates, no new step starts but those that undo.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

from holdproof import validation
from holdproof.crypto import canonical
from holdproof.db import Call, Read, Refused, Tx, Work, Write, ask, lock_exclusive, sql
from holdproof.errors import (
    FlowEndedError,
    FlowWaitingError,
    InvalidInputError,
    LeaseLostError,
    NonDeterminismError,
    ReplayedError,
    StepTimeoutError,
    UnknownOutcomeError,
    UnrecordableError,
)
from holdproof.evidence import leaves, logged_tables
from holdproof.evidence.tables import StoredRecord, Table
from holdproof.model import typed_json
from holdproof.model.coordination import Escalation
from holdproof.model.flows import Flow, Step
from holdproof.model.namespaces import MAIN
from holdproof.model.policies import DENY
from holdproof.model.times import later
from holdproof.policy.requests import PolicyRequest
from holdproof.runtime import escalations, flows, inbox, policy_gate, recorded, sagas, suspension
from holdproof.runtime.policy_gate import Awaited
from holdproof.runtime.step_retries import NO_RETRIES, RetryPolicy
from holdproof.runtime.suspension import WorkerLease, extend

STEPS: Final = Table(
    "flow_steps",
    Step,
    kind="step",
    key="step_id",
    logged=(
        *("step_id", "dfid", "name", "n", "position", "state", "compensates", "arguments", "arguments_hash", "result"),
        *("error", "undo", "attempts", "retry_at", "worker", "started_at", "finished_at", "ns"),
    ),
    loads={"undo": bool},
)
OnUnknown = Literal["ask", "retry", "fail"]
ON_UNKNOWN: Final = frozenset({"ask", "retry", "fail"})
SETTLED: Final = frozenset({"DONE", "FAILED"})
"""The states in which a step stays."""
_ESCALATION: Final = "escalation:"
"""The `error` of a step in doubt: this, and the number of its escalation."""
Journal = dict[tuple[str, int], StoredRecord[Step]]
"""The steps that a flow has recorded, by name and number."""


@dataclass(frozen=True, slots=True)
class StepSpec:
    """A step as its caller declares it; `compensates` is the step that it undoes."""

    name: str
    n: int
    position: int
    undo: bool = False
    on_unknown: OnUnknown = "ask"
    compensates: str | None = None
    arguments: str | None = None
    """The text of its arguments; None where there are none to record."""
    record_args: bool = True
    policy: RetryPolicy = NO_RETRIES
    timeout_s: float | None = None
    raw: bool = False
    """Whether its function returns tagged JSON already, as one that runs at the other end of a wire does."""
    function: Callable[..., Any] | None = None
    """Its function, where that runs here: policies see its arguments by the names of its parameters."""

    def decoded(self, result: Any) -> Any:
        """Return a recorded result as the caller gets it."""
        return result if self.raw else typed_json.decode(result)


def step(lease: WorkerLease, spec: StepSpec, fn: Callable[[], Any], journal: Journal) -> Work[Any]:
    """Run a step and return its result, or return what it gave when it ran before.

    Raises ReplayedError where it failed before, and UnknownOutcomeError where it is in doubt and `on_unknown` is fail.
    """
    validation.name("step", spec.name)
    validation.one_of("on_unknown", spec.on_unknown, ON_UNKNOWN)
    earlier = journal.get((spec.name, spec.n))
    if earlier is not None:
        check_same(lease, earlier.value, spec)
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
            Write(partial(_begin, lease=lease, spec=spec, earlier=earlier, approved=approved))
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


def check_same(lease: WorkerLease, step: Step, spec: StepSpec) -> None:
    """Refuse a step that is reached again with other arguments than it was recorded with."""
    if spec.arguments is None or step.arguments_hash is None:
        return
    if step.arguments is not None:
        same = recorded.dump(step.arguments) == spec.arguments
    else:
        # Of a person's arguments that were not recorded there is a keyed hash only, and the key is in the database.
        same = lease.subject is not None or canonical.sha256_hex(spec.arguments.encode()) == step.arguments_hash
    if not same:
        raise NonDeterminismError(
            f"step {step.name} {step.n} was recorded with other arguments", step=step.name, flow_id=lease.flow_id
        )


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
            message = error_text(lease, error)
            if not spec.policy.applies(record.value.attempts, error):
                failed = {"state": "FAILED", "error": message}
                yield from ask(Write(partial(_end, lease=lease, record=record, changes=failed)))
                raise
            record = yield from _try_again(lease, record, spec, message)
            continue
        return (yield from _done(lease, record, spec, result))


def error_text(lease: WorkerLease, error: BaseException) -> str:
    """Return how something failed, as it is recorded; of a person's flow the kind alone: messages quote values."""
    return validation.error_text(error) if lease.subject is None else type(error).__name__


def _done(lease: WorkerLease, record: StoredRecord[Step], spec: StepSpec, result: Any) -> Work[Any]:
    """Record the result of a step, and return it as a replay would return it."""
    try:
        # Nobody gets the result of an undoing, so that it need not be recordable.
        encoded = None if record.value.compensates is not None else _encoded(spec, result)
        text = recorded.dump(encoded)
    except InvalidInputError as error:
        # It has happened, so it is in doubt: FAILED would say that there is nothing to undo.
        raise UnrecordableError(f"the result of step {spec.name}: {error.message}", step=spec.name) from error
    yield from ask(Write(partial(_end, lease=lease, record=record, changes={"state": "DONE"}, result=text)))
    return spec.decoded(recorded.parse(text))


def _encoded(spec: StepSpec, result: Any) -> Any:
    # What comes over a wire may not stand for content that its sender was not given.
    return typed_json.encode(typed_json.tagged(result, "it") if spec.raw else result, "it")


def _try_again(
    lease: WorkerLease, record: StoredRecord[Step], spec: StepSpec, message: str
) -> Work[StoredRecord[Step]]:
    """Record that a try failed, wait, and start the next one."""
    record = yield from ask(Write(partial(_retry_later, lease=lease, record=record, policy=spec.policy, error=message)))
    return (yield from _next_try(lease, record))


def _next_try(lease: WorkerLease, record: StoredRecord[Step]) -> Work[StoredRecord[Step]]:
    until = record.value.retry_at
    yield from suspension.wait(lease, lambda _: None, waits_for=f"the next try of {record.value.name}", until=until)
    return (yield from ask(Write(partial(_start_again, lease=lease, record=record))))


def _overran(lease: WorkerLease, record: StoredRecord[Step], spec: StepSpec) -> Work[StoredRecord[Step]]:
    """Do with a step that ran over its time limit what is done with one in doubt."""
    doubtful: StoredRecord[Step] | Refused = yield from ask(
        Write(partial(_doubt, lease=lease, spec=spec, record=record))
    )
    assert not isinstance(doubtful, Refused), "the executor raises a refusal"
    return doubtful if doubtful.value.state != "UNKNOWN" else (yield from _resolved(lease, spec, doubtful))


# --- transactions ------------------------------------------------------------------------------------------------

_FIND = sql(STEPS.select("WHERE dfid = :dfid AND ns = :ns AND name = :name AND n = :n", leaf=True))
_ADD = sql(STEPS.insert())
_CHANGE = sql(
    STEPS.update(
        *("state", "result", "error", "attempts", "retry_at", "worker", "started_at", "finished_at"),
        where="step_id = :step_id AND leaf_ver = :leaf_ver - 1",
    )
)


def _begin(
    tx: Tx, lease: WorkerLease, spec: StepSpec, earlier: StoredRecord[Step] | None, *, approved: bool = False
) -> StoredRecord[Step] | Awaited | Refused:
    """Return the step: STARTED if this worker is to run it now, DONE, FAILED, or UNKNOWN if a person is to decide.

    Awaited is what a policy asks for first; `approved` says that this was answered.
    """
    # Starting a step is a heartbeat, and proves in the same transaction that the worker still has the lease.
    flow, has_policies = flows.lock_governed(tx, lease.flow_id, ns=lease.ns)
    extend(tx, lease)
    if earlier is not None and earlier.value.state == "UNKNOWN":
        return earlier
    # What undoes a step is never kept from it; a step that began before was decided about then.
    governed = has_policies and earlier is None and spec.compensates is None
    request = _request(flow, spec) if governed else None
    if request is not None:
        awaited = policy_gate.awaited(tx, flow, request, spec.n, approved=approved)
        if awaited is not None:
            return awaited
    if flow.status == "WAITING_ESCALATION":
        raise FlowWaitingError(
            f"flow {flow.flow_id} is waiting for a person's decision; no step begins before that", flow_id=flow.flow_id
        )
    if flow.status != ("RUNNING" if spec.compensates is None else "COMPENSATING"):
        raise FlowEndedError(f"flow {flow.flow_id} is {flow.status}", flow_id=flow.flow_id, flow_status=flow.status)
    if earlier is None:
        refused = None if request is None or approved else _ask_policies(tx, lease, spec, flow, request)
        if spec.compensates is not None:
            with leaves.consequences(tx):
                return add(tx, lease, spec, {"state": "STARTED"})
        return refused or add(tx, lease, spec, {"state": "STARTED"})
    if earlier.value.state == "RETRYING":
        return earlier
    return _in_doubt(tx, lease, spec, earlier)


def _request(flow: Flow, spec: StepSpec) -> PolicyRequest:
    return policy_gate.step_request(
        flow, spec.name, spec.arguments, function=spec.function, recorded_args=spec.record_args
    )


def _ask_policies(
    tx: Tx, lease: WorkerLease, spec: StepSpec, flow: Flow, request: PolicyRequest
) -> Awaited | Refused | None:
    """Let policies decide about a step: None to go on; a step that is denied is recorded as one that failed."""
    decided = policy_gate.decide(tx, request, ns=flow.ns)
    if decided is None:
        return None
    if decided.ruling.decision == DENY:
        policy_gate.record_denial(tx, decided, flow_id=flow.flow_id, n=spec.n, subject=flow.subject, ns=flow.ns)
        error = policy_gate.refusal(decided, flow_id=flow.flow_id)
        add(tx, lease, spec, {"state": "FAILED", "error": error_text(lease, error), "finished_at": tx.now})
        return Refused(error)
    number = policy_gate.let_pass(tx, decided, flow, n=spec.n).escalation
    if number is None:
        return None
    flows.await_policy(tx, flow, number)
    return Awaited(number, own=True)


def add(tx: Tx, lease: WorkerLease, spec: StepSpec, columns: Mapping[str, Any]) -> StoredRecord[Step]:
    """Write a new step, with its entry."""
    arguments = None
    arguments_hash = None
    if spec.arguments is not None:
        arguments = recorded.store(tx, spec.arguments, lease.subject) if spec.record_args else None
        arguments_hash = recorded.fingerprint(tx, spec.arguments, lease.subject)
    row = {
        **dict.fromkeys(STEPS.columns),
        "step_id": tx.new_id(),
        "dfid": lease.flow_id,
        "name": spec.name,
        "n": spec.n,
        "position": spec.position,
        "compensates": spec.compensates,
        "arguments": arguments,
        "arguments_hash": arguments_hash,
        "undo": int(spec.undo),
        "attempts": 1,
        "worker": lease.worker,
        "started_at": tx.now,
        "ns": lease.ns,
        **columns,
    }
    mark = STEPS.add(tx, _ADD, row)
    return StoredRecord(STEPS.from_columns(row), row, mark.leaf_id, mark.leaf_ver)


def _in_doubt(tx: Tx, lease: WorkerLease, spec: StepSpec, record: StoredRecord[Step]) -> StoredRecord[Step] | Refused:
    """Do with a step that was started and never finished what its caller says."""
    if spec.on_unknown == "retry":
        return _change(tx, record, _started(tx, lease, record))
    reason = f"step {spec.name} was started and never finished"
    if spec.on_unknown == "fail":
        _change(tx, record, {"state": "FAILED", "error": "its outcome is unknown", "finished_at": tx.now})
        # Nobody knows what is to be undone: the flow is dirty until somebody has looked.
        sagas.mark_dirty(tx, lease.flow_id, spec.name, {"in_doubt": f"{spec.name} {spec.n}"}, ns=lease.ns)
        return Refused(UnknownOutcomeError(reason, step=spec.name, flow_id=lease.flow_id))
    context = _question(record)
    escalation = escalations.alert(tx, lease.flow_id, reason=reason, context=context, kind="in_doubt", ns=lease.ns)
    return _change(tx, record, {"state": "UNKNOWN", "error": f"{_ESCALATION}{escalation.id}"})


def _question(record: StoredRecord[Step]) -> dict[str, Any]:
    """Return what a person needs in order to find out whether a step happened."""
    step = record.value
    # As the row has them: large ones by reference, a person's sealed. Whoever shows the question resolves them.
    stored = record.columns["arguments"]
    return {
        "step": step.name,
        "n": step.n,
        "arguments": None if stored is None else recorded.parse(stored),
        "started_at": step.started_at,
        "worker": step.worker,
        "attempts": step.attempts,
        "idempotency_key": step.idempotency_key,
        "compensates": step.compensates,
    }


def _started(tx: Tx, lease: WorkerLease, record: StoredRecord[Step]) -> dict[str, Any]:
    """The columns of a step that is started again."""
    return {
        "state": "STARTED",
        "error": None,
        "retry_at": None,
        "attempts": record.value.attempts + 1,
        "worker": lease.worker,
        "started_at": tx.now,
    }


def _doubt(tx: Tx, *, lease: WorkerLease, spec: StepSpec, record: StoredRecord[Step]) -> StoredRecord[Step] | Refused:
    """Put a step in doubt that this worker started itself."""
    _lock_leased(tx, lease)
    return _in_doubt(tx, lease, spec, record)


def _lock_leased(tx: Tx, lease: WorkerLease) -> None:
    lock_exclusive(tx, f"flow:{lease.flow_id}")
    extend(tx, lease)


def _change(tx: Tx, record: StoredRecord[Step], changes: Mapping[str, Any]) -> StoredRecord[Step]:
    columns = STEPS.write_next(tx, _CHANGE, record, changes)
    return StoredRecord(STEPS.from_columns(columns), columns, record.leaf_id, record.leaf_ver + 1)


def _end(
    tx: Tx,
    *,
    lease: WorkerLease,
    record: StoredRecord[Step],
    changes: Mapping[str, Any],
    result: str | None = None,
) -> None:
    """Record how a step ended, if this worker still has the lease: then nobody else has changed the step."""
    _lock_leased(tx, lease)
    text = None if result is None else recorded.store(tx, result, lease.subject)
    STEPS.write_next(tx, _CHANGE, record, {**changes, "result": text, "finished_at": tx.now})


def _retry_later(
    tx: Tx, *, lease: WorkerLease, record: StoredRecord[Step], policy: RetryPolicy, error: str
) -> StoredRecord[Step]:
    _lock_leased(tx, lease)
    when = later(tx.now, policy.delay_s(tx, record.value.attempts))
    return _change(tx, record, {"state": "RETRYING", "error": error, "retry_at": when})


def _start_again(tx: Tx, *, lease: WorkerLease, record: StoredRecord[Step]) -> StoredRecord[Step]:
    _lock_leased(tx, lease)
    return _change(tx, record, _started(tx, lease, record))


# --- steps in doubt ----------------------------------------------------------------------------------------------


def _resolved(lease: WorkerLease, spec: StepSpec, record: StoredRecord[Step]) -> Work[StoredRecord[Step]]:
    """Wait for the decision about a step in doubt; return the step as the person wants it."""
    number = int((record.value.error or "").removeprefix(_ESCALATION))
    answer = yield from wait_for_decision(lease, number)
    return (yield from ask(Write(partial(_settle, lease=lease, spec=spec, answer=answer))))


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


def _settle(tx: Tx, *, lease: WorkerLease, spec: StepSpec, answer: Escalation) -> StoredRecord[Step]:
    lock_exclusive(tx, f"flow:{lease.flow_id}")
    row = tx.one(_FIND, dfid=lease.flow_id, ns=lease.ns, name=spec.name, n=spec.n)
    assert row is not None, "steps are not removed"
    record = _loaded(tx, STEPS.record(row))
    if record.value.state != "UNKNOWN":
        raise LeaseLostError(f"step {spec.name} was settled by somebody else", flow_id=lease.flow_id, step=spec.name)
    if answer.human_decision == "HAPPENED":
        extend(tx, lease)
        text = recorded.store(tx, recorded.dump(answer.answer), lease.subject)
        changes = {"state": "DONE", "result": text, "error": None, "finished_at": tx.now}
        return _loaded(tx, _change(tx, record, changes))
    if answer.human_decision == "DID_NOT_HAPPEN":
        extend(tx, lease)
        return _change(tx, record, _started(tx, lease, record))
    # That ended the flow, and with it the lease.
    message = f"its outcome is unknown, {answer.outcome} by {answer.resolved_by}"
    return _change(tx, record, {"state": "FAILED", "error": message, "finished_at": tx.now})


# --- reading -----------------------------------------------------------------------------------------------------


def _loaded(tx: Tx, record: StoredRecord[Step]) -> StoredRecord[Step]:
    return replace(record, value=shown(tx, record.value))


def shown(tx: Tx, step: Step) -> Step:
    """Return a step with its recorded values in full, as tagged JSON."""
    return replace(step, arguments=recorded.load(tx, step.arguments), result=recorded.load(tx, step.result))


_JOURNAL = logged_tables.selecting(STEPS.logged, "step_id", "t.dfid = :dfid AND t.ns = :ns")


def journal(tx: Tx, flow_id: str, *, ns: str) -> Journal:
    """Return the steps of a flow that is about to be run again, each compared with its entry in the log."""
    rows = logged_tables.confirm(tx, STEPS.logged, _JOURNAL, dfid=flow_id, ns=ns)
    records = (
        STEPS.record((*(row[column] for column in STEPS.columns), row["leaf_id"], row["leaf_ver"])) for row in rows
    )
    return {(record.value.name, record.value.n): _loaded(tx, record) for record in records}


_LIST = sql(STEPS.select("WHERE dfid = :dfid AND ns = :ns ORDER BY step_id"))


def list(tx: Tx, flow_id: str, *, ns: str = MAIN) -> tuple[Step, ...]:
    """Return the steps of a flow, in the order they started."""
    return tuple(shown(tx, STEPS.from_row(row)) for row in tx.all(_LIST, dfid=flow_id, ns=ns))
