"""What guards hand out: locks, retries, claims, dirty flows, escalations."""

from dataclasses import dataclass
from typing import Any, Final

from holdproof.model.value import Value

POLICIES: Final = frozenset({"EXPONENTIAL_BACKOFF", "LINEAR", "NONE"})
STRATEGIES: Final = frozenset({"REVERT", "CLOSE_ALL", "ALERT_HUMAN", "NOOP"})
IMPACTS: Final = frozenset({"LOW_IMPACT", "HIGH_IMPACT"})
DECISIONS: Final = {
    "APPROVED": frozenset({"OVERRIDE", "MODIFY"}),
    "REJECTED": frozenset({"ABORT"}),
    "CANCELLED": frozenset({"ABORT"}),
}
"""Which decisions go with which resolution of an escalation."""


@dataclass(frozen=True, slots=True)
class Lock(Value):
    """A resource, or an amount of it, in the hands of a flow; hand the fence to whatever the resource is."""

    resource_id: str
    flow_id: str
    amount: float
    acquired_at: str
    expires_at: str | None
    capacity: float | None
    fence: int
    ns: str

    @property
    def exclusive(self) -> bool:
        """Whether nobody else may have any of it."""
        return self.capacity is None


@dataclass(frozen=True, slots=True)
class Retry(Value):
    """How often a flow's intent was rejected, and when it may be tried again."""

    flow_id: str
    rejection_count: int
    max_retries: int
    retry_policy: str
    next_retry_at: str | None
    backoff_until: str | None
    updated_at: str
    ns: str

    @property
    def exhausted(self) -> bool:
        """Whether no further try is allowed."""
        return self.rejection_count >= self.max_retries


@dataclass(frozen=True, slots=True)
class Entry(Value):
    """A key of the idempotency cache."""

    key: str
    request_hash: str
    result: Any
    created_at: str
    expires_at: str
    state: str
    error: str | None
    ns: str


@dataclass(frozen=True, slots=True)
class Dirty(Value):
    """A flow that failed half way and has something to undo."""

    flow_id: str
    failed_step: str
    partial_state: Any
    created_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class Escalation(Value):
    """A question to a person, and the answer once there is one."""

    id: int
    flow_id: str
    root_flow_id: str
    agent_id: str
    reason: str
    context: Any
    proposal: Any
    impact: str
    status: str
    human_decision: str | None
    created_at: str
    resolved_at: str | None
    deadline: str | None
    on_deadline: str
    opened_by: str
    resolved_by: str | None
    comment: str | None
    answer: Any
    ns: str

    @property
    def approved(self) -> bool:
        """Whether the flow may go on."""
        return self.status == "APPROVED"


@dataclass(frozen=True, slots=True)
class EscalationPage(Value):
    """Some escalations, oldest first; `next` is where the following page begins."""

    escalations: tuple[Escalation, ...]
    next: int | None


@dataclass(frozen=True, slots=True)
class DuePage(Value):
    """Questions that wait, the most urgent first; `next` is where the following page begins."""

    escalations: tuple[Escalation, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class Waiting(Value):
    """How many questions wait, how many of them are of high impact, and how many are past their deadline."""

    pending: int
    high: int
    overdue: int


@dataclass(frozen=True, slots=True)
class Budget(Value):
    """What an agent has spent of its escalations within the window, and when the oldest of them counts no more."""

    agent_id: str
    spent: int
    budget: int
    window_s: float
    renews_at: str | None

    @property
    def left(self) -> int:
        """How many questions it may still ask."""
        return max(self.budget - self.spent, 0)


@dataclass(frozen=True, slots=True)
class Swept(Value):
    """What a sweep put away, and what it left for somebody to look after."""

    locks: int
    keys: int
    escalations: int
    orphaned_flows: int
    dirty_flows: int
    unknown_keys: int
    notes: int = 0
