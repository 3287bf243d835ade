"""Retries: how often a flow's intent may be rejected.

Rules:
- Every rejection counts, however many come at once.
- At `max_retries` the flow FAILS with REASONING_EXHAUSTION, and goes on to COMPENSATING if it has steps to undo; a flow
  that has ended or is being undone is not rejected again.
- The policy sets `next_retry_at` and `backoff_until`: EXPONENTIAL_BACKOFF doubles, with jitter; LINEAR adds; NONE
  retries at once.
"""

from typing import Final

from holdproof import validation
from holdproof.db import Tx, sql
from holdproof.errors import FlowEndedError, NotFoundError
from holdproof.model.coordination import POLICIES, Retry
from holdproof.model.flows import Flow
from holdproof.model.namespaces import MAIN
from holdproof.model.times import later
from holdproof.runtime import audit, flows

EXHAUSTED: Final = "REASONING_EXHAUSTION"
_LONGEST_S: Final = 300.0

# One upsert, so that no rejection is lost however many come at once.
_COUNT = sql(
    "INSERT INTO intent_retry (dfid, rejection_count, max_retries, retry_policy, updated_at, ns)"
    " VALUES (:dfid, 1, coalesce(CAST(:most AS INTEGER), 3),"
    " coalesce(CAST(:policy AS TEXT), 'EXPONENTIAL_BACKOFF'), :now, :ns)"
    " ON CONFLICT (dfid, ns) DO UPDATE SET rejection_count = intent_retry.rejection_count + 1, updated_at = :now,"
    " max_retries = coalesce(CAST(:most AS INTEGER), intent_retry.max_retries),"
    " retry_policy = coalesce(CAST(:policy AS TEXT), intent_retry.retry_policy)"
    " RETURNING rejection_count, max_retries, retry_policy"
)
_WHEN = sql("UPDATE intent_retry SET next_retry_at = :when, backoff_until = :when WHERE dfid = :dfid AND ns = :ns")


def reject(
    tx: Tx,
    flow_id: str,
    *,
    reason: str = "",
    max_retries: int | None = None,
    policy: str | None = None,
    base_s: float = 1.0,
    ns: str = MAIN,
) -> Retry:
    """Count a rejection of the flow's intent; the last one that is allowed fails the flow.

    Returns when the flow may try again; raises FlowEndedError where it has ended or is being undone.
    """
    if policy is not None:
        validation.one_of("policy", policy, POLICIES)
    if max_retries is not None:
        validation.count("max_retries", max_retries, least=1)
    flow = flows.lock(tx, flow_id, ns=ns)
    if _is_over(flow):
        raise FlowEndedError(f"flow {flow_id} is {flow.status}", flow_id=flow_id, flow_status=flow.status)
    row = tx.one(_COUNT, dfid=flow_id, most=max_retries, policy=policy, now=tx.now, ns=ns)
    assert row is not None, "an upsert has one row"
    count, most, stored_policy = row
    if count >= most:
        detail = {"rejections": count, "reason": reason}
        audit.observe(tx, flow_id, EXHAUSTED, severity="ERROR", detail=detail, ns=ns)
        flows.fail(tx, flow_id, reason=EXHAUSTED, ns=ns)
        return Retry(flow_id, count, most, stored_policy, None, None, tx.now, ns)
    when = later(tx.now, _delay_s(tx, stored_policy, count, validation.seconds("base_s", base_s)))
    tx.execute(_WHEN, dfid=flow_id, ns=ns, when=when, expect=1)
    return Retry(flow_id, count, most, stored_policy, when, when, tx.now, ns)


def _is_over(flow: Flow) -> bool:
    return flow.ended or flow.status == "COMPENSATING"


def _delay_s(tx: Tx, policy: str, count: int, base_s: float) -> float:
    if policy == "NONE":
        return 0.0
    if policy == "LINEAR":
        return min(_LONGEST_S, base_s * count)
    # Between half and all of the delay, so that flows that were rejected together do not come back together.
    jitter = 0.5 + int.from_bytes(tx.random(4), "big") / 2**33
    # The exponent is bounded: a power beyond it would not be a finite number, and the delay is cut anyway.
    return min(_LONGEST_S, base_s * 2.0 ** min(count - 1, 30)) * jitter


_GET = sql(
    "SELECT dfid, rejection_count, max_retries, retry_policy, next_retry_at, backoff_until, updated_at, ns"
    " FROM intent_retry WHERE dfid = :dfid AND ns = :ns"
)


def get(tx: Tx, flow_id: str, *, ns: str = MAIN) -> Retry:
    """Return how often a flow was rejected; NotFoundError where it never was."""
    row = tx.one(_GET, dfid=flow_id, ns=ns)
    if row is None:
        raise NotFoundError(f"flow {flow_id} was never rejected", flow_id=flow_id)
    return Retry(*row)


_SET = sql(
    "INSERT INTO intent_retry (dfid, rejection_count, updated_at, ns) VALUES (:dfid, :count, :now, :ns)"
    " ON CONFLICT (dfid, ns) DO UPDATE SET updated_at = :now, rejection_count = CASE WHEN :added > 0"
    " THEN intent_retry.rejection_count + :added ELSE excluded.rejection_count END"
)


def set_count(tx: Tx, flow_id: str, count: int, *, base: int | None = None, ns: str = MAIN) -> None:
    """Set a flow's count for another kernel; what that added to the `base` it read is added to the current count."""
    validation.number("count", count, least=0)
    added = 0 if base is None else count - base
    tx.execute(_SET, dfid=flow_id, count=count, added=added, now=tx.now, ns=ns, expect=1)


_DELETE = sql("DELETE FROM intent_retry WHERE dfid = :dfid AND ns = :ns")


def delete(tx: Tx, flow_id: str, *, ns: str = MAIN) -> bool:
    """Delete the count of a flow; return whether there was one."""
    return tx.count(_DELETE, dfid=flow_id, ns=ns) == 1


def allowed(tx: Tx, flow_id: str, *, ns: str = MAIN) -> bool:
    """Return whether a flow may try now: it is neither over nor being undone, has tries left, and backs off no more."""
    if _is_over(flows.get(tx, flow_id, ns=ns)):
        return False
    row = tx.one(_GET, dfid=flow_id, ns=ns)
    if row is None:
        return True
    retry = Retry(*row)
    return not retry.exhausted and (retry.backoff_until is None or retry.backoff_until <= tx.now)
