"""Replays: the registered code run again on what a flow recorded, in order to learn whether it still does the same.

Rules:
- No step is executed and nothing is written: steps, approvals and what the flow recorded of itself are given as they
  were recorded, and every write of any store is refused meanwhile (db/offline.py). All that is needed of the record is
  read before the code runs, and compared with the log: TamperedError, and nothing runs.
- Any flow can be replayed, ended or open, whatever its version, also by several at once. A flow that has not completed
  is replayed up to where its record ends.
- What differs is reported, not raised: another step or other arguments, a step that was not recorded, one that was
  recorded and not reached, a write outside of a step, another result or error.
- Locks are not recorded: code that is replayed gets them at once, with fence 0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple, NoReturn

from holdproof import validation
from holdproof.db import Call, Read, Tx, Work, ask, sql
from holdproof.db.offline import writes_refused
from holdproof.errors import NotFoundError, ReplayedError, ReplayWriteError, UnrecordableError
from holdproof.model import typed_json
from holdproof.model.coordination import Escalation
from holdproof.model.flows import Flow, FlowReplay, FlowResult, FunctionCall
from holdproof.model.namespaces import MAIN
from holdproof.runtime import calls, flows, forks, recorded, results, steps
from holdproof.runtime.flow_modes import OwnValue, RunMode
from holdproof.runtime.flow_run import FlowRun
from holdproof.runtime.forks import Answers
from holdproof.runtime.functions import RegisteredFunction
from holdproof.runtime.steps import StepSpec
from holdproof.runtime.suspension import FlowSuspended, WorkerLease


@dataclass(slots=True)
class Replaying(RunMode):
    """A flow that is replayed: what is not recorded is the end of its record."""

    offline: ClassVar[bool] = True
    flow: Flow
    approvals: Answers
    now: str
    differences: list[str] = field(default_factory=list)

    def step(self, spec: StepSpec, fn: Callable[[], Any]) -> tuple[StepSpec, Callable[[], Any]]:
        """End the replay at a step that has no recorded result."""
        del fn
        self._end(f"step {spec.name} {spec.n}")

    def own(self, name: str, n: int, value: OwnValue) -> OwnValue:
        """End the replay at what the flow did not record."""
        del n, value
        self._end(name)

    def answer(self, reason: str, n: int, position: int) -> Escalation | None:
        """Return the answer as it was given; end the replay where there is none."""
        del position
        return self.approvals.get((reason, n)) or self._end(f"the approval {reason!r}")

    def waits(self, waits_for: str, until: str | None) -> bool:
        """Return False for a wait that is over: one with a time limit, once the flow went on or that has passed."""
        if until is None or (until > self.now and not self.flow.ended):
            self._end(waits_for)
        return False

    def refuse_write(self) -> ReplayWriteError:
        """Return the error of code that writes outside of a step, and report it."""
        error = ReplayWriteError("the code writes outside of a step", flow_id=self.flow.flow_id)
        self.differences.append(error.message)
        return error

    def _end(self, what: str) -> NoReturn:
        # A BaseException, like that of a flow which waits: it leaves the code, whatever errors the code handles.
        raise FlowSuspended(self.flow.flow_id, what)


class _Record(NamedTuple):
    """All that is read of a flow in order to replay it."""

    run: FlowRun
    call: FunctionCall
    ended: FlowResult
    mode: Replaying


def replay(registry: Mapping[str, RegisteredFunction], flow_id: str, *, ns: str = MAIN) -> Work[FlowReplay]:
    """Run the registered function of a flow again on what the flow recorded, and return what differs.

    No step is executed and nothing is written. Raises NotFoundError where the function is not registered here, and
    TamperedError where the record was edited.
    """
    record = yield from ask(Read(lambda tx: _load(tx, flow_id, ns)))
    function = registry.get(record.call.name)
    if function is None:
        raise NotFoundError(f"the function {record.call.name} is not registered here", name=record.call.name)
    return (yield from _replay(function, record))


_NAMED = sql(
    "SELECT c.dfid FROM flow_calls c JOIN decision_flows f ON f.dfid = c.dfid AND f.ns = c.ns"
    " WHERE c.ns = :ns AND c.name = :name AND (CAST(:status AS TEXT) IS NULL OR f.status = :status)"
    " AND f.status <> 'CREATED' ORDER BY f.created_at DESC, c.dfid DESC LIMIT :limit"
)


def replay_all(
    registry: Mapping[str, RegisteredFunction], *, status: str | None = None, limit: int = 1000, ns: str = MAIN
) -> Work[tuple[FlowReplay, ...]]:
    """Replay the newest flows of every function that is registered here, `limit` of each at most; see `replay`."""
    validation.limited(limit)
    replays: list[FlowReplay] = []
    for name in tuple(registry):
        for flow_id in (yield from ask(Read(partial(_of_function, name=name, status=status, limit=limit, ns=ns)))):
            replays.append((yield from replay(registry, flow_id, ns=ns)))
    return tuple(replays)


def _of_function(tx: Tx, name: str, status: str | None, limit: int, ns: str) -> list[str]:
    return [flow_id for (flow_id,) in tx.all(_NAMED, name=name, status=status, limit=limit, ns=ns)]


def _load(tx: Tx, flow_id: str, ns: str) -> _Record:
    flow = flows.get(tx, flow_id, ns=ns)
    # NotFoundError for a plain block of code, which is not there to be run again.
    calls.get(tx, flow_id, ns=ns)
    call = calls.confirmed(tx, flow_id, ns=ns)
    mode = Replaying(flow, forks.answers(tx, flow_id, ns=ns), tx.now)
    run = FlowRun(WorkerLease(flow_id, 0, ns=ns, subject=flow.subject), mode=mode)
    journal, _ = forks.journal(tx, flow_id, ns=ns)
    run.load(journal)
    return _Record(run, call, results.get(tx, flow_id, ns=ns), mode)


def _replay(function: RegisteredFunction, record: _Record) -> Work[FlowReplay]:
    run = record.run
    differences = record.mode.differences
    recorded_steps = len(run.unreached)
    inputs_equal = False
    result_equal: bool | None = None
    ends_at: str | None = None
    try:
        args, kwargs = calls.arguments(record.call)
        inputs_equal = calls.arguments_text(args, kwargs) == recorded.dump(record.call.arguments)
        effect: Call[Any] = Call(function.bind(run, args, kwargs))
        with writes_refused(record.mode.refuse_write):
            result = yield from ask(effect)
        result_equal = _same_result(function, record, result)
    except FlowSuspended as end:
        ends_at = end.waits_for
        if record.ended.status == "COMPLETED":
            differences.append(f"the code reached {ends_at}, which the flow did not record")
    except Exception as error:
        result_equal = _same_error(record, error)
    if not inputs_equal:
        differences.append("the inputs are read as other values than were recorded")
    return FlowReplay(
        record.call.flow_id,
        record.call.name,
        record.call.version,
        record.ended.status,
        recorded_steps - len(run.unreached),
        inputs_equal,
        result_equal,
        ends_at,
        tuple(dict.fromkeys(differences)),
    )


def _same_result(function: RegisteredFunction, record: _Record, result: Any) -> bool | None:
    """Return whether code that came to its end returned what the flow recorded; None where the flow has no result."""
    differences = record.mode.differences
    difference = record.run.unfinished()
    if difference is not None:
        differences.append(difference.message)
    if record.ended.status == "CANCELLED" or not record.ended.ended:
        # It was stopped from outside, or is still to end.
        return None
    if record.ended.status != "COMPLETED":
        differences.append(f"the code returned, where the flow failed: {record.ended.error}")
        return False
    try:
        equal = bool(typed_json.encode(result, f"the result of {function.name}") == record.ended.result)
    except UnrecordableError as error:
        differences.append(error.message)
        return False
    if not equal:
        differences.append("the code returned another result than was recorded")
    return equal


def _same_error(record: _Record, error: Exception) -> bool | None:
    """Return whether the code failed as the flow did; None where the flow did not fail by itself."""
    differences = record.mode.differences
    if record.run.difference is not None:
        differences.append(record.run.difference.message)
        return None
    if isinstance(error, ReplayWriteError):
        # Reported where it was refused.
        return None
    message = steps.error_text(record.run.lease, error)
    if record.ended.status not in {"FAILED", "COMPENSATED"}:
        differences.append(f"the code failed: {message}")
        return False
    # A step that failed raises its own error when it runs, and ReplayedError when it is replayed.
    equal = isinstance(error, ReplayedError) or message == record.ended.error
    if not equal:
        differences.append(f"the code failed otherwise: {message}; recorded: {record.ended.error}")
    return equal
