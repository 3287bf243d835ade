"""Tenants: stores of their own, which another store knows by name and whose heads it records."""

from dataclasses import dataclass
from typing import Literal

from holdproof.model.value import Value

Status = Literal["creating", "active", "deleting", "deleted"]
STATUSES: tuple[Status, ...] = ("creating", "active", "deleting", "deleted")


@dataclass(frozen=True, slots=True)
class Tenant(Value):
    """A tenant, as the parent store knows it."""

    id: str
    name: str
    status: str
    """`creating` and `deleting` are left by a command that was killed; the same command again finishes it."""
    place: str
    """Empty for a file in the tenant's home; else the name of a database on the parent's server, or a URL."""
    store: str | None
    """The name of its log, which begins the origin of each of its heads; None until it is created."""
    finding: str | None
    """Why its log is not believed: it does not continue what was recorded of it; None where nothing is wrong."""
    reason: str | None
    """Why it was deleted, or a finding was accepted."""
    created_at: str
    changed_at: str
    size: int | None = None
    """How many entries its newest recorded head covers."""
    recorded_at: str | None = None
    """When that head was recorded."""


@dataclass(frozen=True, slots=True)
class TenantHead(Value):
    """A head of a tenant's log, as the parent recorded it under its own log."""

    id: str
    tenant_id: str
    name: str
    origin: str
    size: int
    head: str
    """The head as a signed note."""
    keys: str
    """The verifier keys that it was checked with, one a line."""
    recorded_at: str


@dataclass(frozen=True, slots=True)
class TenantCheck(Value):
    """What a round of heads saw of one tenant."""

    name: str
    state: Literal["recorded", "unchanged", "finding", "unreachable"]
    size: int | None
    """How many entries its log has; None where it could not be read."""
    what: str | None = None
    """What is wrong, where something is."""


@dataclass(frozen=True, slots=True)
class TenantProof(Value):
    """The proof of an entry of a tenant, by two paths: to the tenant's head, and from there to the parent's."""

    tenant: str
    leaf_id: str
    index: int
    size: int
    """How many entries of the tenant the recorded head covers."""
    parent_size: int
    text: str
    """The proof itself, as `tenants check-proof` takes it."""


@dataclass(frozen=True, slots=True)
class CheckedTenantProof(Value):
    """What a proof of two paths proves, to those who trust the parent's key."""

    tenant: str
    entry: str
    """The tenant's entry, as it stands in its log."""
    index: int
    origin: str
    size: int
    recorded_at: str
    """When the parent recorded the tenant's head, by the parent's clock."""
    parent_origin: str
    parent_size: int


@dataclass(frozen=True, slots=True)
class TenantMoved(Value):
    """A tenant that has another database now."""

    name: str
    place: str
    store: str
    size: int
    verdict: str
    """What verification says of it where it is now."""
    source: str
    """What was left behind: a sealed database, which says where the store went."""
