"""Sessions of the command line, and what belongs to each.

ACTIVE → COMPLETED | FAILED | INTERRUPTED, and an agent of a session RUNNING → COMPLETED | FAILED. The others are ends.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from holdproof.model.value import Value


class SessionType(StrEnum):
    """What kind of session it is; `repl` is another word for `interactive`, and stored as that."""

    INTERACTIVE = "interactive"
    FLOW = "flow"
    SCRIPT = "script"

    @classmethod
    def _missing_(cls, value: object) -> "SessionType | None":
        return cls.INTERACTIVE if value == "repl" else None


class SessionState(StrEnum):
    """Where a session stands."""

    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class AgentStatus(StrEnum):
    """Where an agent of a session stands; PENDING is of rows that others wrote."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


# Everything but ACTIVE; of agents, PENDING is no end: only other programs write it.
SESSION_ENDS: Final = frozenset(SessionState) - {SessionState.ACTIVE}
AGENT_ENDS: Final = frozenset({AgentStatus.COMPLETED, AgentStatus.FAILED})


@dataclass(frozen=True, slots=True)
class CLISession(Value):
    """A session; a type or state that is none of ours was written by another program."""

    id: str
    name: str
    session_type: str
    state: str
    started_at: str
    ended_at: str | None
    project_path: str | None
    project_hash: str | None
    flow_name: str | None
    flow_path: str | None
    budget_level: str
    tokens_used: int
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether it takes no more events."""
        return self.state != SessionState.ACTIVE


@dataclass(frozen=True, slots=True)
class CLISessionEvent(Value):
    """Something that happened in a session."""

    id: str
    session_id: str
    timestamp: str
    event_type: str
    source: str
    message: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CLISessionAgent(Value):
    """An agent that was spawned in a session."""

    id: str
    session_id: str
    name: str
    genus: str
    status: str
    started_at: str | None
    completed_at: str | None
    error: str | None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CLISessionArtifact(Value):
    """Something that a session brought forth."""

    id: str
    session_id: str
    name: str
    path: str | None
    artifact_type: str
    created_at: str
    updated_at: str
    size_bytes: int
    content_preview: str | None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionTimeline(Value):
    """A session with its agents and artifacts, and a page of its events, oldest first."""

    session: CLISession
    agents: tuple[CLISessionAgent, ...]
    artifacts: tuple[CLISessionArtifact, ...]
    events: tuple[CLISessionEvent, ...]
    next_cursor: str | None
