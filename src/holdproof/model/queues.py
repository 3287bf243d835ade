"""Queues and the workers that run their flows."""

from dataclasses import dataclass
from typing import Any

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class Queue(Value):
    """The limits of a queue; None for no limit."""

    name: str
    concurrency: int | None
    """How many of its flows run at once, over all workers."""
    worker_concurrency: int | None
    """How many of its flows one worker runs at once."""
    partition_concurrency: int | None
    """How many of its flows with one partition key run at once."""
    rate_limit: int | None
    """How many of its flows are started within `rate_period_s` seconds."""
    rate_period_s: float | None
    paused: bool
    created_at: str
    updated_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class QueueLength(Value):
    """How many flows of a queue wait for a worker, run, and sleep or wait for something."""

    queue: str
    """The queue's name; empty for flows of no queue."""
    due: int
    running: int
    waiting: int
    ns: str


@dataclass(frozen=True, slots=True)
class WorkerProcess(Value):
    """A process that runs flows, as it says of itself."""

    worker_id: str
    name: str
    host: str
    pid: int
    functions: Any
    """The functions that it runs, each with the versions that it continues."""
    queues: Any
    """The queues that it works on; None for every one."""
    concurrency: int
    running: int
    state: str
    """RUNNING, STOPPING, or LOST: no heartbeat came for a while."""
    started_at: str
    heartbeat_at: str
    ns: str
