"""What coordinates agents: locks, retries, idempotency keys, dirty flows, escalations."""

from dataclasses import dataclass
from typing import Any, Final

from holdproof.model.value import Value

POLICIES: Final = frozenset({"EXPONENTIAL_BACKOFF", "LINEAR", "NONE"})
STRATEGIES: Final = frozenset({"REVERT", "CLOSE_ALL", "ALERT_HUMAN", "NOOP"})
IMPACTS: Final = frozenset({"LOW_IMPACT", "HIGH_IMPACT"})
ANSWERS: Final = {
    "approval": ("approve", "reject", "cancel"),
    "in_doubt": ("happened", "did_not_happen", "undo"),
}
"""What a person may answer, by the kind of an escalation."""
_OUTCOMES: Final = {"HAPPENED": "it happened", "DID_NOT_HAPPEN": "it did not happen", "UNDO": "undo the flow"}


@dataclass(frozen=True, slots=True)
class Lock(Value):
    """A resource, or an amount of it, held by a flow; pass the fence to the resource, which can refuse older ones."""

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
        """Whether it excludes every other holder."""
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
class IdempotencyEntry(Value):
    """A key of the idempotency cache, and the result of its call."""

    key: str
    request_hash: str
    result: Any
    created_at: str
    expires_at: str
    state: str
    error: str | None
    ns: str


@dataclass(frozen=True, slots=True)
class DirtyFlow(Value):
    """A flow that failed half way and has something to undo."""

    flow_id: str
    failed_step: str
    partial_state: Any
    created_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class Escalation(Value):
    """A request for a human decision, and its resolution once there is one.

    Its kind is `approval`, or `in_doubt` for a step that was started and never confirmed; each has its own answers.
    """

    id: int
    flow_id: str
    root_flow_id: str
    agent_id: str
    kind: str
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
    approvers: str | None = None
    """Who has to answer, such as `2 of finance`; None where anybody who may answer may."""

    @property
    def approved(self) -> bool:
        """Whether the flow may go on."""
        return self.status == "APPROVED"

    @property
    def answers(self) -> tuple[str, ...]:
        """What a person may answer."""
        return ANSWERS[self.kind]

    @property
    def outcome(self) -> str:
        """How it ended, in plain words; `pending` while nobody has decided."""
        # First: a request that expired has a status too, the one that `on_deadline` says.
        if self.resolved_by == "deadline":
            return "expired"
        if self.kind == "in_doubt" and self.human_decision in _OUTCOMES:
            return _OUTCOMES[self.human_decision]
        if self.status == "APPROVED":
            return "approved with changes" if self.human_decision == "MODIFY" else "approved as proposed"
        return self.status.lower()


@dataclass(frozen=True, slots=True)
class EscalationFacet(Value):
    """How many pending escalations have these in common, and how many of them are due soon."""

    agent_id: str
    flow_type: str
    impact: str
    approvers: str
    """Who has to answer; empty where anybody may."""
    count: int
    due: int


@dataclass(frozen=True, slots=True)
class EscalationCounts(Value):
    """How many escalations there are, how many of them are of high impact, and how many are past their deadline."""

    total: int
    high_impact: int
    overdue: int


@dataclass(frozen=True, slots=True)
class Budget(Value):
    """What an agent has spent of its escalations within the window, and when the oldest of them leaves the window.

    `budget` is None where the agent has none, and may request as many as it likes.
    """

    agent_id: str
    spent: int
    budget: int | None
    on_exhausted: str | None
    window_s: float
    renews_at: str | None

    @property
    def left(self) -> int | None:
        """How many escalations it may still request; None for any number."""
        return None if self.budget is None else max(self.budget - self.spent, 0)


@dataclass(frozen=True, slots=True)
class SweepResult(Value):
    """How much a sweep removed or resolved, and how much needs an operator or a worker."""

    locks: int
    keys: int
    escalations: int
    orphaned_flows: int
    dirty_flows: int
    unknown_keys: int
    notes: int = 0
