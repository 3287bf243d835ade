"""What is recorded about flows: audit events, ledger entries, contexts, state, feedback."""

from dataclasses import dataclass
from typing import Any, Final

from holdproof.model.value import Value

SEVERITIES: Final = frozenset({"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"})
SOURCES: Final = frozenset({"Human", "Monitor", "KERNEL"})


@dataclass(frozen=True, slots=True)
class AuditEvent(Value):
    """Something that happened in a flow."""

    id: int
    flow_id: str
    root_flow_id: str
    event_type: str
    severity: str
    correlation_id: str | None
    causation_id: str | None
    step_id: str
    state: str
    detail: Any
    created_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class LedgerEntry(Value):
    """The one verified intent of a flow."""

    id: int
    flow_id: str
    root_flow_id: str
    agent_id: str
    intent: Any
    context_ref: str
    evidence_hash: str
    signature: str
    committed_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class Document(Value):
    """A flow's context or an agent's state: its value and its version."""

    key: str
    data: Any
    version: int
    updated_at: str
    snapshot_id: str
    """The first 16 hex digits of SHA-256 of the canonical JSON."""


@dataclass(frozen=True, slots=True)
class DocumentVersion(Value):
    """One leaf of a document, for a write or for a context that was taken: its index in the log, and its commitment."""

    ver: int
    index: int | None
    """None while the leaf waits for its index."""
    at: str
    commitment: str


@dataclass(frozen=True, slots=True)
class Feedback(Value):
    """How a flow of an agent turned out."""

    id: int
    agent_id: str
    flow_id: str
    status: str
    reason: str | None
    score: float | None
    source: str
    created_at: str
    ns: str
