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
    migrations: Mapping[str, str]
    keys: bool
    sealed: int
    files: Mapping[str, Entry]
    tables: Mapping[str, list[str]] = field(default_factory=dict)
    sequences: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Backup(Value):
    """A backup on disk; `trust` says against what its signature was checked."""

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

    def to_dict(self) -> dict[str, Any]:
        """The backup as every client prints it."""
        return asdict(self)


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
    """What a restore did, or with `dry_run` would do."""

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
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        return asdict(self)
