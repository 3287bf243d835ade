"""Locks: resources that flows hold, whole or in amounts.

Rules:
- All or nothing: either every requested resource is held afterwards, or none is that was not before.
- The amounts that are held never exceed the capacity, which is the smallest that any holder named; a lock without a
  capacity is exclusive.
- Nobody takes another holder's lock; acquiring again replaces one's own amount. An expired lock is free, and removed
  once somebody else acquires: no clock that is behind, or goes back, revives it.
- More than the capacity is InsufficientCapacityError at once; what others hold is ContentionTimeoutError at the
  deadline. Waiting holds no transaction open.
- Every acquisition has a fencing token, greater than every earlier one of that resource, even after a release.
- An ended flow acquires nothing.
- Where only the caller knows the capacity (`reserve`), others must not hold more than the caller counted.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Final, NamedTuple

from holdproof import paging, validation
from holdproof.db import Refused, Tx, Wait, Work, Write, ask, lock_exclusive, sql
from holdproof.errors import (
    ContentionTimeoutError,
    FlowEndedError,
    InsufficientCapacityError,
    InvalidInputError,
    LockLostError,
)
from holdproof.model.coordination import Lock
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.times import later, to_micros
from holdproof.runtime import flows

TTL_S: Final = 60.0
_ROUNDING: Final = 1 + 1e-9
"""Sums of amounts such as 0.1 are off by a little: a capacity is exceeded only beyond this factor."""

Capacity = float | Mapping[str, float] | None


def acquire(
    flow_id: str,
    resources: Mapping[str, float],
    *,
    capacity: Capacity = None,
    ttl_s: float | None = TTL_S,
    timeout_s: float = 5.0,
    ns: str = MAIN,
) -> Work[tuple[Lock, ...]]:
    """Acquire all these amounts for a flow, waiting at most `timeout_s` for others to release theirs.

    Raises ContentionTimeoutError where others still hold them by then, and InsufficientCapacityError at once where an
    amount exceeds the capacity.
    """
    attempt = partial(try_acquire, flow_id=flow_id, resources=resources, capacity=capacity, ttl_s=ttl_s, ns=ns)
    return (yield from acquire_with_retry(attempt, timeout_s=timeout_s, ns=ns))


def acquire_with_retry(
    attempt: Callable[[Tx], tuple[Lock, ...] | Refused],
    *,
    timeout_s: float,
    every_s: float = inf,
    on_refusal: Callable[[ContentionTimeoutError], None] = lambda _: None,
    ns: str,
) -> Work[tuple[Lock, ...]]:
    """Attempt to acquire after each release and every `every_s`, until the attempt succeeds or the time is up.

    `on_refusal` is told of each attempt that others kept from succeeding, once that is committed.
    """
    remaining = validation.seconds("timeout_s", timeout_s) * 1e6
    last_attempt = 0
    while True:
        try:
            locks = yield from ask(Write(attempt))
        except ContentionTimeoutError as error:
            on_refusal(error)
            now = to_micros(error.fields["at"])
            # Measured by the database's clock, in differences: a clock that goes back neither adds nor takes time.
            remaining -= max(0, now - (last_attempt or now))
            last_attempt = now
            if remaining <= 0:
                raise
            next_attempt = later(error.fields["at"], min(every_s, remaining / 1e6))
            until = min(next_attempt, error.fields["free_at"] or next_attempt)
            yield Wait(f"lock:{ns}:{error.fields['resource']}", until)
        else:
            assert not isinstance(locks, Refused), "the executor raises a refusal"
            return locks


class _Request(NamedTuple):
    """An amount of a resource, and the resource's capacity; None for an exclusive lock."""

    resource: str
    amount: float
    capacity: float | None


_DELETE_EXPIRED = sql(
    "DELETE FROM resource_locks WHERE ns = :ns AND resource_id = :resource_id AND dfid <> :dfid AND expires_at <= :now"
)


