"""Forks: a flow that goes on from a step of another one, with other inputs, other results, or without side effects.

Rules:
- A fork has the record of its origin before the step at which it was forked, and from there one of its own. The shared
  steps are read from the origin, and compared with the log like its own: nothing is copied.
- Each shared step is settled (DONE or FAILED), so that it never changes again. While a flow has forks it is not removed
  by retention (retention.py).
- `effects` says what becomes of a step that is new: `deny` raises EffectDeniedError, `simulate` gives it the result
  that the origin recorded for the step of that name and number, `real` runs it. A result in `answers` stands for its
  step under any of them.
- What had no effect is not undone, and a child that the origin has not finished is waited for: only a fork whose
  effects are real runs it.
- The origin stays as it is: its approvals are read where they lie before the fork, and what its steps did is undone by
  the origin only. Of the origin's messages and children the fork gets what the origin recorded, or its own.
- A rewind cancels its origin, if that is open, and releases its locks; it undoes nothing, since the fork goes on from
  what was done. What was done after that step is named by the origin (`flows steps`), and undone by `sagas compensate`.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from holdproof import validation
from holdproof.db import Tx, sql
from holdproof.errors import ConflictError, EffectDeniedError, InvalidInputError, NotFoundError, ReplayedError
from holdproof.model import typed_json
from holdproof.model.coordination import Escalation
from holdproof.model.flows import OPEN, Flow, FunctionCall, Step
from holdproof.model.namespaces import MAIN
from holdproof.runtime import calls, flows, inbox, leases, recorded, sagas, steps
from holdproof.runtime.calls import CallSpec
from holdproof.runtime.flow_modes import LIVE, OwnValue, RunMode
from holdproof.runtime.steps import Journal, StepSpec

Effects = Literal["deny", "simulate", "real"]
EFFECTS: Final = frozenset({"deny", "simulate", "real"})
_HARMLESS: Final = ("flow.sleep", "flow.patched ")
"""What a flow records of itself that affects nobody else."""
Answers = Mapping[tuple[str, int], Escalation]
"""The answers to approvals, by reason and number."""


@dataclass(frozen=True, slots=True)
class Fork(RunMode):
    """A flow that was forked: what its origin recorded, and what is allowed beyond that."""

    flow_id: str
    effects: str
    forked_at: int
    origin: Journal
    """All that the origin recorded, the part that is shared included."""
    results: Mapping[str, Any]
    """Results that were passed in, by step, as tagged JSON."""
    approvals: Answers

    def step(self, spec: StepSpec, fn: Callable[[], Any]) -> tuple[StepSpec, Callable[[], Any]]:
        """Return the step with its function, or with one that returns the result it is to have."""
        for label in (f"{spec.name} {spec.n}", *((spec.name,) if spec.n == 1 else ())):
            if label in self.results:
                return _without_effect(spec, self.results[label])
        if self.effects == "real":
            return spec, fn
        record = self.origin.get((spec.name, spec.n))
        if self.effects == "simulate" and record is not None and record.value.state in steps.SETTLED:
            if record.value.state == "FAILED":
                raise ReplayedError(
                    f"step {spec.name} failed in the origin: {record.value.error}", step=spec.name, flow_id=self.flow_id
                )
            return _without_effect(spec, record.value.result)
        raise self._denied(f"step {spec.name} {spec.n}", spec.name)

    def own(self, name: str, n: int, value: OwnValue) -> OwnValue:
        """Return the value that the origin recorded, where effects are simulated; refuse it where they are denied."""
        if self.effects == "real":
            return value
        record = self.origin.get((name, n))
        if self.effects == "simulate" and record is not None and record.value.state == "DONE":
            result = typed_json.decode(record.value.result)
            return lambda _: result
        if not name.startswith(_HARMLESS):
            raise self._denied(name, name)
        return value

    def answer(self, reason: str, n: int, position: int) -> Escalation | None:
        """Return the origin's answer to an approval before the fork, or to any where effects are simulated."""
        answer = self.approvals.get((reason, n))
        if answer is not None and (position < self.forked_at or self.effects == "simulate"):
            return answer
        if self.effects == "real":
            return None
        raise self._denied(f"the approval {reason!r}", reason)

    def conducts(self) -> bool:
        """Return whether effects are real: a child that the origin started, and has not ended, is the origin's."""
        return self.effects == "real"

    def undoes(self, step: Step | None) -> bool:
        """Return whether the step had an effect, and is this flow's own: the origin's are not for a fork to undo."""
        return self.effects == "real" and (step is None or (step.flow_id == self.flow_id and step.undo))

    def _denied(self, what: str, step: str) -> EffectDeniedError:
        return EffectDeniedError(
            f"fork {self.flow_id} reached {what}, and its effects are {self.effects}", step=step, flow_id=self.flow_id
        )


