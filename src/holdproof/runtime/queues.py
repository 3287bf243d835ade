"""Queues: how many of their flows run at once, and how often one is started.

Rules:
- A queue comes to be by its first flow; one that nobody created here has no limits.
- Limits hold over all workers of the store, and after a worker was killed: what runs is told by leases that have not
  expired, what was started by the record of starts (claims.py).
- The limits are under the log, and compared with their entry before a flow of the queue is leased.
- A deleted queue has no limits any more; its row stays, since its entries do. Flows that wait in it stay, and run.
"""

from collections.abc import Mapping
from typing import Any, Final

from holdproof import paging, validation
from holdproof.db import Tx, lock_exclusive, sql
from holdproof.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from holdproof.evidence import logged_tables
from holdproof.evidence.tables import StoredRecord, Table
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.queues import Queue, QueueLength
from holdproof.model.times import END
from holdproof.runtime import flows, leases

NO_QUEUE: Final = ""
"""The queue of flows that were called directly, as tasks name it."""

QUEUES: Final = Table(
    "queues",
    Queue,
    kind="queue",
    key="name",
    per_namespace=True,
    logged=(
        *("name", "concurrency", "worker_concurrency", "partition_concurrency", "rate_limit", "rate_period_s"),
        *("paused", "created_at", "updated_at", "deleted_at", "ns"),
    ),
    loads={"paused": bool, "rate_period_s": float},
)

_FIND = sql(QUEUES.select("WHERE name = :name AND ns = :ns", leaf=True))
_ADD = sql(QUEUES.insert())
_CHANGE = sql(
    QUEUES.update(
        *("concurrency", "worker_concurrency", "partition_concurrency", "rate_limit", "rate_period_s"),
        *("paused", "updated_at", "deleted_at"),
        where="name = :name AND ns = :ns AND leaf_ver = :leaf_ver - 1",
    )
)


def create(
    tx: Tx,
    name: str,
    *,
    concurrency: int | None = None,
    worker_concurrency: int | None = None,
    partition_concurrency: int | None = None,
    rate_limit: int | None = None,
    rate_period_s: float | None = None,
    ns: str = MAIN,
) -> Queue:
    """Give a queue limits: how many of its flows run at once, and how many are started within a period.

    Raises AlreadyExistsError where it has some: `update` changes them.
    """
    limits = _limits(concurrency, worker_concurrency, partition_concurrency, rate_limit, rate_period_s)
    _check_rate(limits)
    lock(tx, validation.name("queue", name), ns=ns)
    row = tx.one(_FIND, name=name, ns=ns)
    if row is None:
        new = {
            "name": name,
            **limits,
            "paused": 0,
            "created_at": tx.now,
            "updated_at": tx.now,
            "deleted_at": None,
            "ns": validation.namespace(ns),
        }
        QUEUES.add(tx, _ADD, new)
        return QUEUES.from_columns(new)
    record = QUEUES.record(row)
    if record.columns["deleted_at"] is None:
        raise AlreadyExistsError(f"the queue {name} has limits already: `queues update` changes them", queue=name)
    return _change(tx, record, {**limits, "paused": 0, "deleted_at": None})


def get(tx: Tx, name: str, *, ns: str = MAIN) -> Queue:
    """Return the limits of a queue; NotFoundError for one that nobody gave limits to."""
    return _record(tx, name, ns).value


_LIST = sql(
    QUEUES.select("WHERE name > :after AND ns = :ns AND deleted_at IS NULL ORDER BY name LIMIT :limit"),
)


def list(tx: Tx, *, cursor: str | None = None, limit: int = 100, ns: str = MAIN) -> Page[Queue]:
    """List the queues that have limits, by name."""
    (after,) = paging.decode(cursor, "")
    rows = tx.all(_LIST, ns=ns, after=after, limit=paging.fetch(limit))
    return paging.page(map(QUEUES.from_row, rows), limit, lambda queue: (queue.name,))


def update(
    tx: Tx,
    name: str,
    *,
    concurrency: int | None = None,
    worker_concurrency: int | None = None,
    partition_concurrency: int | None = None,
    rate_limit: int | None = None,
    rate_period_s: float | None = None,
    ns: str = MAIN,
) -> Queue:
    """Change limits of a queue: those that are passed, 0 for none any more. What runs already is left alone."""
    passed = {
        "concurrency": concurrency,
        "worker_concurrency": worker_concurrency,
        "partition_concurrency": partition_concurrency,
        "rate_limit": rate_limit,
        "rate_period_s": rate_period_s,
    }
    limits = _limits(concurrency, worker_concurrency, partition_concurrency, rate_limit, rate_period_s)
    changes = {column: limits[column] for column, value in passed.items() if value is not None}
    if changes.get("rate_limit", 0) is None:
        changes["rate_period_s"] = None
    lock(tx, name, ns=ns)
    record = _record(tx, name, ns)
    _check_rate({**record.columns, **changes})
    return _change(tx, record, changes)


def pause(tx: Tx, name: str, *, ns: str = MAIN) -> Queue:
    """Let no further flow of a queue start or go on; those that run end. A queue without limits is created."""
    lock(tx, validation.name("queue", name), ns=ns)
    row = tx.one(_FIND, name=name, ns=ns)
    if row is None or QUEUES.record(row).columns["deleted_at"] is not None:
        create(tx, name, ns=ns)
    return _change(tx, _record(tx, name, ns), {"paused": 1})


