"""Sagas: flows that failed half way, and undoing what they did.

Rules:
- A dirty flow stays dirty, and keeps its locks, until a compensation reports success or an operator clears it.
- A flow that was marked under way and completes all the same stays dirty too. COMPLETED is an end: nothing compensates
  it any more, a person mends what is left and clears it.
- One worker compensates at a time; a compensation that a crash ended is taken up again once its lease has run out.
- REVERT and CLOSE_ALL call what the caller brings with the partial state; NOOP says that nothing is to be undone;
  ALERT_HUMAN asks a person, and undoes nothing.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from holdproof.db import Call, Database, Row, Tx, Work, Write, ask, lock_exclusive, sql
from holdproof.errors import CompensationFailedError, FlowEndedError, InvalidInputError, NotFoundError
from holdproof.model.coordination import STRATEGIES, Dirty
from holdproof.model.flows import TERMINAL, UNDOABLE, Flow
from holdproof.runtime import audit, escalations, flows, leases, logged_rows
from holdproof.runtime.logged_rows import MAIN

_log = logging.getLogger("holdproof")

_WORKING: Final = frozenset({"REVERT", "CLOSE_ALL"})

_MARK = sql(
    "INSERT INTO saga_dirty_state (dfid, failed_step, partial_state_json, created_at, ns)"
    " VALUES (:dfid, :failed_step, :partial_state_json, :now, :ns) ON CONFLICT (dfid) DO UPDATE SET"
    " failed_step = excluded.failed_step, partial_state_json = excluded.partial_state_json"
    " RETURNING dfid, failed_step, partial_state_json, created_at, ns"
)


def mark_dirty(tx: Tx, flow_id: str, step: str, partial_state: Any = None, *, ns: str = MAIN) -> Dirty:
    """Say that a flow failed at a step, with that much done; FlowEndedError where nothing can be undone any more."""
    if (flow := flows.hold(tx, flow_id, ns=ns)).status in TERMINAL - UNDOABLE:
        raise FlowEndedError(f"flow {flow_id} is {flow.status}", flow_id=flow_id, flow_status=flow.status)
    dirty = put(tx, flow_id, logged_rows.name("step", step), logged_rows.dump(partial_state or {}), ns=ns)
    audit.record(tx, flow_id, "SAGA_DIRTY", severity="ERROR", step_id=step, ns=ns)
    return dirty


def put(tx: Tx, flow_id: str, step: str, text: str, *, ns: str) -> Dirty:
    """Write that a flow is dirty, its partial state as JSON text."""
    flows.hold(tx, flow_id, ns=ns)
    row = tx.one(_MARK, dfid=flow_id, failed_step=step, partial_state_json=text, now=tx.now, ns=ns)
    assert row is not None, "an upsert has one row"
    return _dirty(row)


_LIST = sql(
    "SELECT dfid, failed_step, partial_state_json, created_at, ns FROM saga_dirty_state"
    " WHERE ns = :ns AND dfid > :after ORDER BY dfid LIMIT :limit"
)


def list_dirty(tx: Tx, *, ns: str = MAIN, after: str = "", limit: int = 100) -> tuple[Dirty, ...]:
    """Flows with something to undo, by id."""
    return tuple(_dirty(row) for row in tx.all(_LIST, ns=ns, after=after, limit=logged_rows.limited(limit)))


_COUNT = sql("SELECT count(*) FROM saga_dirty_state")


def at_opening(database: Database) -> None:
    """Flows that wait for somebody to undo what they did are not forgotten over a restart."""
    [(dirty,)] = database.read(lambda tx: tx.all(_COUNT)).result()
    if dirty:
        _log.warning("flows that failed half way and are still dirty: %d; see `holdproof sagas list`", dirty)


_GET = sql(
    "SELECT dfid, failed_step, partial_state_json, created_at, ns FROM saga_dirty_state WHERE dfid = :dfid AND ns = :ns"
)


def get(tx: Tx, flow_id: str, *, ns: str = MAIN) -> Dirty:
    """What is known of a dirty flow."""
    row = tx.one(_GET, dfid=flow_id, ns=ns)
    if row is None:
        raise NotFoundError(f"flow {flow_id} is not dirty", flow_id=flow_id)
    return _dirty(row)


_IS_DIRTY = sql("SELECT 1 FROM saga_dirty_state WHERE dfid = :dfid")


def is_dirty(tx: Tx, flow_id: str) -> bool:
    """Whether a flow has something to undo that nobody has undone."""
    return tx.one(_IS_DIRTY, dfid=flow_id) is not None


_CLEAR = sql("DELETE FROM saga_dirty_state WHERE dfid = :dfid AND ns = :ns")


def clear(tx: Tx, flow_id: str, *, by: str, ns: str = MAIN) -> bool:
    """Say that a flow has nothing more to undo; whether it was dirty. An ended one lets its locks go."""
    if not drop(tx, flow_id, ns=ns):
        return False
    audit.record(tx, flow_id, "SAGA_CLEAN", detail={"by": by}, ns=ns)
    return True


def drop(tx: Tx, flow_id: str, *, ns: str) -> bool:
    """Write that a flow is clean; whether it was dirty."""
    flow = flows.hold(tx, flow_id, ns=ns)
    if tx.count(_CLEAR, dfid=flow_id, ns=ns) == 0:
        return False
    if flow.ended:
        flows.close(tx, flow_id, ns=ns)
    return True


def _dirty(row: Row) -> Dirty:
    return Dirty(row[0], row[1], logged_rows.load(row[2]), row[3], row[4])


# --- compensating ------------------------------------------------------------------------------------------------


def compensate(
    flow_id: str,
    strategy: str,
    fn: Callable[[Any], Any] | None = None,
    *,
    worker: str = "compensator",
    lease_s: float = leases.LEASE_S,
    ns: str = MAIN,
) -> Work[Flow]:
    """Undo a dirty flow; `fn` gets the partial state and fails by raising or returning False. Must bear repetition."""
    logged_rows.one_of("strategy", strategy, STRATEGIES)
    if (strategy in _WORKING) != (fn is not None):
        raise InvalidInputError(f"{strategy} {'needs' if fn is None else 'takes no'} function", strategy=strategy)
    if strategy == "ALERT_HUMAN":
        return (yield from ask(Write(lambda tx: _alert(tx, flow_id, ns))))
    dirty, token = yield from ask(
        Write(lambda tx: _begin(tx, flow_id, strategy, worker=worker, lease_s=lease_s, ns=ns))
    )
    trouble: Exception | None = None
    if fn is not None:
        call: Call[Any] = Call(lambda: fn(dirty.partial_state))
        try:
            done = yield from ask(call)
            trouble = InvalidInputError("it returned False") if done is False else None
        except Exception as error:
            trouble = error
    flow = yield from ask(Write(lambda tx: _end(tx, flow_id, strategy, token=token, trouble=trouble, ns=ns)))
    if trouble is not None:
        raise CompensationFailedError(f"flow {flow_id} is still dirty: {trouble}", flow_id=flow_id) from trouble
    return flow


def _begin(tx: Tx, flow_id: str, strategy: str, *, worker: str, lease_s: float, ns: str) -> tuple[Dirty, int]:
    """Take the flow in hand for undoing."""
    flow, dirty = flows.hold(tx, flow_id, ns=ns), get(tx, flow_id, ns=ns)
    if flow.status in TERMINAL - UNDOABLE:
        said = f"flow {flow_id} is {flow.status}: undo what is left by hand, then say so with `sagas clear`"
        raise FlowEndedError(said, flow_id=flow_id, flow_status=flow.status)
    if flow.status != "COMPENSATING":
        flows.transition(tx, flow_id, "COMPENSATING", reason=strategy, ns=ns)
    taken = leases.lease(tx, flow_id, worker, lease_s=lease_s, ns=ns)
    audit.record(tx, flow_id, "COMPENSATION_STARTED", step_id=dirty.failed_step, detail={"strategy": strategy}, ns=ns)
    return dirty, taken.token


def _end(tx: Tx, flow_id: str, strategy: str, *, token: int, trouble: Exception | None, ns: str) -> Flow:
    """Write down how it went, if the flow is still ours."""
    lock_exclusive(tx, f"flow:{flow_id}")
    leases.heartbeat(tx, flow_id, token, ns=ns)
    if trouble is not None:
        detail = {"strategy": strategy, "error": logged_rows.words(trouble)}
        audit.record(tx, flow_id, "COMPENSATION_FAILED", severity="ERROR", detail=detail, ns=ns)
        return flows.transition(tx, flow_id, "FAILED", reason="compensation failed", ns=ns)
    clear(tx, flow_id, by=f"{strategy} compensation", ns=ns)
    return flows.transition(tx, flow_id, "COMPENSATED", reason=strategy, ns=ns)


def _alert(tx: Tx, flow_id: str, ns: str) -> Flow:
    dirty = get(tx, flow_id, ns=ns)
    reason = f"step {dirty.failed_step} failed and is to be undone by hand"
    escalations.alert(tx, flow_id, reason=reason, context=dirty.partial_state, ns=ns)
    audit.record(tx, flow_id, "COMPENSATION_ALERT", severity="CRITICAL", step_id=dirty.failed_step, ns=ns)
    return flows.get(tx, flow_id, ns=ns)
