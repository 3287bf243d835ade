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
class Session(Value):
    """What a handshake gives: the agent, and its token, which is shown this once."""

    agent: Agent
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AgentPage(Value):
    """Some agents, by name; `next` is where the following page begins."""

    agents: tuple[Agent, ...]
    next: str | None
