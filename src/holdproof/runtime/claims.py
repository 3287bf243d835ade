"""Claims: how workers take due flows, within the limits of their queues.

Rules:
- Due is what nobody works on, or whose lease has expired: queued flows, those that slept or were woken, and those whose
  worker is gone. Higher priority first, then what has been due for longest.
- One transaction counts and leases, with the queue locked: two workers never take the last place both.
- What runs is counted by leases that have not expired, so that the places of a killed worker come back with its flows.
  The rate counts first starts: a flow that goes on after it waited is not started again.
- A worker leases only what its functions run: name, version, and the agent that called (functions.py).
- What is about to run is compared with the log: an edited call, journal or task stops its flow; of a queue whose limits
  were edited nothing runs until they are as they were, or were changed by `queues.update`.
- A queue holds any number of sleeping flows: each question goes by an index, and to what is due or runs only.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from holdproof.db import Tx, sql
from holdproof.errors import TamperedError
from holdproof.model.flows import Rerun
from holdproof.model.queues import Queue
from holdproof.model.times import later
from holdproof.runtime import flows, functions, leases, queues
from holdproof.runtime.functions import FunctionSpec, LeasedCall

_UNLIMITED: Final = 2**31 - 1
_SEPARATOR: Final = "\x1f"
_RUNNABLE: Final = frozenset({"CREATED", "RUNNING", "COMPENSATING"})


@dataclass(slots=True)
class ClaimResult:
    """What a worker got: leased flows, flows that were stopped, and queues that were edited."""

    leased: list[LeasedCall] = field(default_factory=list)
    stopped: list[Rerun] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What keeps a queue from being worked on, in words."""
    retry_at: str | None = None
    """When a rate limit allows another start, where one was reached."""


class _Candidate(NamedTuple):
    flow_id: str
    partition_key: str | None
    name: str
    fresh: int
    """1 where it was never started."""


@dataclass(slots=True)
class _Room:
    """How many more flows of a queue may run, and be started."""

    slots: int
    starts: int = _UNLIMITED
    retry_at: str | None = None
    partition_limit: int = _UNLIMITED
    partitions: Counter[str] = field(default_factory=Counter)

    def admits(self, candidate: _Candidate) -> bool:
        """Whether there is room for one more."""
        if self.slots < 1 or (candidate.fresh and self.starts < 1):
            return False
        key = candidate.partition_key
        return key is None or self.partitions[key] < self.partition_limit

    def take(self, candidate: _Candidate) -> None:
        """Count one that was leased."""
        self.slots -= 1
        self.starts -= candidate.fresh
        if candidate.partition_key is not None:
            self.partitions[candidate.partition_key] += 1


def claim(
    tx: Tx,
    worker: str,
    specs: Mapping[str, FunctionSpec],
    names: Sequence[str],
    *,
    limit: int,
    ns: str,
) -> ClaimResult:
    """Lease up to `limit` due flows of the named queues to a worker, in the order of the queues; '' is no queue."""
    result = ClaimResult()
    for name in names:
        free = limit - len(result.leased)
        if free < 1:
            break
        queues.lock(tx, name, ns=ns)
        try:
            limits = queues.confirmed(tx, name, ns=ns) if name else None
        except TamperedError as error:
            # Nothing tells what the limits are: no flow of the queue runs, and none of them is to blame.
            result.problems.append(f"nothing of the queue {name} runs: {error.message}")
            continue
        _claim_of(tx, name, limits, result, worker=worker, specs=specs, free=free, ns=ns)
    return result


def _claim_of(
    tx: Tx,
    name: str,
    limits: Queue | None,
    result: ClaimResult,
    *,
    worker: str,
    specs: Mapping[str, FunctionSpec],
    free: int,
    ns: str,
) -> None:
    room = _room(tx, name, limits, worker=worker, free=free, ns=ns)
    if room.starts < 1:
        result.retry_at = min(filter(None, (result.retry_at, room.retry_at)), default=None)
    for candidate in _candidates(tx, name, room, specs, limit=room.slots, ns=ns):
        if not room.admits(candidate):
            continue
        leased = _lease(tx, candidate, specs[candidate.name], worker=worker, ns=ns)
        if isinstance(leased, Rerun):
            result.stopped.append(leased)
        elif leased is not None:
            room.take(candidate)
            if candidate.fresh and limits is not None and limits.rate_limit is not None:
                tx.execute(_START, dfid=candidate.flow_id, queue=name, now=tx.now, ns=ns, expect=1)
            result.leased.append(leased)


def is_due(tx: Tx, specs: Mapping[str, FunctionSpec], names: Iterable[str], *, ns: str) -> bool:
    """Whether a claim may find something; a look that writes and locks nothing."""
    anything = _Room(slots=1)
    return any(True for name in names for _ in _candidates(tx, name, anything, specs, limit=1, ns=ns))


# --- room --------------------------------------------------------------------------------------------------------

# SQLite would rather walk over everything that is due later: all flows that sleep. PostgreSQL counts rows first.
_LIVE_OF: Final = (
    "SELECT worker, partition_key, count(*) FROM {leases}"
    " WHERE ns = :ns AND queue = :queue AND worker <> '' AND expires_at > :now GROUP BY worker, partition_key"
)
_LIVE = sql(
    _LIVE_OF.format(leases="flow_leases INDEXED BY idx_flow_leases_worker"),
    postgres=_LIVE_OF.format(leases="flow_leases"),
)
_FORGET = sql("DELETE FROM queue_starts WHERE ns = :ns AND queue = :queue AND started_at <= :since")
_STARTS = sql("SELECT count(*), min(started_at) FROM queue_starts WHERE ns = :ns AND queue = :queue")
_START = sql("INSERT INTO queue_starts (dfid, queue, started_at, ns) VALUES (:dfid, :queue, :now, :ns)")


