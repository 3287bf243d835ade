"""Agents: who may act, under which contract."""

from dataclasses import dataclass, field
from typing import Any, Final

from holdproof.model.value import Value

STATUSES: Final = frozenset({"ACTIVE", "SUSPENDED", "RETIRED", "DEGRADED", "ESCALATION_ONLY"})
OPENS_FLOWS: Final = frozenset({"ACTIVE"})
ESCALATES: Final = frozenset({"ACTIVE", "DEGRADED", "ESCALATION_ONLY"})


@dataclass(frozen=True, slots=True)
class Agent(Value):
    """A registered agent."""

    agent_id: str
    contract: Any
    priority: int
    status: str
    agent_version: str | None
    suspension_reason: str | None
    registered_at: str
    updated_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class Registration(Value):
    """What registering gives: the agent, and its session token, which is shown this once."""

    agent: Agent
    token: str = field(repr=False)
