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
from typing import Any, Final, Literal

from holdproof import validation
from holdproof.crypto import canonical
from holdproof.db import Refused, Tx, lock_exclusive, sql
from holdproof.errors import (
    FlowEndedError,
    FlowWaitingError,
    LeaseLostError,
    NonDeterminismError,
    UnknownOutcomeError,
)
from holdproof.evidence import leaves, logged_tables
from holdproof.evidence.tables import StoredRecord, Table
from holdproof.model import typed_json
from holdproof.model.coordination import Escalation
from holdproof.model.flows import Flow, Step
from holdproof.model.namespaces import MAIN
from holdproof.model.policies import DENY
from holdproof.model.times import later
from holdproof.policy.policies import HAS_POLICIES, set_handle
from holdproof.policy.requests import PolicyRequest
from holdproof.runtime import escalations, flows, leases, policy_gate, recorded, sagas
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
ESCALATION: Final = "escalation:"
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


def error_text(lease: WorkerLease, error: BaseException) -> str:
    """Return how something failed, as it is recorded; of a person's flow the kind alone: messages quote values."""
    return validation.error_text(error) if lease.subject is None else type(error).__name__


# --- transactions ------------------------------------------------------------------------------------------------

_FIND = sql(STEPS.select("WHERE dfid = :dfid AND ns = :ns AND name = :name AND n = :n", leaf=True))
_ADD = sql(STEPS.insert())
_VERSION: Final = "step_id = :step_id AND leaf_ver = :leaf_ver - 1"
_CHANGE = sql(
    STEPS.update(
        *("state", "result", "error", "attempts", "retry_at", "worker", "started_at", "finished_at"), where=_VERSION
    )
)
# In one statement what every step needs of its flow, and whether its worker still has the lease.
_LOOK: Final = f"SELECT status, {HAS_POLICIES}, {{kept}} FROM decision_flows WHERE dfid = :dfid AND ns = :ns"  # noqa: S608
_BEGIN = sql(_LOOK.format(kept=leases.KEPT), postgres=_LOOK.format(kept=leases.KEPT_LOCKED))


def begin(
    tx: Tx, lease: WorkerLease, spec: StepSpec, earlier: StoredRecord[Step] | None, *, approved: bool = False
) -> StoredRecord[Step] | Awaited | Refused:
    """Return the step: STARTED if this worker is to run it now, DONE, FAILED, or UNKNOWN if a person is to decide.

    Awaited is what a policy asks for first; `approved` says that this was answered.
    """
    # Starting a step is a heartbeat, and proves in the same transaction that the worker still has the lease.
    status, has_policies = _lock_flow(tx, lease)
    if earlier is not None and earlier.value.state == "UNKNOWN":
        return earlier
    # What undoes a step is never kept from it; a step that began before was decided about then.
    is_governed = has_policies and earlier is None and spec.compensates is None
    governed = _governed(tx, lease, spec) if is_governed else None
    awaited = None if governed is None else policy_gate.awaited(tx, *governed, spec.n, approved=approved)
    if awaited is not None:
        return awaited
    if status == "WAITING_ESCALATION":
        raise FlowWaitingError(
            f"flow {lease.flow_id} is waiting for a person's decision; no step begins before that",
            flow_id=lease.flow_id,
        )
    if status != ("RUNNING" if spec.compensates is None else "COMPENSATING"):
        raise FlowEndedError(f"flow {lease.flow_id} is {status}", flow_id=lease.flow_id, flow_status=status)
    if earlier is not None:
        return earlier if earlier.value.state == "RETRYING" else _in_doubt(tx, lease, spec, earlier)
    if spec.compensates is not None:
        with leaves.consequences(tx):
            return add(tx, lease, spec, {"state": "STARTED"})
    refused = None if governed is None or approved else _ask_policies(tx, lease, spec, *governed)
    return refused or add(tx, lease, spec, {"state": "STARTED"})