def _room(tx: Tx, name: str, limits: Queue | None, *, worker: str, free: int, ns: str) -> _Room:
    if limits is None:
        return _Room(free)
    if limits.paused:
        return _Room(0)
    room = _Room(free, partition_limit=limits.partition_concurrency or _UNLIMITED)
    running: Counter[str] = Counter()
    for holder, partition, count in tx.all(_LIVE, ns=ns, queue=name, now=tx.now):
        running[holder] += count
        if partition is not None:
            room.partitions[partition] += count
    room.slots = min(
        free,
        (limits.concurrency or _UNLIMITED) - running.total(),
        (limits.worker_concurrency or _UNLIMITED) - running[worker],
    )
    if limits.rate_limit is not None and limits.rate_period_s is not None:
        tx.execute(_FORGET, ns=ns, queue=name, since=later(tx.now, -limits.rate_period_s))
        count, oldest = tx.one(_STARTS, ns=ns, queue=name) or (0, None)
        room.starts = limits.rate_limit - count
        room.retry_at = None if oldest is None else later(oldest, limits.rate_period_s)
    return room


# --- candidates --------------------------------------------------------------------------------------------------

_HIGHEST = sql("SELECT max(priority) FROM flow_leases WHERE ns = :ns AND queue = :queue AND priority < :below")
# Of a million flows that wake at the same moment only so many are read: SQLite goes by its index, whose entries of one
# moment are in the order of their rows, and PostgreSQL sorts within that moment.
_DUE: Final = (
    "SELECT l.dfid, l.partition_key, c.name, CASE WHEN f.status = 'CREATED' THEN 1 ELSE 0 END FROM flow_leases l"
    " JOIN flow_calls c ON c.dfid = l.dfid AND c.ns = l.ns JOIN decision_flows f ON f.dfid = l.dfid AND f.ns = l.ns"
    " WHERE l.ns = :ns AND l.queue = :queue AND l.priority = :priority AND l.expires_at <= :now"
    " AND f.status IN ('RUNNING', 'COMPENSATING', :created)"
    " AND (l.partition_key IS NULL OR l.partition_key NOT IN ({full})) AND {runnable}"
    " ORDER BY l.expires_at{ties} LIMIT :limit"
)
# A flow is told to be runnable by one text: name, version and agent, which holds for both databases.
_CANDIDATES = sql(
    _DUE.format(
        ties="",
        full="SELECT value FROM json_each(:full)",
        runnable="c.name || char(31) || c.version || char(31) || coalesce(c.agent_id, '')"
        " IN (SELECT value FROM json_each(:runnable))",
    ),
    postgres=_DUE.format(
        ties=", l.dfid",
        full="SELECT pg_catalog.jsonb_array_elements_text(CAST(:full AS JSONB))",
        runnable="c.name || chr(31) || c.version || chr(31) || coalesce(c.agent_id, '')"
        " IN (SELECT pg_catalog.jsonb_array_elements_text(CAST(:runnable AS JSONB)))",
    ),
)


def _candidates(
    tx: Tx, name: str, room: _Room, specs: Mapping[str, FunctionSpec], *, limit: int, ns: str
) -> Iterator[_Candidate]:
    """Yield due flows that the functions run, of partitions that have room: by priority, then by when they were due."""
    if limit < 1 or not specs:
        return
    full = [key for key, count in room.partitions.items() if count >= room.partition_limit]
    texts = sorted(_SEPARATOR.join((each, version, agent or "")) for each, version, agent in _runs(specs))
    # Each priority is one range of the index: sleeping flows lie behind what is due, and are never read.
    priority = _UNLIMITED + 1
    while limit > 0:
        (highest,) = tx.one(_HIGHEST, ns=ns, queue=name, below=priority) or (None,)
        if highest is None:
            return
        priority = highest
        rows = tx.all(
            _CANDIDATES,
            ns=ns,
            queue=name,
            priority=priority,
            now=tx.now,
            # Where the rate is reached, what was started before still goes on.
            created="CREATED" if room.starts > 0 else "",
            full=json.dumps(full),
            runnable=json.dumps(texts),
            limit=limit,
        )
        limit -= len(rows)
        yield from (_Candidate(*row) for row in rows)


def _runs(specs: Mapping[str, FunctionSpec]) -> set[functions.Runnable]:
    return {each for spec in specs.values() for each in spec.runs}


def _lease(tx: Tx, candidate: _Candidate, spec: FunctionSpec, *, worker: str, ns: str) -> LeasedCall | Rerun | None:
    """Lease one flow, once it is known to be what the log says; None where another worker was first."""
    flow_id = candidate.flow_id
    # Once locked, the flow may turn out to have ended, or to be another worker's.
    status = flows.lock(tx, flow_id, ns=ns).status
    lease = leases.try_lease(tx, flow_id, worker, spec.lease_s, ns) if status in _RUNNABLE else None
    if lease is None:
        return None
    leased = functions.confirm(tx, spec, flow_id, lease.token, worker=worker, suspends=True, ns=ns)
    if isinstance(leased, LeasedCall) and status == "CREATED":
        flows.transition(tx, flow_id, "RUNNING", ns=ns)
    return leased
