"""Sagas: flows that failed half way, and undoing what they did.

Rules:
- A dirty flow stays dirty, and keeps its locks, until a compensation reports success or an operator clears it.
- A flow that was marked while it ran and completes all the same stays dirty too. COMPLETED is an end: nothing
  compensates it any more; a person repairs what is left and clears it.
- One worker compensates at a time; a compensation that a crash ended is resumed once its lease has expired.
- REVERT and CLOSE_ALL call the caller's function with the partial state; NOOP says that nothing is to be undone;
  ALERT_HUMAN escalates, and undoes nothing.
"""

from collections.abc import Callable
from typing import Any, Final

from holdproof import paging, validation
from holdproof.crypto import canonical
from holdproof.db import Call, Tx, Work, Write, ask, lock_exclusive, sql
from holdproof.errors import CompensationFailedError, FlowEndedError, InvalidInputError, NotFoundError
from holdproof.model import jsontext
from holdproof.model.coordination import STRATEGIES, DirtyFlow
from holdproof.model.defaults import LEASE_S
from holdproof.model.flows import TERMINAL, UNDOABLE, Flow
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.times import END
from holdproof.runtime import audit, escalations, flows, leases, recorded

_CALLING: Final = frozenset({"REVERT", "CLOSE_ALL"})
"""The strategies that call a function."""

# Marking a dirty flow again updates where it failed, and keeps since when it is dirty.
_MARK = sql(
    "INSERT INTO saga_dirty_state (dfid, failed_step, partial_state_json, created_at, ns)"
    " VALUES (:dfid, :failed_step, :partial_state_json, :now, :ns) ON CONFLICT (dfid, ns) DO UPDATE SET"
    " failed_step = excluded.failed_step, partial_state_json = excluded.partial_state_json"
    " RETURNING dfid, failed_step, partial_state_json, created_at, ns"
)


def mark_dirty(tx: Tx, flow_id: str, step: str, partial_state: Any = None, *, ns: str = MAIN) -> DirtyFlow:
    """Mark a flow that failed at a step, with that much done; FlowEndedError where nothing can be undone any more."""
    flow = flows.lock(tx, flow_id, ns=ns)
    if flow.status in TERMINAL - UNDOABLE:
        raise FlowEndedError(f"flow {flow_id} is {flow.status}", flow_id=flow_id, flow_status=flow.status)
    dirty = put(tx, flow_id, validation.name("step", step), canonical.dump_text(partial_state or {}), ns=ns)
    audit.observe(tx, flow_id, "SAGA_DIRTY", severity="ERROR", step_id=step, ns=ns)
    return dirty


def put(tx: Tx, flow_id: str, step: str, text: str, *, ns: str) -> DirtyFlow:
    """Mark a flow as dirty, given its partial state as JSON text."""
    flows.lock(tx, flow_id, ns=ns)
    sealed = recorded.seal_json(tx, text, recorded.subject_of(tx, flow_id, ns=ns))
    row = tx.one(_MARK, dfid=flow_id, failed_step=step, partial_state_json=sealed, now=tx.now, ns=ns)
    assert row is not None, "an upsert has one row"
    return _dirty(tx, *row)


_LIST = sql(
    "SELECT dfid, failed_step, partial_state_json, created_at, ns FROM saga_dirty_state"
    " WHERE ns = :ns AND (created_at, dfid) < (:at, :dfid) ORDER BY created_at DESC, dfid DESC LIMIT :limit"
)


def list(tx: Tx, *, cursor: str | None = None, limit: int = 100, ns: str = MAIN) -> Page[DirtyFlow]:
    """List dirty flows, newest first."""
    at, flow_id = paging.decode(cursor, END, "")
    rows = tx.all(_LIST, ns=ns, at=paging.moment(at), dfid=flow_id, limit=paging.fetch(limit))
    return paging.page((_dirty(tx, *row) for row in rows), limit, lambda dirty: (dirty.created_at, dirty.flow_id))


_GET = sql(
    "SELECT dfid, failed_step, partial_state_json, created_at, ns FROM saga_dirty_state WHERE dfid = :dfid AND ns = :ns"
)


def get(tx: Tx, flow_id: str, *, ns: str = MAIN) -> DirtyFlow:
    """Return what a dirty flow left behind; NotFoundError for a flow that is not dirty."""
    row = tx.one(_GET, dfid=flow_id, ns=ns)
    if row is None:
        raise NotFoundError(f"flow {flow_id} is not dirty", flow_id=flow_id)
    return _dirty(tx, *row)


_IS_DIRTY = sql("SELECT 1 FROM saga_dirty_state WHERE dfid = :dfid AND ns = :ns")


def is_dirty(tx: Tx, flow_id: str, *, ns: str) -> bool:
    """Return whether a flow has something to undo that nobody has undone."""
    return tx.one(_IS_DIRTY, dfid=flow_id, ns=ns) is not None


_CLEAR = sql("DELETE FROM saga_dirty_state WHERE dfid = :dfid AND ns = :ns")