def try_acquire(
    tx: Tx,
    flow_id: str,
    resources: Mapping[str, float],
    *,
    capacity: Capacity = None,
    ttl_s: float | None = TTL_S,
    ns: str = MAIN,
) -> tuple[Lock, ...]:
    """Acquire all these amounts now; ContentionTimeoutError at once where others hold them."""
    if not isinstance(resources, Mapping):
        raise InvalidInputError('resources maps names to amounts, as in {"hangar 3": 1}', field="resources")
    # Sorted, as everybody locks several resources: no two transactions wait for each other.
    requests = [_request(resource, resources[resource], capacity) for resource in sorted(resources)]
    if not requests:
        raise InvalidInputError("resources names no resource", field="resources")
    until = None if ttl_s is None else later(tx.now, validation.seconds("ttl_s", ttl_s, least=0.001))
    if flows.lock(tx, flow_id, ns=ns).ended:
        raise FlowEndedError("an ended flow acquires nothing", flow_id=flow_id)
    for request in requests:
        lock_exclusive(tx, f"lock:{ns}:{request.resource}")
        tx.execute(_DELETE_EXPIRED, ns=ns, resource_id=request.resource, dfid=flow_id, now=tx.now)
    # All are checked before the first is written: all or nothing without a rollback.
    fences = [_check(tx, request, flow_id, ns=ns) for request in requests]
    return tuple(
        _take(tx, Lock(each.resource, flow_id, each.amount, tx.now, until, each.capacity, fence + 1, ns))
        for each, fence in zip(requests, fences, strict=True)
    )


def _request(resource: str, amount: float, capacity: Capacity) -> _Request:
    most = capacity.get(resource) if isinstance(capacity, Mapping) else capacity
    for value in (amount, 1.0 if most is None else most):
        if validation.number("an amount or capacity", value, least=0) == 0:
            raise InvalidInputError("amounts and capacities are above zero", resource=resource)
    if most is not None and amount > most * _ROUNDING:
        raise InsufficientCapacityError(
            f"{amount:g} of {resource} is requested, the capacity is {most:g}", resource=resource, capacity=most
        )
    return _Request(validation.name("resource", resource), float(amount), None if most is None else float(most))


class _Usage(NamedTuple):
    """What others hold of a resource, and the resource's last fencing token."""

    fence: int
    holders: int
    amount: float
    exclusive: int
    capacity: float | None
    """The smallest that any of them named."""
    free_at: str | None
    """When the first of them expires."""
    holder: str | None


_USAGE = sql(
    "SELECT coalesce((SELECT fence FROM lock_fences WHERE ns = :ns AND resource_id = :resource_id), 0), count(*),"
    " coalesce(sum(amount), 0), coalesce(sum(CASE WHEN capacity IS NULL THEN 1 ELSE 0 END), 0), min(capacity),"
    " min(expires_at), min(dfid) FROM resource_locks WHERE ns = :ns AND resource_id = :resource_id AND dfid <> :dfid"
    " AND (expires_at IS NULL OR expires_at > :now)"
)


def _usage(tx: Tx, resource: str, flow_id: str, ns: str) -> _Usage:
    row = tx.one(_USAGE, ns=ns, resource_id=resource, dfid=flow_id, now=tx.now)
    assert row is not None, "an aggregate has one row"
    return _Usage(*row)


def _check(tx: Tx, request: _Request, flow_id: str, *, ns: str) -> int:
    """Return the resource's last fencing token if the amount is free; else ContentionTimeoutError names a holder."""
    usage = _usage(tx, request.resource, flow_id, ns)
    most = request.capacity
    room = 0.0 if most is None else min(most, most if usage.capacity is None else usage.capacity)
    exceeds = usage.amount + request.amount > room * _ROUNDING
    if usage.holders and (most is None or usage.exclusive or exceeds):
        raise _contention(request.resource, usage, tx.now)
    return int(usage.fence)


