"""Agents: who may act, under which contract."""

from dataclasses import dataclass, field
from typing import Any, Final

from holdproof.errors import InvalidInputError
from holdproof.model.value import Value

STATUSES: Final = frozenset({"ACTIVE", "SUSPENDED", "RETIRED", "DEGRADED", "ESCALATION_ONLY"})
OPENS_FLOWS: Final = frozenset({"ACTIVE"})
ESCALATES: Final = frozenset({"ACTIVE", "DEGRADED", "ESCALATION_ONLY"})
ON_EXHAUSTED: Final = frozenset({"refuse", "suspend"})


@dataclass(frozen=True, slots=True)
class EscalationBudget(Value):
    """How many escalations an agent may request within an hour, and what one more leads to.

    `refuse` refuses the request, and nothing else; `suspend` suspends the agent and cancels the flow, as DIR does.
    """

    per_hour: int
    on_exhausted: str = "refuse"

    @classmethod
    def parse(cls, value: Any) -> "EscalationBudget | None":
        """Read the `escalation_budget` of a contract or of an operator; None for none."""
        if value is None:
            return None
        per_hour = value.get("per_hour") if isinstance(value, dict) else None
        action = value.get("on_exhausted", "refuse") if isinstance(value, dict) else None
        if (
            type(per_hour) is not int
            or per_hour < 0
            or action not in ON_EXHAUSTED
            or len(value) > 1 + ("on_exhausted" in value)
        ):
            raise InvalidInputError(
                'an escalation_budget is {"per_hour": 3, "on_exhausted": "refuse"}, or "suspend"',
                field="escalation_budget",
            )
        return cls(per_hour, action)


@dataclass(frozen=True, slots=True)
class Agent(Value):
    """A registered agent."""

    agent_id: str
    contract: Any
    priority: int
    status: str
    agent_version: str | None
    suspension_reason: str | None
    escalation_budget: Any
    """What an operator set; None where the contract says it, or nobody."""
    registered_at: str
    updated_at: str
    ns: str

    @property
    def budget(self) -> EscalationBudget | None:
        """The budget that applies: the operator's, else the contract's; None for no limit."""
        named = self.contract.get("escalation_budget") if isinstance(self.contract, dict) else None
        return EscalationBudget.parse(named if self.escalation_budget is None else self.escalation_budget)


@dataclass(frozen=True, slots=True)
class Registration(Value):
    """What registering gives: the agent, and its session token, which is shown this once."""

    agent: Agent
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AgentCounts(Value):
    """What an agent did within a stretch of time."""

    agent_id: str
    flows: int
    failed: int
    """How many of them failed, undone or not."""
    open: int
    escalations: int
    last_at: str
    """When it opened its last flow."""
    buckets: tuple[int, ...]
    """Flows over that time, in equal parts, the oldest first."""


@dataclass(frozen=True, slots=True)
class AgentActivity(Value):
    """What agents did since a moment, the busiest first."""

    agents: tuple[AgentCounts, ...]
    since: str
    exact: bool
    """Whether every flow since then was counted; if not, the newest were."""
