"""Proposals on their way into use, and the only ways they may go.

DRAFT → VALIDATED | REJECTED; VALIDATED → GERMINATED; GERMINATED → PROMOTED | PRUNED; PROMOTED → ROLLED_BACK | PRUNED.
What has no arrow is an end.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from holdproof.model.value import Value


class GrowthStatus(StrEnum):
    """Where a proposal stands."""

    DRAFT = "draft"
    VALIDATED = "validated"
    REJECTED = "rejected"
    GERMINATED = "germinated"
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"
    PRUNED = "pruned"


EDGES: Final[Mapping[GrowthStatus, frozenset[GrowthStatus]]] = {
    GrowthStatus.DRAFT: frozenset({GrowthStatus.VALIDATED, GrowthStatus.REJECTED}),
    GrowthStatus.VALIDATED: frozenset({GrowthStatus.GERMINATED}),
    GrowthStatus.GERMINATED: frozenset({GrowthStatus.PROMOTED, GrowthStatus.PRUNED}),
    GrowthStatus.PROMOTED: frozenset({GrowthStatus.ROLLED_BACK, GrowthStatus.PRUNED}),
    GrowthStatus.REJECTED: frozenset(),
    GrowthStatus.ROLLED_BACK: frozenset(),
    GrowthStatus.PRUNED: frozenset(),
}
IN_USE: Final = frozenset({GrowthStatus.GERMINATED, GrowthStatus.PROMOTED})
"""Where uses are counted."""


@dataclass(frozen=True, slots=True)
class Proposal(Value):
    """A proposed change: what is proposed is `data`, and `content_hash` is SHA-256 of its canonical JSON."""

    id: str
    data: Any
    content_hash: str
    context: str
    entity: str
    proposed_by: str
    proposed_at: str
    status: str
    created_at: str
    updated_at: str

    @property
    def handle(self) -> str:
        """What it will be known by once it is in use."""
        return f"{self.context}.{self.entity}"


@dataclass(frozen=True, slots=True)
class Seedling(Value):
    """A proposal in the nursery, and how it did there."""

    id: str
    proposal_id: str
    data: Any
    handle: str
    usage_count: int
    success_count: int
    failure_patterns: tuple[str, ...]
    germinated_by: str
    germinated_at: str
    promoted_at: str | None
    pruned_at: str | None
    rollback_token: str | None
    created_at: str
    updated_at: str

    @property
    def success_rate(self) -> float:
        """How often it succeeded, from 0 to 1; 0 for one that was never used."""
        return self.success_count / self.usage_count if self.usage_count else 0.0


@dataclass(frozen=True, slots=True)
class RollbackToken(Value):
    """What was there before a promotion, to be put back until it expires; None where there was nothing."""

    id: str
    handle: str
    promoted_at: str
    expires_at: str
    spec_path: str | None
    impl_path: str | None
    spec_content: str | None
    impl_content: str | None
    created_at: str