def clear(tx: Tx, flow_id: str, *, by: str, ns: str = MAIN) -> bool:
    """Declare a flow clean; return whether it was dirty. One that has ended releases its locks."""
    if not drop(tx, flow_id, ns=ns):
        return False
    audit.observe(tx, flow_id, "SAGA_CLEAN", detail={"by": by}, ns=ns)
    return True


def drop(tx: Tx, flow_id: str, *, ns: str) -> bool:
    """Delete the mark of a dirty flow, without an audit event; return whether it was dirty."""
    flow = flows.lock(tx, flow_id, ns=ns)
    if tx.count(_CLEAR, dfid=flow_id, ns=ns) == 0:
        return False
    # It kept its locks beyond its end only because it was dirty.
    if flow.ended:
        flows.close(tx, flow_id, ns=ns)
    return True


def _dirty(  # noqa: PLR0917 (the columns of a row)
    tx: Tx, flow_id: str, failed_step: str, partial_state: str, created_at: str, ns: str
) -> DirtyFlow:
    state = recorded.open_json(tx, jsontext.load(partial_state))
    return DirtyFlow(flow_id, failed_step, state, created_at, ns)


# --- compensating ------------------------------------------------------------------------------------------------


def compensate(
    flow_id: str,
    strategy: str,
    fn: Callable[[Any], Any] | None = None,
    *,
    worker: str = "compensator",
    lease_s: float = LEASE_S,
    ns: str = MAIN,
) -> Work[Flow]:
    """Undo a dirty flow; `fn` gets the partial state, and fails by raising or returning False.

    After a crash `fn` is called again, so that it must bear repetition. Raises CompensationFailedError where it fails.
    """
    validation.one_of("strategy", strategy, STRATEGIES)
    if (strategy in _CALLING) != (fn is not None):
        raise InvalidInputError(f"{strategy} {'needs' if fn is None else 'takes no'} function", strategy=strategy)
    if strategy == "ALERT_HUMAN":
        return (yield from ask(Write(lambda tx: _alert(tx, flow_id, ns))))
    dirty, token = yield from ask(
        Write(lambda tx: _begin(tx, flow_id, strategy, worker=worker, lease_s=lease_s, ns=ns))
    )
    failure: Exception | None = None
    if fn is not None:
        call: Call[Any] = Call(lambda: fn(dirty.partial_state))
        try:
            result = yield from ask(call)
            failure = InvalidInputError("it returned False") if result is False else None
        except Exception as error:
            failure = error
    flow = yield from ask(Write(lambda tx: _end(tx, flow_id, strategy, token=token, failure=failure, ns=ns)))
    if failure is not None:
        raise CompensationFailedError(f"flow {flow_id} is still dirty: {failure}", flow_id=flow_id) from failure
    return flow


def _begin(tx: Tx, flow_id: str, strategy: str, *, worker: str, lease_s: float, ns: str) -> tuple[DirtyFlow, int]:
    """Lease the flow for undoing; return what it left behind, and the lease's token."""
    flow = flows.lock(tx, flow_id, ns=ns)
    dirty = get(tx, flow_id, ns=ns)
    if flow.status in TERMINAL - UNDOABLE:
        message = f"flow {flow_id} is {flow.status}: undo what is left by hand, then run `holdproof sagas clear`"
        raise FlowEndedError(message, flow_id=flow_id, flow_status=flow.status)
    if flow.status != "COMPENSATING":  # else a compensation before this one crashed
        flows.transition(tx, flow_id, "COMPENSATING", reason=strategy, ns=ns)
    lease = leases.lease(tx, flow_id, worker, lease_s=lease_s, ns=ns)
    audit.observe(tx, flow_id, "COMPENSATION_STARTED", step_id=dirty.failed_step, detail={"strategy": strategy}, ns=ns)
    return dirty, lease.token


def _end(tx: Tx, flow_id: str, strategy: str, *, token: int, failure: Exception | None, ns: str) -> Flow:
    """Record how the compensation went, if this worker still has the lease."""
    lock_exclusive(tx, f"flow:{flow_id}")
    leases.heartbeat(tx, flow_id, token, ns=ns)
    if failure is not None:
        detail = {"strategy": strategy, "error": validation.error_text(failure)}
        audit.observe(tx, flow_id, "COMPENSATION_FAILED", severity="ERROR", detail=detail, ns=ns)
        return flows.transition(tx, flow_id, "FAILED", reason="compensation failed", ns=ns)
    # Cleared before the transition: the end of a flow that is not dirty releases its locks.
    clear(tx, flow_id, by=f"{strategy} compensation", ns=ns)
    return flows.transition(tx, flow_id, "COMPENSATED", reason=strategy, ns=ns)


def _alert(tx: Tx, flow_id: str, ns: str) -> Flow:
    dirty = get(tx, flow_id, ns=ns)
    reason = f"step {dirty.failed_step} failed and is to be undone by hand"
    escalations.alert(tx, flow_id, reason=reason, context=dirty.partial_state, ns=ns)
    audit.observe(tx, flow_id, "COMPENSATION_ALERT", severity="CRITICAL", step_id=dirty.failed_step, ns=ns)
    return flows.get(tx, flow_id, ns=ns)
