"""Workers: what a process that runs queued and recovered flows does again and again.

Rules:
- A look fires schedules, applies the defaults of escalations whose deadline has passed, and leases due flows, as many
  as the worker has room for; where one of the first two fails, the others are done. Between looks a worker waits for
  the topic of tasks, or for the next due moment.
- A worker says of itself that it is alive (`workers`), for people and metrics only: flows go by their leases.
- A worker that stops takes nothing new. What is unfinished at its deadline is given back, due at once: a step that was
  under way is in doubt then.
"""

import json
import logging
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from holdproof import validation
from holdproof.db import Read, Tx, Work, Write, ask, sql
from holdproof.model.namespaces import MAIN
from holdproof.model.queues import WorkerProcess
from holdproof.model.schedules import Firing
from holdproof.model.times import later
from holdproof.runtime import calls, claims, escalation_messages, escalations, functions, leases, queues, schedules
from holdproof.runtime.claims import ClaimResult
from holdproof.runtime.flow_run import FlowRun
from holdproof.runtime.functions import FunctionSpec, LeasedCall, RegisteredFunction
from holdproof.runtime.overview import LOST_S
from holdproof.runtime.suspension import FlowSuspended

_log = logging.getLogger("holdproof.worker")

_FORGOTTEN_S: Final = 86_400.0
_MOST_SWEPT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """A worker: its name, what it works on, and how much at once."""

    worker_id: str
    """Its own, also where several go by one name: leases carry it."""
    name: str
    queues: tuple[str, ...] | None
    """The queues that it works on; None for every one."""
    concurrency: int
    ns: str = MAIN


@dataclass(frozen=True, slots=True)
class Look:
    """What a look brought, and when the next one is due at the latest."""

    claim: ClaimResult
    until: str | None
    more: bool
    """Whether there may be more to lease at once."""


def look(spec: WorkerSpec, registry: Mapping[str, RegisteredFunction], *, free: int, turn: int = 0) -> Work[Look]:
    """Fire what is due and lease due flows, up to `free` of them; `turn` says which queue comes first."""
    firing = yield from _fire_schedules(spec.ns)
    yield from _sweep()
    claim = ClaimResult()
    if free > 0:
        # A copy: a function that runs may register others.
        claim = yield from _claim(spec, dict(registry), free, turn)
    due, now = yield from ask(Read(lambda tx: (queues.next_due(tx, ns=spec.ns), tx.now)))
    # A moment that has passed although everything due was fired belongs to a schedule that fails: it is not waited for.
    moments = [each for each in (firing.next_at, due, claim.retry_at) if each is not None and each > now]
    return Look(claim, min(moments, default=None), bool(claim.leased or claim.stopped or firing.flows))


def _fire_schedules(ns: str) -> Work[Firing]:
    """Fire the schedules that are due; if that fails, flows are leased all the same."""
    try:
        firing = yield from schedules.fire_due(ns=ns)
    except Exception:
        _log.exception("schedules were not fired; the next look tries again")
        return Firing((), (), (), None)
    for failure in firing.failures:
        _log.error("schedule %s was not fired: %s", failure.schedule, failure.error)
    return firing


_OVERDUE = sql("SELECT 1 FROM escalation_requests WHERE status = 'PENDING' AND deadline <= :now LIMIT 1")


def _sweep() -> Work[None]:
    """Apply the defaults of escalations whose deadline has passed, and remind of those whose deadline is near.

    If one of both fails, the other is done, and flows are leased, all the same.
    """
    for part in (_apply_defaults, _remind):
        try:
            yield from part()
        except Exception:
            _log.exception("deadlines of escalations were not kept; the next look tries again")


def _apply_defaults() -> Work[None]:
    # A look first: most of the time there is nothing, and a transaction that writes costs more.
    while (yield from ask(Read(lambda tx: tx.one(_OVERDUE, now=tx.now) is not None))):
        if (yield from ask(Write(lambda tx: escalations.sweep(tx, limit=_MOST_SWEPT)))) < _MOST_SWEPT:
            break


def _remind() -> Work[None]:
    if (yield from ask(Read(escalation_messages.is_any_near))):
        yield from ask(Write(escalation_messages.remind))


def _claim(spec: WorkerSpec, registry: Mapping[str, FunctionSpec], free: int, turn: int) -> Work[ClaimResult]:
    due = yield from ask(Read(partial(_due_queues, spec=spec, registry=registry, turn=turn)))
    if not due:
        return ClaimResult()
    lease = partial(claims.claim, worker=spec.worker_id, specs=registry, names=due, limit=free, ns=spec.ns)
    return (yield from ask(Write(lease)))


