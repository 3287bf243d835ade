"""Processes that use a storage, and the duties they share.

ACTIVE ⇄ STALE → STOPPED: one that is not heard for five minutes is stale until it is heard again; STOPPED is the end.
"""

from dataclasses import dataclass
from enum import StrEnum

from holdproof.model.value import Value


class InstanceStatus(StrEnum):
    """Where an instance stands."""

    ACTIVE = "active"
    STALE = "stale"
    STOPPED = "stopped"


class Mode(StrEnum):
    """How an instance runs: inside a project, without one, or with nothing that outlives it."""

    PROJECT = "project"
    GLOBAL = "global"
    EPHEMERAL = "ephemeral"


@dataclass(frozen=True, slots=True)
class Instance(Value):
    """A process that uses a storage."""

    id: str
    hostname: str
    pid: int
    project_path: str | None
    project_hash: str | None
    started_at: str
    last_heartbeat: str
    status: str


@dataclass(frozen=True, slots=True)
class Duty(Value):
    """Something that one instance does for all: who began it last, and how that ended."""

    duty: str
    begun_at: str
    begun_by: str
    ended_at: str | None
    error: str | None