def _lock_flow(tx: Tx, lease: WorkerLease) -> tuple[str, bool]:
    """Lock the flow of a lease, and extend that; return the flow's status and whether its namespace has policies."""
    lock_exclusive(tx, f"flow:{lease.flow_id}")
    bounds = leases.bounds(tx, lease.token, lease.lease_s)
    row = tx.one(_BEGIN, dfid=lease.flow_id, ns=lease.ns, policy_set=set_handle(lease.ns), **bounds)
    if row is None:
        raise flows.not_found(lease.flow_id)
    status, has_policies, is_kept = row
    if is_kept is None:
        extend(tx, lease)
    return status, has_policies is not None


def _governed(tx: Tx, lease: WorkerLease, spec: StepSpec) -> tuple[Flow, PolicyRequest]:
    """Return what policies decide by: the flow, and what it is about to do."""
    flow = flows.get(tx, lease.flow_id, ns=lease.ns)
    request = policy_gate.step_request(
        flow, spec.name, spec.arguments, function=spec.function, recorded_args=spec.record_args
    )
    return flow, request


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
        # No column of steps: whose entries they are, so that the log need not look it up (leaves.source_of).
        "agent_id": lease.agent_id,
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
    return _change(tx, record, {"state": "UNKNOWN", "error": f"{ESCALATION}{escalation.id}"})


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


def doubt(tx: Tx, *, lease: WorkerLease, spec: StepSpec, record: StoredRecord[Step]) -> StoredRecord[Step] | Refused:
    """Put a step in doubt that this worker started itself."""
    _lock_leased(tx, lease)
    return _in_doubt(tx, lease, spec, record)


def _lock_leased(tx: Tx, lease: WorkerLease) -> None:
    lock_exclusive(tx, f"flow:{lease.flow_id}")
    extend(tx, lease)


def _change(tx: Tx, record: StoredRecord[Step], changes: Mapping[str, Any]) -> StoredRecord[Step]:
    columns = STEPS.write_next(tx, _CHANGE, record, changes)
    return StoredRecord(STEPS.from_columns(columns), columns, record.leaf_id, record.leaf_ver + 1)


# Nearly always the lease has enough time left, and one statement does it all.
_ENDED: Final = STEPS.update("state", "result", "error", "finished_at", where=_VERSION)
_END = sql(f"{_ENDED} AND {leases.KEPT} = 1", postgres=f"{_ENDED} AND {leases.KEPT_LOCKED} = 1")


def end(
    tx: Tx,
    *,
    lease: WorkerLease,
    record: StoredRecord[Step],
    changes: Mapping[str, Any],
    result: str | None = None,
) -> None:
    """Record how a step ended, if this worker still has the lease: then nobody else has changed the step."""
    lock_exclusive(tx, f"flow:{lease.flow_id}")
    if lease.subject is not None:
        # Before anything is sealed: whose lease is gone is told that, and not that the person was erased.
        extend(tx, lease)
    text = None if result is None else recorded.store(tx, result, lease.subject)
    row = STEPS.stamp_next(tx, record, {**changes, "result": text, "finished_at": tx.now})
    if tx.count(_END, **row, **leases.bounds(tx, lease.token, lease.lease_s)) == 0:
        extend(tx, lease)
        tx.execute(_CHANGE, **row, expect=1)


def retry_later(
    tx: Tx, *, lease: WorkerLease, record: StoredRecord[Step], policy: RetryPolicy, error: str
) -> StoredRecord[Step]:
    """Record that a try failed, and when the next one begins."""
    _lock_leased(tx, lease)
    when = later(tx.now, policy.delay_s(tx, record.value.attempts))
    return _change(tx, record, {"state": "RETRYING", "error": error, "retry_at": when})


def start_again(tx: Tx, *, lease: WorkerLease, record: StoredRecord[Step]) -> StoredRecord[Step]:
    """Begin the next try of a step."""
    _lock_leased(tx, lease)
    return _change(tx, record, _started(tx, lease, record))


def settle(tx: Tx, *, lease: WorkerLease, spec: StepSpec, answer: Escalation) -> StoredRecord[Step]:
    """Do with a step in doubt what the answer about it says."""
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
