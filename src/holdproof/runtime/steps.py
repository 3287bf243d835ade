"""Steps: durable work inside a flow.

Rules:
- A step that is DONE never runs again: its result is given back. One that FAILED fails again in the same way.
- A step that was begun by a worker that is gone is UNKNOWN, and never run again silently: `retry` runs it, `fail` fails
  it, `ask` (the default) asks a person, at no cost to the agent's budget. APPROVED runs it again, APPROVED with another
  proposal takes that as its result, anything else fails it.
- Only the worker that has the flow in hand begins and ends steps; each of them is a heartbeat, and one that waits for a
  person sends more.
- While a flow compensates, no new step begins but those that undo.
- A result that is not JSON fails its step; one that can be undone stays unfinished, since it has happened.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from holdproof.db import Call, Refused, Row, Tx, Work, Write, ask, lock_exclusive, sql
from holdproof.errors import (
    FlowEndedError,
    LeaseLostError,
    ReplayedError,
    UnknownOutcomeError,
)
from holdproof.evidence.leaves import Projection
from holdproof.model.coordination import Escalation
from holdproof.model.flows import Step
from holdproof.runtime import escalations, flows, inbox, leases, logged_rows
from holdproof.runtime.logged_rows import MAIN

STEPS: Final = logged_rows.register(
    Projection(
        "flow_steps",
        1,
        (
            *("step_id", "dfid", "name", "n", "state", "compensates", "result", "error", "undo", "started_at"),
            *("finished_at", "ns"),
        ),
    ),
    kind="step",
    key="step_id",
)
OnUnknown = Literal["ask", "retry", "fail"]
_ASKED: Final = "escalation:"


@dataclass(frozen=True, slots=True)
class StepLease:
    """A flow in the hands of this worker."""

    flow_id: str
    token: int
    lease_s: float = leases.LEASE_S
    ns: str = MAIN


@dataclass(frozen=True, slots=True)
class Plan:
    """A step as its caller wants it; `compensates` is the step that it undoes."""

    name: str
    n: int
    undo: bool = False
    on_unknown: OnUnknown = "ask"
    compensates: str | None = None


def step(hand: StepLease, plan: Plan, fn: Callable[[], Any]) -> Work[Any]:
    """Run a step, or give back what it gave when it ran."""
    logged_rows.name("step", plan.name)
    logged_rows.one_of("on_unknown", plan.on_unknown, frozenset({"ask", "retry", "fail"}))
    begun: Step | Refused = yield from ask(Write(partial(_begin, hand=hand, plan=plan)))
    assert not isinstance(begun, Refused), "the face raises it"
    known = begun if begun.state != "UNKNOWN" else (yield from _answered(hand, plan, begun))
    if known.state == "DONE":
        return known.result
    if known.state == "FAILED":
        raise ReplayedError(f"step {plan.name} failed before: {known.error}", step=plan.name, flow_id=hand.flow_id)
    return (yield from _execute(hand, known, fn))


def _execute(hand: StepLease, begun: Step, fn: Callable[[], Any]) -> Work[Any]:
    """Call, and write down how it ended; what is not an Exception (a cancelled caller) leaves the outcome unknown."""
    call: Call[Any] = Call(fn)
    happened = False
    try:
        result = yield from ask(call)
        happened = True
        text = logged_rows.dump(result if begun.compensates is None else None)  # nobody is given what an undoing gives
    except Exception as error:
        if happened and begun.undo:  # to say that it failed would be to say that nothing is to be undone
            raise
        words = logged_rows.words(error)
        yield from ask(Write(partial(_end, hand=hand, begun=begun, state="FAILED", error=words)))
        raise
    yield from ask(Write(partial(_end, hand=hand, begun=begun, state="DONE", result=text)))
    return logged_rows.load(text)


# --- transactions ------------------------------------------------------------------------------------------------

_FIND = sql(
    "SELECT step_id, dfid, name, n, state, compensates, result, error, undo, started_at, finished_at, ns, leaf_id,"
    " leaf_ver FROM flow_steps WHERE dfid = :dfid AND name = :name AND n = :n"
)
_ADD = sql(
    "INSERT INTO flow_steps (step_id, dfid, name, n, state, compensates, result, error, undo, started_at, finished_at,"
    " ns, leaf_id, leaf_ver, leaf_salt) VALUES (:step_id, :dfid, :name, :n, :state, :compensates, :result, :error,"
    " :undo, :started_at, :finished_at, :ns, :leaf_id, :leaf_ver, :leaf_salt)"
)
_CHANGE = sql(
    "UPDATE flow_steps SET state = :state, result = :result, error = :error, started_at = :started_at,"
    " finished_at = :finished_at, leaf_id = :leaf_id, leaf_ver = :leaf_ver, leaf_salt = :leaf_salt"
    " WHERE step_id = :step_id AND leaf_ver = :leaf_ver - 1"
)


def _begin(tx: Tx, hand: StepLease, plan: Plan) -> Step | Refused:
    """The step as it is: STARTED if it is ours to run now, DONE, FAILED, or UNKNOWN if somebody has been asked."""
    flow = flows.hold(tx, hand.flow_id, ns=hand.ns)
    leases.heartbeat(tx, hand.flow_id, hand.token, lease_s=hand.lease_s, ns=hand.ns)
    known = tx.one(_FIND, dfid=hand.flow_id, name=plan.name, n=plan.n)
    if known is not None and known[4] != "STARTED":
        return shown(known)
    if flow.status != ("RUNNING" if plan.compensates is None else "COMPENSATING"):
        raise FlowEndedError(f"flow {flow.flow_id} is {flow.status}", flow_id=flow.flow_id, flow_status=flow.status)
    if known is not None:
        return _unfinished(tx, hand, plan, known)
    row: dict[str, Any] = dict.fromkeys(STEPS.columns)
    row |= {"step_id": tx.new_id(), "dfid": hand.flow_id, "name": plan.name, "n": plan.n}
    row |= {"state": "STARTED", "compensates": plan.compensates, "undo": int(plan.undo), "started_at": tx.now}
    row["ns"] = hand.ns
    logged_rows.add(tx, _ADD, "step", STEPS, row)
    return shown(tuple(row.values()))


def _unfinished(tx: Tx, hand: StepLease, plan: Plan, known: Row) -> Step | Refused:
    """A worker that is gone began the step: do what the plan says about that."""
    if plan.on_unknown == "retry":
        return _change(tx, known, {"state": "STARTED", "started_at": tx.now})
    if plan.on_unknown == "fail":
        _change(tx, known, {"state": "FAILED", "error": "its outcome is unknown", "finished_at": tx.now})
        return Refused(
            UnknownOutcomeError(f"step {plan.name} was begun and never finished", step=plan.name, flow_id=hand.flow_id)
        )
    context = {"step": plan.name, "n": plan.n, "started_at": known[9]}
    asked = escalations.alert(
        tx, hand.flow_id, reason=f"step {plan.name} was begun and never finished", context=context, ns=hand.ns
    )
    return _change(tx, known, {"state": "UNKNOWN", "error": f"{_ASKED}{asked.id}"})


def _change(tx: Tx, known: Row, news: dict[str, Any]) -> Step:
    row = dict(zip(STEPS.columns, known, strict=False)) | news
    logged_rows.change(tx, _CHANGE, "step", STEPS, row, leaf_id=known[12], leaf_ver=known[13])
    return shown(tuple(row.values()))


def _end(
    tx: Tx, *, hand: StepLease, begun: Step, state: str, result: str | None = None, error: str | None = None
) -> None:
    """Write down how a step ended, if the flow is still in our hands."""
    lock_exclusive(tx, f"flow:{hand.flow_id}")
    leases.heartbeat(tx, hand.flow_id, hand.token, lease_s=hand.lease_s, ns=hand.ns)
    known = tx.one(_FIND, dfid=begun.flow_id, name=begun.name, n=begun.n)
    if known is None or known[4] != "STARTED":
        raise LeaseLostError(f"step {begun.name} was settled by somebody else", flow_id=begun.flow_id, step=begun.name)
    _change(tx, known, {"state": state, "result": result, "error": error, "finished_at": tx.now})


def _answered(hand: StepLease, plan: Plan, known: Step) -> Work[Step]:
    """Wait for the person who was asked about a step; the step as they want it."""
    number = int((known.error or "").removeprefix(_ASKED))
    answer = yield from attend(hand, number)
    return (yield from ask(Write(partial(_settle, hand=hand, plan=plan, answer=answer))))


def attend(hand: StepLease, number: int) -> Work[Escalation]:
    """Wait for the answer to a question, and keep the flow in hand for so long."""
    while True:
        asked = yield from inbox.wait(number, timeout_s=hand.lease_s / 3, ns=hand.ns)
        if asked.status != "PENDING":
            return asked
        yield from ask(Write(partial(_keep, hand=hand, number=number)))


def _keep(tx: Tx, hand: StepLease, number: int) -> None:
    lock_exclusive(tx, f"flow:{hand.flow_id}")
    if inbox.get(tx, number, ns=hand.ns).status == "PENDING":  # else the answer may have ended the flow and its lease
        leases.heartbeat(tx, hand.flow_id, hand.token, lease_s=hand.lease_s, ns=hand.ns)


def _settle(tx: Tx, *, hand: StepLease, plan: Plan, answer: Escalation) -> Step:
    lock_exclusive(tx, f"flow:{hand.flow_id}")
    row = tx.one(_FIND, dfid=hand.flow_id, name=plan.name, n=plan.n)
    assert row is not None, "steps stay"
    if row[4] != "UNKNOWN":
        raise LeaseLostError(f"step {plan.name} was settled by somebody else", flow_id=hand.flow_id, step=plan.name)
    if not answer.approved:  # the flow has ended by that, and with it our lease
        words = f"its outcome is unknown, {answer.status} by {answer.resolved_by}"
        return _change(tx, row, {"state": "FAILED", "error": words, "finished_at": tx.now})
    leases.heartbeat(tx, hand.flow_id, hand.token, lease_s=hand.lease_s, ns=hand.ns)
    if answer.human_decision == "MODIFY":
        text = logged_rows.dump(answer.answer)
        return _change(tx, row, {"state": "DONE", "result": text, "error": None, "finished_at": tx.now})
    return _change(tx, row, {"state": "STARTED", "error": None, "started_at": tx.now})


_LIST = sql(
    "SELECT step_id, dfid, name, n, state, compensates, result, error, undo, started_at, finished_at, ns"
    " FROM flow_steps WHERE dfid = :dfid AND ns = :ns ORDER BY step_id"
)


def list(tx: Tx, flow_id: str, *, ns: str = MAIN) -> tuple[Step, ...]:
    """The steps of a flow, in the order they were begun."""
    return tuple(shown(row) for row in tx.all(_LIST, dfid=flow_id, ns=ns))


def shown(row: Row) -> Step:
    """A row as a value."""
    return Step(*(*row[:6], logged_rows.load(row[6]), row[7], bool(row[8]), *row[9:12]))
