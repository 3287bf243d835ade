"""What a store says about itself."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Status:
    """Where a store lives, what it runs on, and whether anything is wrong with it."""

    version: str
    store_id: str
    created_at: str
    first_run: bool
    paths: dict[str, str]
    database: dict[str, Any]
    migrations: list[str]
    log: str = ""
    degraded: list[str] = field(default_factory=list)
    reminders: list[str] = field(default_factory=list)
    """What its owner should still do, though nothing is wrong: store the recovery of the root key elsewhere."""
    escalations: dict[str, int] = field(default_factory=dict)
    """How many wait for a person, and how many expired unanswered: ever, and within the last day."""
    workers: dict[str, int] = field(default_factory=dict)
    """How many workers there are, by state."""
    queues: dict[str, int] = field(default_factory=dict)
    """How many flows wait for a worker, by queue; the empty name is for those of no queue."""
    limits: dict[str, list[str]] = field(default_factory=dict)
    """The limits of namespaces that nothing is left of, by namespace; `limits list` has all of them."""
    storage: dict[str, Any] = field(default_factory=dict)
    """What services store, where that was asked: see StorageStatus."""

    def to_dict(self) -> dict[str, Any]:
        """The status as every client prints it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of a database check: sound if nothing was found."""

    findings: list[str]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        return {"ok": self.ok, "findings": self.findings}


@dataclass(frozen=True, slots=True)
class Roles:
    """The statements that set up logins of a server, and whether they were run."""

    statements: list[str]
    applied: bool

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Partitioned:
    """The partitions of the audit events on a server, whether a call switched them on, and those that it made."""

    partitions: list[str]
    switched_on: bool
    created: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Migrated:
    """Which migrations a call applied, and which are still to come."""

    applied: list[str]
    pending: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Resealed:
    """How many pages of each database file got their checksum anew."""

    pages: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        return asdict(self)