def _without_effect(spec: StepSpec, result: Any) -> tuple[StepSpec, Callable[[], Any]]:
    # Nothing happens in such a step: a worker that dies meanwhile leaves no doubt, and there is nothing to undo.
    return replace(spec, on_unknown="retry", timeout_s=None, undo=False), lambda: spec.decoded(result)


# --- reading -----------------------------------------------------------------------------------------------------

_IS_FORK = sql("SELECT 1 FROM flow_calls WHERE dfid = :dfid AND ns = :ns AND forked_from IS NOT NULL")


def journal(tx: Tx, flow_id: str, *, ns: str) -> tuple[Journal, RunMode]:
    """Return what a flow meets when it is run again, and what it may do beyond that; all compared with the log."""
    own = steps.journal(tx, flow_id, ns=ns)
    if tx.one(_IS_FORK, dfid=flow_id, ns=ns) is None:
        return own, LIVE
    call = calls.confirmed(tx, flow_id, ns=ns)
    assert call.forked_from is not None, "asked for above"
    assert call.forked_at is not None, "written together with it"
    origin, _ = journal(tx, call.forked_from, ns=ns)
    mode = Fork(
        flow_id,
        call.effects or "deny",
        call.forked_at,
        origin,
        call.answers or {},
        answers(tx, call.forked_from, ns=ns),
    )
    return {**_shared(origin, call.forked_at), **own}, mode


def _shared(origin: Journal, forked_at: int) -> Journal:
    return {
        key: record
        for key, record in origin.items()
        if record.value.position < forked_at and record.value.compensates is None
    }


_FORKED_FROM = sql("SELECT forked_from FROM flow_calls WHERE dfid = :dfid AND ns = :ns")


def answers(tx: Tx, flow_id: str, *, ns: str) -> Answers:
    """Return the approvals that a flow was given or refused, those that it shares with its origin included."""
    counts: Counter[str] = Counter()
    decisions: dict[tuple[str, int], Escalation] = {}
    for escalation in inbox.requested(tx, flow_id, ns=ns):
        counts[escalation.reason] += 1
        if escalation.status != "PENDING":
            decisions[escalation.reason, counts[escalation.reason]] = escalation
    (origin,) = tx.one(_FORKED_FROM, dfid=flow_id, ns=ns) or (None,)
    return {**answers(tx, origin, ns=ns), **decisions} if origin is not None else decisions


# --- forking -----------------------------------------------------------------------------------------------------


def fork(
    tx: Tx,
    flow_id: str,
    *,
    at: str | None = None,
    inputs: Mapping[str, Any] | None = None,
    answers: Mapping[str, Any] | None = None,
    effects: Effects = "deny",
    version: str | None = None,
    ns: str = MAIN,
) -> Flow:
    """Open a flow that goes on from a step of another one, which stays as it is; a worker or `flows.recover` runs it.

    `at` names the first step that is not shared ("pay", or "pay 2" for the second of its name); without it nothing is.
    `inputs` are `{"args": […], "kwargs": {…}}`, by default the origin's. `answers` are results by step. A step that is
    new raises EffectDeniedError ("deny"), has the origin's result ("simulate") or runs ("real"). `version` is that of
    the function which runs the fork.
    """
    validation.one_of("effects", effects, EFFECTS)
    origin = flows.lock(tx, flow_id, ns=ns)
    meets, _ = journal(tx, flow_id, ns=ns)
    forked_at = 0 if at is None else _position(meets, flow_id, at)
    _refuse_doubt(meets, flow_id, forked_at)
    call = _call(tx, flow_id, ns)
    results = {name: typed_json.encode(value, f"the answer for {name}") for name, value in (answers or {}).items()}
    spec = CallSpec(
        call.name,
        version or call.version,
        recorded.dump(call.arguments) if inputs is None else _inputs(inputs),
        agent_id=call.agent_id,
        forked_from=flow_id,
        forked_at=forked_at,
        effects=effects,
        answers=recorded.dump(results) if results else None,
    )
    return _open(tx, origin, spec)


def _call(tx: Tx, flow_id: str, ns: str) -> FunctionCall:
    # NotFoundError for a plain block of code, which only its own program could run.
    calls.get(tx, flow_id, ns=ns)
    return calls.confirmed(tx, flow_id, ns=ns)