def resume(tx: Tx, name: str, *, ns: str = MAIN) -> Queue:
    """Let workers take flows of a paused queue again."""
    lock(tx, name, ns=ns)
    return _change(tx, _record(tx, name, ns), {"paused": 0})


def delete(tx: Tx, name: str, *, ns: str = MAIN) -> Queue:
    """Remove the limits of a queue, and return what they were; its flows stay, and run without limits."""
    lock(tx, name, ns=ns)
    record = _record(tx, name, ns)
    _change(tx, record, {"deleted_at": tx.now})
    return record.value


def lock(tx: Tx, name: str, *, ns: str) -> None:
    """Let nobody else lease flows of a queue, or change its limits, before this transaction ends."""
    lock_exclusive(tx, leases.queue_key(name, ns=ns))


def _limits(
    concurrency: int | None,
    worker_concurrency: int | None,
    partition_concurrency: int | None,
    rate_limit: int | None,
    rate_period_s: float | None,
) -> dict[str, Any]:
    counts = {
        "concurrency": concurrency,
        "worker_concurrency": worker_concurrency,
        "partition_concurrency": partition_concurrency,
        "rate_limit": rate_limit,
    }
    # 0 is no limit, as in `update`: a queue of which nothing runs is a paused one.
    limits: dict[str, Any] = {
        column: None if value is None else validation.count(column, value) or None for column, value in counts.items()
    }
    period = None if rate_period_s is None else validation.seconds("rate_period_s", rate_period_s)
    return {**limits, "rate_period_s": period or None}


def _check_rate(columns: Mapping[str, Any]) -> None:
    if (columns["rate_limit"] is None) != (columns["rate_period_s"] is None):
        raise InvalidInputError(
            "a rate is rate_limit flows within rate_period_s seconds: pass both, or none", field="rate_limit"
        )


def _record(tx: Tx, name: str, ns: str) -> StoredRecord[Queue]:
    row = tx.one(_FIND, name=name, ns=ns)
    record = None if row is None else QUEUES.record(row)
    if record is None or record.columns["deleted_at"] is not None:
        raise NotFoundError(f"the queue {name} has no limits", listed_by="queues list", queue=name)
    return record


def _change(tx: Tx, record: StoredRecord[Queue], changes: Mapping[str, Any]) -> Queue:
    # Workers look again: there may be room now.
    tx.notify(flows.tasks_topic(record.value.ns))
    return QUEUES.change(tx, _CHANGE, record, {**changes, "updated_at": tx.now})


_CONFIRM = logged_tables.selecting(QUEUES.logged, "name", "t.name = :name AND t.ns = :ns")


def confirmed(tx: Tx, name: str, *, ns: str) -> Queue | None:
    """Return the limits of a queue, compared with their entry in the log; None where it has none."""
    for columns in logged_tables.confirm(tx, QUEUES.logged, _CONFIRM, name=name, ns=ns):
        return QUEUES.from_columns(columns) if columns["deleted_at"] is None else None
    return None


# --- lengths -----------------------------------------------------------------------------------------------------

_LENGTHS = sql(
    "SELECT l.queue, sum(CASE WHEN l.expires_at <= :now THEN 1 ELSE 0 END),"
    " sum(CASE WHEN l.worker <> '' AND l.expires_at > :now THEN 1 ELSE 0 END),"
    " sum(CASE WHEN l.worker = '' AND l.expires_at > :now THEN 1 ELSE 0 END)"
    " FROM flow_leases l JOIN decision_flows f ON f.dfid = l.dfid AND f.ns = l.ns"
    " WHERE l.ns = :ns AND f.status IN ('CREATED', 'RUNNING', 'WAITING_ESCALATION', 'COMPENSATING')"
    " GROUP BY l.queue ORDER BY l.queue"
)


def lengths(tx: Tx, *, ns: str = MAIN) -> tuple[QueueLength, ...]:
    """Count the open flows of each queue: those that are due, run, or wait for a moment or for something."""
    return tuple(QueueLength(queue, due, running, waiting, ns) for queue, due, running, waiting in _counted(tx, ns))


def _counted(tx: Tx, ns: str) -> Any:
    return ((queue, *map(int, counts)) for queue, *counts in tx.all(_LENGTHS, ns=ns, now=tx.now))


_NEXT_QUEUE = sql("SELECT min(queue) FROM flow_leases WHERE ns = :ns AND queue > :after")


def names(tx: Tx, *, ns: str) -> tuple[str, ...]:
    """Return the queues that have flows, by name, without walking over their flows."""
    queues: tuple[str, ...] = ()
    after = NO_QUEUE
    while True:
        (name,) = tx.one(_NEXT_QUEUE, ns=ns, after=after) or (None,)
        if name is None:
            return queues
        queues += (name,)
        after = name


_NEXT_DUE = sql("SELECT expires_at FROM flow_leases WHERE ns = :ns AND expires_at > :now ORDER BY expires_at LIMIT 1")


def next_due(tx: Tx, *, ns: str) -> str | None:
    """Return the next moment at which a flow becomes due by itself, or a lease runs out; None where there is none."""
    (moment,) = tx.one(_NEXT_DUE, ns=ns, now=tx.now) or (None,)
    return None if moment is None or moment >= END else str(moment)