# The NOT EXISTS repeats the check of `_check` inside the statement, against rows as they are when it runs.
_TAKE = sql(
    "INSERT INTO resource_locks (resource_id, dfid, amount, acquired_at, expires_at, capacity, fence, ns)"
    " SELECT :resource_id, :dfid, :amount, :acquired_at, :expires_at, :capacity, :fence, :ns WHERE NOT EXISTS"
    " (SELECT count(*) FROM resource_locks o WHERE o.ns = :ns AND o.resource_id = :resource_id AND o.dfid <> :dfid"
    " AND (o.expires_at IS NULL OR o.expires_at > :acquired_at) HAVING count(*) > 0 AND"
    " (CAST(:room AS DOUBLE PRECISION) < 0 OR count(*) > count(o.capacity)"
    " OR coalesce(sum(o.amount), 0) + :amount > :room"
    " OR coalesce(sum(o.amount), 0) + :amount > min(o.capacity) * 1.000000001))"
    " ON CONFLICT (ns, resource_id, dfid) DO UPDATE SET amount = excluded.amount, acquired_at = excluded.acquired_at,"
    " expires_at = excluded.expires_at, capacity = excluded.capacity, fence = excluded.fence"
)
# Kept apart from the locks: a fencing token must grow even after the last lock of a resource is gone.
_FENCE = sql(
    "INSERT INTO lock_fences (ns, resource_id, fence) VALUES (:ns, :resource_id, :fence)"
    " ON CONFLICT (ns, resource_id) DO UPDATE SET fence = excluded.fence WHERE lock_fences.fence < excluded.fence"
)


def _take(tx: Tx, lock: Lock) -> Lock:
    """Write a lock that was checked; the statement checks again, and fails the transaction if it writes no row."""
    # Negative stands for exclusive: any other holder refuses it.
    room = -1.0 if lock.capacity is None else lock.capacity * _ROUNDING
    tx.execute(_FENCE, ns=lock.ns, resource_id=lock.resource_id, fence=lock.fence, expect=1)
    tx.execute(
        _TAKE,
        resource_id=lock.resource_id,
        dfid=lock.flow_id,
        amount=lock.amount,
        acquired_at=lock.acquired_at,
        expires_at=lock.expires_at,
        capacity=lock.capacity,
        fence=lock.fence,
        ns=lock.ns,
        room=room,
        expect=1,
    )
    return lock


_UNKNOWN: Final = 1e300
"""Stands for the capacity of a resource that only its user knows."""


def reserve(
    tx: Tx, flow_id: str, resources: Mapping[str, float], *, expected: Mapping[str, float], ns: str = MAIN
) -> tuple[Lock, ...]:
    """Acquire amounts whose capacity the caller checked itself, until they are released; zero releases one.

    Raises ContentionTimeoutError if others hold more than the caller `expected` when it checked.
    """
    amounts = {resource: amount for resource, amount in resources.items() if amount != 0}
    locks = try_acquire(tx, flow_id, amounts, capacity=_UNKNOWN, ttl_s=None, ns=ns) if amounts else ()
    for resource in amounts:
        usage = _usage(tx, resource, flow_id, ns)
        if usage.amount > expected.get(resource, 0.0) * _ROUNDING:
            raise _contention(resource, usage, tx.now)
    for resource in resources.keys() - amounts.keys():
        release(tx, flow_id, resource, ns=ns)
    return locks


def amount_of_others(tx: Tx, resource: str, flow_id: str, *, ns: str = MAIN) -> float:
    """Return how much of a resource other flows hold."""
    return float(_usage(tx, resource, flow_id, ns).amount)


def _contention(resource: str, usage: _Usage, now: str) -> ContentionTimeoutError:
    return ContentionTimeoutError(
        f"{resource} is held by flow {usage.holder}",
        resource=resource,
        holder=usage.holder,
        free_at=usage.free_at,
        at=now,
    )


