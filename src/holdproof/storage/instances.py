"""Instances: the processes that use a storage, with their heartbeats.

Rules:
- A heartbeat makes a stale instance active again; a stopped one stays stopped.
- An active instance without a heartbeat for too long is marked stale, once, by the first that checks. A heartbeat that
  comes first wins.
"""

from typing import Final

from holdproof import paging, validation
from holdproof.db import Tx, sql
from holdproof.errors import InstanceStoppedError, InvalidInputError, NotFoundError
from holdproof.executors import Executor, Reads, Resource
from holdproof.model.instances import Instance, InstanceStatus
from holdproof.model.page import Page
from holdproof.model.times import END, later
from holdproof.storage.projects import NOWHERE, Project

STALE_S: Final = 300.0

_BEAT = sql(
    "INSERT INTO instances (id, hostname, pid, project_path, project_hash, started_at, last_heartbeat, status)"
    " VALUES (:id, :hostname, :pid, :project_path, :project_hash, :started_at, :last_heartbeat, 'active')"
    " ON CONFLICT (id) DO UPDATE SET last_heartbeat = excluded.last_heartbeat, status = 'active'"
    " WHERE instances.status <> 'stopped'"
    " RETURNING id, hostname, pid, project_path, project_hash, started_at, last_heartbeat, status"
)


def start(tx: Tx, *, hostname: str, pid: int, project: Project = NOWHERE) -> Instance:
    """Enter a process that begins to use the storage."""
    validation.name("hostname", hostname)
    active = InstanceStatus.ACTIVE.value
    return beat(tx, Instance(tx.new_id(), hostname, pid, project.path, project.hash, tx.now, tx.now, active))


def beat(tx: Tx, instance: Instance) -> Instance:
    """Record a heartbeat, or the instance anew if its row is missing; raises InstanceStoppedError after `stop`."""
    row = instance.to_dict() | {"last_heartbeat": tx.now}
    # The statement itself decides about the status: a heartbeat never revives a stopped instance.
    del row["status"]
    updated = tx.one(_BEAT, **row)
    if updated is None:
        raise InstanceStoppedError(f"instance {instance.id} was stopped", instance_id=instance.id)
    return Instance(*updated)


# One statement with RETURNING: of several instances that look at once, each stale one is returned to one of them.
_MARK = sql(
    "UPDATE instances SET status = 'stale' WHERE status = 'active' AND last_heartbeat < :before"
    " RETURNING id, hostname, pid, project_path, project_hash, started_at, last_heartbeat, status"
)


def mark_stale(tx: Tx, *, stale_s: float = STALE_S) -> tuple[Instance, ...]:
    """Mark active instances without a heartbeat for `stale_s`; return those that this call marked."""
    if not stale_s > 0:
        raise InvalidInputError("stale_s must be more than 0", field="stale_s")
    return tuple(sorted((Instance(*row) for row in tx.all(_MARK, before=later(tx.now, -stale_s))), key=_by_id))


def _by_id(instance: Instance) -> str:
    return instance.id


_STOP = sql("UPDATE instances SET status = 'stopped', last_heartbeat = :now WHERE id = :id AND status <> 'stopped'")


def stop(tx: Tx, instance_id: str) -> bool:
    """Record that an instance has stopped; return whether this call did."""
    return tx.count(_STOP, id=instance_id, now=tx.now) > 0


_GET = sql(
    "SELECT id, hostname, pid, project_path, project_hash, started_at, last_heartbeat, status FROM instances"
    " WHERE id = :id"
)


def get(tx: Tx, instance_id: str) -> Instance:
    """Return one instance."""
    row = tx.one(_GET, id=instance_id)
    if row is None:
        raise NotFoundError(f"there is no instance {instance_id}", listed_by="instances list", instance_id=instance_id)
    return Instance(*row)


_RECENT = sql(
    "SELECT id, hostname, pid, project_path, project_hash, started_at, last_heartbeat, status FROM instances"
    " WHERE (CAST(:status AS TEXT) IS NULL OR status = :status)"
    " AND (CAST(:project_hash AS TEXT) IS NULL OR project_hash = :project_hash)"
    " AND (started_at, id) < (:at, :before) ORDER BY started_at DESC, id DESC LIMIT :limit"
)


def recent(
    tx: Tx,
    *,
    status: str | None = None,
    project_hash: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[Instance]:
    """List instances, the last started first."""
    at, before = paging.decode(cursor, END, "")
    status_value = None if status is None else validation.member("status", InstanceStatus, status).value
    filters = {"status": status_value, "project_hash": project_hash}
    rows = tx.all(_RECENT, **filters, at=at, before=before, limit=paging.fetch(limit))
    return paging.page((Instance(*row) for row in rows), limit, lambda each: (each.started_at, each.id))


class Instances(Resource[Executor]):
    """The processes that use a storage, with their heartbeats."""

    group = "Inspect"

    get = Reads(get)
    list = Reads(
        recent, columns=("id", "status", "hostname", "pid", "project_path", "last_heartbeat"), example="--status active"
    )
