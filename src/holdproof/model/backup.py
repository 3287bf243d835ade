"""Backups, what a restore did, and the record that it leaves in the log."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a backup."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup holds: its files, and where the log stood."""

    store_id: str
    created_at: str
    backend: str
    holdproof: str
    origin: str
    size: int
    root: str
    head: str
    migrations: Mapping[str, Mapping[str, str]]
    """By space: name and digest of each."""
    keys: bool
    sealed: int
    files: Mapping[str, Entry]
    tables: Mapping[str, Mapping[str, list[list[str]]]] = field(default_factory=dict)
    """By space and table: name and type of each column; only of a server."""
    sequences: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    outside: list[str] = field(default_factory=list)
    """What belongs to the store and is not in the backup: a bucket, another server, another folder."""


@dataclass(frozen=True, slots=True)
class Backup(Value):
    """A backup on disk.

    `trust` says against what its signature was checked, `outside` what belongs to the store and is not in it.
    """

    path: str
    store_id: str
    created_at: str
    backend: str
    size: int
    root: str
    files: int
    bytes: int
    keys: bool
    sealed: int
    signer: str
    trust: str
    outside: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The backup as every client prints it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Rotation(Value):
    """What a rotation of backups did."""

    backup: Backup | None
    """The new backup, as it was read back; None where the newest is young enough."""
    removed: list[str]
    backups: int
    """How many backups of this store are in the folder now."""
    next_at: str | None
    """When the next one is due; None where nobody said how often."""


@dataclass(frozen=True, slots=True)
class RestoreRecord:
    """How the log went on after a restore."""

    n: int
    origin: str
    previous: str
    size: int
    trusted: str
    abandoned: str
    source: str
    restored_at: str


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did, or with `dry_run` would do; `outside` is what the backup does not hold of the store."""

    source: str
    store_id: str
    size: int
    as_of: str | None
    origin: str
    aside: str | None
    trust: str
    erasures: int
    keyless: int
    dry_run: bool
    outside: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class DrillStep(Value):
    """One step of a disaster drill: what was done, how long it took, and what came of it."""

    name: str
    seconds: float
    outcome: str


@dataclass(frozen=True, slots=True)
class Drill(Value):
    """What a disaster drill measured."""

    steps: list[DrillStep]
    verdict: str
    """The verdict of a full verification of the restored store."""
    exit_code: int
    size: int
    """Entries of the log in the backup."""
    written_since: int
    """Entries that the store in use wrote since the backup: a real loss would have cost them."""
    recovery_s: float
    """Seconds from the loss to a verified store."""
    outside: list[str]
    """What the backup does not hold of the store."""
    home: str | None
    """The home of the restored store, where it was kept."""


@dataclass(frozen=True, slots=True)
class StartedOver:
    """The store that took the place of another: its log's new origin, and the newest head that was given up."""

    store_id: str
    origin: str
    given_up: str
    former_heads: str | None
    """The file to which the heads of another store were moved."""
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        return asdict(self)