# An expired lock is not extended: another flow may have counted it as free.
_EXTEND = sql(
    "UPDATE resource_locks SET expires_at = :until WHERE ns = :ns AND resource_id = :resource_id AND dfid = :dfid"
    " AND (expires_at IS NULL OR expires_at > :now)"
    " RETURNING resource_id, dfid, amount, acquired_at, expires_at, capacity, fence, ns"
)


def extend(tx: Tx, flow_id: str, resource: str, *, ttl_s: float, ns: str = MAIN) -> Lock:
    """Extend a lock, counted from now; LockLostError if the flow does not hold it any more."""
    until = later(tx.now, validation.seconds("ttl_s", ttl_s, least=0.001))
    row = tx.one(_EXTEND, ns=ns, resource_id=resource, dfid=flow_id, now=tx.now, until=until)
    if row is None:
        raise LockLostError(f"flow {flow_id} does not hold {resource}", flow_id=flow_id, resource=resource)
    return _lock(*row)


_RELEASE = sql("DELETE FROM resource_locks WHERE ns = :ns AND resource_id = :resource_id AND dfid = :dfid")


def release(tx: Tx, flow_id: str, resource: str, *, ns: str = MAIN) -> bool:
    """Release one resource; return whether it was held."""
    tx.notify(f"lock:{ns}:{resource}")
    return tx.count(_RELEASE, ns=ns, resource_id=resource, dfid=flow_id) > 0


_RELEASE_ALL = sql("DELETE FROM resource_locks WHERE ns = :ns AND dfid = :dfid RETURNING resource_id")


def release_all(tx: Tx, flow_id: str, *, ns: str = MAIN) -> tuple[str, ...]:
    """Release everything that a flow holds; return the names of the resources."""
    names = tuple(sorted(resource for (resource,) in tx.all(_RELEASE_ALL, ns=ns, dfid=flow_id)))
    tx.notify(*(f"lock:{ns}:{resource}" for resource in names))
    return names


_SWEEP = sql("DELETE FROM resource_locks WHERE expires_at <= :now RETURNING ns, resource_id")


def sweep(tx: Tx) -> int:
    """Remove expired locks; return how many there were."""
    expired = tx.all(_SWEEP, now=tx.now)
    for ns, resource in expired:
        tx.notify(f"lock:{ns}:{resource}")
    return len(expired)


_LIST = sql(
    "SELECT resource_id, dfid, amount, acquired_at, expires_at, capacity, fence, ns FROM resource_locks"
    " WHERE ns = :ns AND (CAST(:resource AS TEXT) IS NULL OR resource_id = :resource)"
    " AND (CAST(:dfid AS TEXT) IS NULL OR dfid = :dfid) AND (expires_at IS NULL OR expires_at > :now)"
    " AND (resource_id, dfid) > (:after, :after_dfid) ORDER BY resource_id, dfid LIMIT :limit"
)


def list(
    tx: Tx,
    *,
    resource: str | None = None,
    flow_id: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
    ns: str = MAIN,
) -> Page[Lock]:
    """List current locks by resource: of one resource, of one flow, or all of them."""
    after, after_flow = paging.decode(cursor, "", "")
    rows = tx.all(
        _LIST,
        ns=ns,
        resource=resource,
        dfid=flow_id,
        now=tx.now,
        after=after,
        after_dfid=after_flow,
        limit=paging.fetch(limit),
    )
    return paging.page((_lock(*row) for row in rows), limit, lambda lock: (lock.resource_id, lock.flow_id))


def _lock(  # noqa: PLR0917 (the columns of a row)
    resource_id: str,
    flow_id: str,
    amount: float,
    acquired_at: str,
    expires_at: str | None,
    capacity: float | None,
    fence: int,
    ns: str,
) -> Lock:
    # RETURNING of a REAL column may give 5 where SELECT gives 5.0.
    most = None if capacity is None else float(capacity)
    return Lock(resource_id, flow_id, float(amount), acquired_at, expires_at, most, fence, ns)
