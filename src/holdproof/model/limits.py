"""Limits of namespaces: what a tenant may use, and what it uses."""

from dataclasses import dataclass
from typing import Final

from holdproof.model.value import Value

LIMITS: Final = ("bytes", "entries_per_minute", "objects", "open_escalations", "open_flows", "open_streams")
"""What can be limited, by name."""


@dataclass(frozen=True, slots=True)
class TenantLimit(Value):
    """What root allowed a namespace at one time; an empty map ends its limits."""

    id: str
    limits: dict[str, int]
    reason: str
    set_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class TenantUsage(Value):
    """What a namespace may use, and what it uses of that; without limits both maps are empty."""

    ns: str
    limits: dict[str, int]
    usage: dict[str, int]
    reached: list[str]
    """The limits that nothing is left of."""
    set_at: str | None
    reason: str | None
