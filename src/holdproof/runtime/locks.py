"""Locks: resources in the hands of flows, whole or in amounts.

Rules:
- All or nothing: either every resource asked for is held afterwards, or none is that was not before.
- Never more than the capacity is out, by the smallest capacity that any holder was promised; without one a lock is
  exclusive and excludes all others.
- Nobody takes another holder's lock; acquiring again replaces one's own amount. What has expired is free, and gone once
  somebody else acquires: no clock that is behind, or goes back, brings it to life again.
- More than there is at all is InsufficientCapacityError at once; what others hold is ContentionTimeoutError at the
  deadline. Waiting holds no transaction open.
- Every acquisition has a fencing token, greater than every earlier one of that resource, even after a release.
- An ended flow acquires nothing.
- Where only the caller knows the capacity (`reserve`), others must not hold more than the caller saw when it checked.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf
from typing import Any, Final

from holdproof.db import Refused, Tx, Wait, Work, Write, ask, lock_exclusive, sql
from holdproof.errors import (
    ContentionTimeoutError,
    FlowEndedError,
    InsufficientCapacityError,
    InvalidInputError,
    LockLostError,
)
from holdproof.model.coordination import Lock
from holdproof.model.times import later, to_micros
from holdproof.runtime import flows, logged_rows
from holdproof.runtime.logged_rows import MAIN

TTL_S: Final = 60.0
_ROUNDING: Final = 1 + 1e-9
"""Sums of amounts such as 0.1 are off by a little."""

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
    """Acquire all these amounts for a flow, waiting for others to let go for as long as `timeout_s`."""
    attempt = partial(try_acquire, flow_id=flow_id, resources=resources, capacity=capacity, ttl_s=ttl_s, ns=ns)
    return (yield from acquire_with_retry(attempt, timeout_s=timeout_s, ns=ns))


def acquire_with_retry(
    attempt: Callable[[Tx], tuple[Lock, ...] | Refused], *, timeout_s: float, every_s: float = inf, ns: str
) -> Work[tuple[Lock, ...]]:
    """Attempt to acquire again, whenever somebody lets go and every so often, until it is granted or time is over."""
    left, seen = logged_rows.seconds("timeout_s", timeout_s) * 1e6, 0
    while True:
        try:
            granted = yield from ask(Write(attempt))
        except ContentionTimeoutError as error:
            now = to_micros(error.fields["at"])
            left -= max(0, now - (seen or now))  # a clock that goes back takes nothing off, and adds nothing
            seen = now
            if left <= 0:
                raise
            look = later(error.fields["at"], min(every_s, left / 1e6))
            until = min(look, error.fields["free_at"] or look)
            yield Wait(f"lock:{ns}:{error.fields['resource']}", until)
        else:
            assert not isinstance(granted, Refused), "the face raises it"
            return granted


_LAPSE = sql(
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
    """Acquire all these amounts now, or be refused now."""
    wanted = [_wanted(resource, resources[resource], capacity) for resource in sorted(resources)]
    if not wanted:
        raise InvalidInputError("say which resources")
    until = None if ttl_s is None else later(tx.now, logged_rows.seconds("ttl_s", ttl_s, least=0.001))
    if flows.hold(tx, flow_id, ns=ns).ended:
        raise FlowEndedError("an ended flow acquires nothing", flow_id=flow_id)
    for resource, _, _ in wanted:
        lock_exclusive(tx, f"lock:{ns}:{resource}")
        tx.execute(_LAPSE, ns=ns, resource_id=resource, dfid=flow_id, now=tx.now)
    fences = [_check(tx, resource, flow_id, amount, most, ns=ns) for resource, amount, most in wanted]
    return tuple(
        _take(tx, Lock(resource, flow_id, amount, tx.now, until, most, fence + 1, ns))
        for (resource, amount, most), fence in zip(wanted, fences, strict=True)
    )


def _wanted(resource: str, amount: float, capacity: Capacity) -> tuple[str, float, float | None]:
    most = capacity.get(resource) if isinstance(capacity, Mapping) else capacity
    for value in (amount, 1.0 if most is None else most):
        if logged_rows.number("an amount or capacity", value, least=0) == 0:
            raise InvalidInputError("amounts and capacities are above zero", resource=resource)
    if most is not None and amount > most * _ROUNDING:
        raise InsufficientCapacityError(
            f"{amount:g} of {resource} is asked for, there is {most:g}", resource=resource, capacity=most
        )
    return logged_rows.name("resource", resource), float(amount), None if most is None else float(most)


_STANDING = sql(
    "SELECT coalesce((SELECT fence FROM lock_fences WHERE ns = :ns AND resource_id = :resource_id), 0), count(*),"
    " coalesce(sum(amount), 0), coalesce(sum(CASE WHEN capacity IS NULL THEN 1 ELSE 0 END), 0), min(capacity),"
    " min(expires_at), min(dfid) FROM resource_locks WHERE ns = :ns AND resource_id = :resource_id AND dfid <> :dfid"
    " AND (expires_at IS NULL OR expires_at > :now)"
)


def _check(tx: Tx, resource: str, flow_id: str, amount: float, most: float | None, *, ns: str) -> int:
    """The resource's last fencing token if the amount is there; else who is in the way, and until when at least."""
    row = tx.one(_STANDING, ns=ns, resource_id=resource, dfid=flow_id, now=tx.now)
    assert row is not None, "an aggregate has one row"
    fence, holders, out, exclusive, least, free_at, holder = row
    room = 0.0 if most is None else min(most, most if least is None else least)
    if holders and (most is None or exclusive or out + amount > room * _ROUNDING):
        raise _contention(resource, holder, free_at, tx.now)
    return int(fence)


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
_FENCE = sql(
    "INSERT INTO lock_fences (ns, resource_id, fence) VALUES (:ns, :resource_id, :fence)"
    " ON CONFLICT (ns, resource_id) DO UPDATE SET fence = excluded.fence WHERE lock_fences.fence < excluded.fence"
)