def _open(tx: Tx, origin: Flow, spec: CallSpec) -> Flow:
    has_policies = flows.require_active(tx, origin.agent_id, ns=origin.ns)
    attributes = flows.attributes(tx, origin.flow_id, ns=origin.ns)
    flow = flows.enter(
        tx,
        origin.agent_id,
        flow_id=tx.new_id(),
        flow_type=origin.flow_type,
        flow_version=spec.version,
        created_by_type="fork",
        created_by_id=origin.flow_id,
        priority=origin.priority,
        subject=origin.subject,
        attributes=attributes,
        ns=origin.ns,
    )
    calls.record(tx, flow, spec)
    leases.offer(tx, flow)
    if has_policies:
        # What policies say now counts, not what they said of the origin.
        flow = flows.ask_policies(tx, flow, attributes=attributes, inputs=spec.arguments, function=spec.function)
        if flow.status != "CREATED":
            return flow
    return flows.transition(tx, flow.flow_id, "RUNNING", reason=f"forked from flow {origin.flow_id}", ns=origin.ns)


def rewind(
    tx: Tx,
    flow_id: str,
    *,
    at: str | None = None,
    inputs: Mapping[str, Any] | None = None,
    answers: Mapping[str, Any] | None = None,
    effects: Effects = "real",
    version: str | None = None,
    ns: str = MAIN,
) -> Flow:
    """Go back to a step of a flow: fork it there, and cancel it if it is open; the arguments are those of `fork`.

    Nothing is undone: the fork goes on from what was done. The locks of the flow are released.
    """
    flow = flows.lock(tx, flow_id, ns=ns)
    if flow.status == "COMPENSATING":
        raise ConflictError(f"flow {flow_id} is being undone: fork it once that has ended", flow_id=flow_id)
    successor = fork(tx, flow_id, at=at, inputs=inputs, answers=answers, effects=effects, version=version, ns=ns)
    if flow.status in OPEN:
        flows.transition(tx, flow_id, "CANCELLED", reason=f"rewound as flow {successor.flow_id}", ns=ns)
        # A cancelled flow keeps its locks while it has steps to undo; these are its successor's ground.
        flows.close(tx, flow_id, ns=ns)
    return successor


_FORKS = sql("SELECT dfid FROM flow_calls WHERE ns = :ns AND forked_from = :dfid ORDER BY dfid LIMIT 1")


def retry(tx: Tx, flow_id: str, *, ns: str) -> Flow:
    """Run a failed flow again: from its last step that failed, or from the start where its steps were undone."""
    origin = flows.lock(tx, flow_id, ns=ns)
    successor = tx.one(_FORKS, dfid=flow_id, ns=ns)
    if successor is not None:
        raise ConflictError(f"it was forked already, as flow {successor[0]}", flow_id=flow_id)
    if sagas.is_dirty(tx, flow_id, ns=ns):
        raise ConflictError("it is dirty: undo it first (`sagas compensate`)", flow_id=flow_id)
    call = _call(tx, flow_id, ns)
    meets, _ = journal(tx, flow_id, ns=ns)
    work = [record.value for record in meets.values() if record.value.compensates is None]
    # The last one: an earlier failure was dealt with by the code, which went on.
    positions = [step.position for step in work if step.state == "FAILED"] or [step.position + 1 for step in work]
    forked_at = max(positions, default=0) if origin.status == "FAILED" else 0
    _refuse_doubt(meets, flow_id, forked_at)
    answers = None if call.answers is None else recorded.dump(call.answers)
    spec = CallSpec(
        call.name,
        call.version,
        recorded.dump(call.arguments),
        agent_id=call.agent_id,
        forked_from=flow_id,
        forked_at=forked_at,
        effects=call.effects or "real",
        answers=answers,
    )
    return _open(tx, origin, spec)


def _position(meets: Journal, flow_id: str, at: str) -> int:
    """Return the position of a step that is named by its name, or by its name and number."""
    name, _, number = at.rpartition(" ")
    record = meets.get((at, 1)) or (meets.get((name, int(number))) if number.isdecimal() else None)
    if record is None:
        raise NotFoundError(f"flow {flow_id} has recorded no step {at}", flow_id=flow_id, step=at)
    return record.value.position


def _refuse_doubt(meets: Journal, flow_id: str, forked_at: int) -> None:
    for record in _shared(meets, forked_at).values():
        if record.value.state not in steps.SETTLED:
            step = f"{record.value.name} {record.value.n}"
            raise ConflictError(f"step {step} has not ended: fork there, or before", flow_id=flow_id, step=step)


def _inputs(inputs: Mapping[str, Any]) -> str:
    if not inputs.keys() <= {"args", "kwargs"}:
        raise InvalidInputError('inputs are {"args": […], "kwargs": {…}}', field="inputs")
    return calls.arguments_text(inputs.get("args", ()), inputs.get("kwargs", {}))