def _due_queues(tx: Tx, spec: WorkerSpec, registry: Mapping[str, FunctionSpec], turn: int) -> Sequence[str]:
    """Return the queues that have something due, in turns, so that a full queue keeps no other waiting."""
    names = (queues.NO_QUEUE, *(queues.names(tx, ns=spec.ns) if spec.queues is None else spec.queues))
    first = turn % len(names)
    rotated = (*names[first:], *names[:first])
    return [name for name in rotated if claims.is_due(tx, registry, [name], ns=spec.ns)]


def run(function: RegisteredFunction, leased: LeasedCall) -> Work[str | None]:
    """Run a leased flow until it ends or is suspended, and return the error of its function, if it raised one."""
    try:
        yield from functions.conduct(function, leased.run, *calls.arguments(leased.call))
    except FlowSuspended:
        return None
    except Exception as error:
        return validation.error_text(error)
    return None


def give_back(runs: Iterable[FlowRun]) -> Work[None]:
    """Give flows back that are not finished, due at once; what was lost or has ended is left alone."""
    unfinished = [run.lease for run in runs]

    def release(tx: Tx) -> None:
        for lease in unfinished:
            leases.release(tx, lease.flow_id, lease.token, ns=lease.ns)

    if unfinished:
        yield from ask(Write(release))


# --- liveness ----------------------------------------------------------------------------------------------------

_ADD = sql(
    "INSERT INTO workers (worker_id, name, host, pid, functions, queues, concurrency, running, state, started_at,"
    " heartbeat_at, ns) VALUES (:worker_id, :name, :host, :pid, :functions, :queues, :concurrency, 0, 'RUNNING', :now,"
    " :now, :ns)"
)
_BEAT = sql(
    "UPDATE workers SET running = :running, state = :state, functions = :functions, heartbeat_at = :now"
    " WHERE worker_id = :worker_id"
)
_REMOVE = sql("DELETE FROM workers WHERE worker_id = :worker_id")
_FORGET = sql("DELETE FROM workers WHERE heartbeat_at <= :since")
_LIST = sql(
    "SELECT worker_id, name, host, pid, functions, queues, concurrency, running, state, started_at, heartbeat_at, ns"
    " FROM workers WHERE ns = :ns ORDER BY started_at, worker_id LIMIT :limit"
)


def _described(registry: Mapping[str, FunctionSpec]) -> str:
    return json.dumps({name: [*spec.versions] for name, spec in sorted(registry.items())})


def enlist(spec: WorkerSpec, registry: Mapping[str, FunctionSpec]) -> Work[None]:
    """Say that a worker is there; workers that have not been heard of for a day are forgotten."""
    row = {
        "worker_id": spec.worker_id,
        "name": spec.name,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "functions": _described(registry),
        "queues": None if spec.queues is None else json.dumps(spec.queues),
        "concurrency": spec.concurrency,
        "ns": spec.ns,
    }

    def add(tx: Tx) -> None:
        tx.execute(_FORGET, since=later(tx.now, -_FORGOTTEN_S))
        tx.execute(_ADD, **row, now=tx.now, expect=1)

    yield from ask(Write(add))


def beat(spec: WorkerSpec, registry: Mapping[str, FunctionSpec], *, running: int, state: str) -> Work[None]:
    """Say that a worker is alive, and how much it runs."""
    described = _described(registry)
    columns: dict[str, Any] = {"worker_id": spec.worker_id, "running": running, "state": state}
    yield from ask(Write(lambda tx: tx.execute(_BEAT, **columns, functions=described, now=tx.now)))


def delist(spec: WorkerSpec) -> Work[None]:
    """Say that a worker is gone."""
    yield from ask(Write(lambda tx: tx.execute(_REMOVE, worker_id=spec.worker_id)))


def list(tx: Tx, *, limit: int = 100, ns: str = MAIN) -> tuple[WorkerProcess, ...]:
    """List the workers of a namespace, the oldest first; one that was not heard of for a while is LOST."""
    since = later(tx.now, -LOST_S)
    return tuple(_worker(row, since) for row in tx.all(_LIST, ns=ns, limit=validation.limited(limit)))


def _worker(row: Sequence[Any], since: str) -> WorkerProcess:
    worker_id, name, host, pid, names, queue_names, concurrency, running, state, started_at, heartbeat_at, ns = row
    return WorkerProcess(
        worker_id,
        name,
        host,
        pid,
        json.loads(names),
        None if queue_names is None else json.loads(queue_names),
        concurrency,
        running,
        "LOST" if heartbeat_at <= since else state,
        started_at,
        heartbeat_at,
        ns,
    )