def _take(tx: Tx, lock: Lock) -> Lock:
    """Write what was checked; the statement checks again, and a row that is not written fails the whole."""
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
"""The capacity of a resource that only its user knows."""


def reserve(
    tx: Tx, flow_id: str, resources: Mapping[str, float], *, seen: Mapping[str, float], ns: str = MAIN
) -> tuple[Lock, ...]:
    """Take amounts whose capacity the caller has checked; ContentionTimeoutError if others hold more than it has seen.

    They are held until they are let go; an amount of zero lets go.
    """
    wanted = {resource: amount for resource, amount in resources.items() if amount != 0}
    taken = try_acquire(tx, flow_id, wanted, capacity=_UNKNOWN, ttl_s=None, ns=ns) if wanted else ()
    for resource in wanted:
        row = tx.one(_STANDING, ns=ns, resource_id=resource, dfid=flow_id, now=tx.now)
        assert row is not None, "an aggregate has one row"
        if row[2] > seen.get(resource, 0.0) * _ROUNDING:
            raise _contention(resource, row[6], row[5], tx.now)
    for resource in resources.keys() - wanted.keys():
        release(tx, flow_id, resource, ns=ns)
    return taken


def _contention(resource: str, holder: str, free_at: str | None, now: str) -> ContentionTimeoutError:
    return ContentionTimeoutError(
        f"{resource} is held by flow {holder}", resource=resource, holder=holder, free_at=free_at, at=now
    )


_EXTEND = sql(
    "UPDATE resource_locks SET expires_at = :until WHERE ns = :ns AND resource_id = :resource_id AND dfid = :dfid"
    " AND (expires_at IS NULL OR expires_at > :now)"
    " RETURNING resource_id, dfid, amount, acquired_at, expires_at, capacity, fence, ns"
)


def extend(tx: Tx, flow_id: str, resource: str, *, ttl_s: float, ns: str = MAIN) -> Lock:
    """Hold a lock for longer, counted from now; LockLostError if it is not held any more."""
    until = later(tx.now, logged_rows.seconds("ttl_s", ttl_s, least=0.001))
    row = tx.one(_EXTEND, ns=ns, resource_id=resource, dfid=flow_id, now=tx.now, until=until)
    if row is None:
        raise LockLostError(f"flow {flow_id} does not hold {resource}", flow_id=flow_id, resource=resource)
    return _lock(row)


_RELEASE = sql("DELETE FROM resource_locks WHERE ns = :ns AND resource_id = :resource_id AND dfid = :dfid")


def release(tx: Tx, flow_id: str, resource: str, *, ns: str = MAIN) -> bool:
    """Let one resource go; whether it was held."""
    tx.notify(f"lock:{ns}:{resource}")
    return tx.count(_RELEASE, ns=ns, resource_id=resource, dfid=flow_id) > 0


_RELEASE_ALL = sql("DELETE FROM resource_locks WHERE ns = :ns AND dfid = :dfid RETURNING resource_id")


def release_all(tx: Tx, flow_id: str, *, ns: str = MAIN) -> tuple[str, ...]:
    """Let everything go that a flow holds; the names of the resources."""
    return _told(tx, ns, (row[0] for row in tx.all(_RELEASE_ALL, ns=ns, dfid=flow_id)))


_SWEEP = sql("DELETE FROM resource_locks WHERE expires_at <= :now RETURNING ns, resource_id")


def sweep(tx: Tx) -> int:
    """Remove what has expired; how many locks that were."""
    gone = tx.all(_SWEEP, now=tx.now)
    for ns, resource in gone:
        tx.notify(f"lock:{ns}:{resource}")
    return len(gone)


def _told(tx: Tx, ns: str, resources: Iterable[str]) -> tuple[str, ...]:
    names = tuple(sorted(resources))
    tx.notify(*(f"lock:{ns}:{resource}" for resource in names))
    return names


_LIST = sql(
    "SELECT resource_id, dfid, amount, acquired_at, expires_at, capacity, fence, ns FROM resource_locks"
    " WHERE ns = :ns AND (CAST(:resource AS TEXT) IS NULL OR resource_id = :resource)"
    " AND (CAST(:dfid AS TEXT) IS NULL OR dfid = :dfid) AND (expires_at IS NULL OR expires_at > :now)"
    " ORDER BY resource_id, dfid"
)


def list(tx: Tx, *, resource: str | None = None, flow_id: str | None = None, ns: str = MAIN) -> tuple[Lock, ...]:
    """What is held now: of one resource, by one flow, or all of it."""
    return tuple(_lock(row) for row in tx.all(_LIST, ns=ns, resource=resource, dfid=flow_id, now=tx.now))


def _lock(row: tuple[Any, ...]) -> Lock:
    amount, capacity = float(row[2]), None if row[5] is None else float(row[5])
    return Lock(row[0], row[1], amount, row[3], row[4], capacity, row[6], row[7])
