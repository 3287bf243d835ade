"""Policies: Cedar texts in versions, what they decided, and what a draft would decide instead."""

from dataclasses import dataclass
from typing import Any, Final

from holdproof.model.value import Value

ALLOW: Final = "allow"
DENY: Final = "deny"
ASK: Final = "ask"
DECISIONS: Final = frozenset({ALLOW, DENY, ASK})
STATES: Final = frozenset({"DRAFT", "ACTIVE", "RETIRED"})
ACTIONS: Final = {
    "flow.start": "Flow",
    "step": "Step",
    "tool.call": "Tool",
    "memory.write": "Memory",
    "export": "Export",
}
"""What policies decide about, and the type that its resource has in Cedar."""


@dataclass(frozen=True, slots=True)
class Policy(Value):
    """One version of a policy: a Cedar text of one or more statements."""

    name: str
    version: int
    state: str
    text: str
    hash: str
    created_by: str
    created_at: str
    changed_by: str
    changed_at: str
    keyid: str
    ns: str


@dataclass(frozen=True, slots=True)
class PolicySet(Value):
    """The active policies of a namespace: name, version and hash of each, and the hash of them all."""

    ns: str
    revision: int
    hash: str
    active: Any
    changed_by: str
    changed_at: str


@dataclass(frozen=True, slots=True)
class PolicyDecision(Value):
    """What the active policies decided about one act, and why."""

    id: int
    flow_id: str | None
    agent_id: str
    action: str
    resource: str
    n: int
    """Which of its name in the flow, as steps count; 1 for others."""
    decision: str
    policy_hash: str
    """The hash of the set of policies that decided."""
    inputs_hash: str
    """The hash of the inputs; of a person's under that person's key."""
    reasons: Any
    """The statements that decided, by policy and `@id`, and what could not be evaluated."""
    escalation: int | None
    decided_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class PolicyDifference(Value):
    """A recorded decision that a draft would have decided otherwise."""

    id: int
    flow_id: str | None
    agent_id: str
    action: str
    resource: str
    decided_at: str
    decision: str
    draft: str
    """What the draft decides."""
    reasons: tuple[str, ...]
    """Why the draft does."""


@dataclass(frozen=True, slots=True)
class Reevaluation(Value):
    """A page of recorded decisions, decided again under a draft."""

    examined: int
    unknown: int
    """How many could not be decided again: their inputs were erased with a person, or were not to be recorded."""
    differences: tuple[PolicyDifference, ...]
    next_cursor: str | None
    """Where the next page begins; None where all were examined."""
