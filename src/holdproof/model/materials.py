"""The materials of a decision: what a flow rests on, by name and by hash."""

from dataclasses import dataclass
from typing import Any

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class CodeUse(Value):
    """The code that ran: a function and its version, or the type of a flow that is a plain block."""

    name: str
    version: str
    inputs_hash: str | None
    """The hash of what it was called with; None for a plain block."""
    forked_from: str | None


@dataclass(frozen=True, slots=True)
class ModelUse(Value):
    """A model that was called: all calls with the same parameters and the same system prompt."""

    name: str
    answered_by: str | None
    """The version that answered, where the provider names it."""
    parameters: Any
    system_hash: str | None
    prompt_hashes: tuple[str, ...]
    """The SHA-256 of the canonical JSON of each call's messages."""
    calls: int
    input_tokens: int
    output_tokens: int
    costs_usd: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ToolUse(Value):
    """A tool that a model was offered, or that was called; one whose schema changed is there twice."""

    name: str
    schema_hash: str | None
    """None where the tool was called and no call of a model offered it."""
    calls: int


@dataclass(frozen=True, slots=True)
class SkillUse(Value):
    """A skill that was loaded, and who approved it."""

    path: str
    root: str
    approval_id: str
    approved_by: str
    approved_at: str


@dataclass(frozen=True, slots=True)
class MemoryUse(Value):
    """An object that was read or written: `tree` is the root of all objects as they were then."""

    action: str
    id: str
    version: int | None
    cid: str | None
    """None where the object was deleted."""
    tree: str
    ns: str


@dataclass(frozen=True, slots=True)
class PolicyUse(Value):
    """A set of policies, and how often it decided what."""

    hash: str
    allowed: int
    denied: int
    escalated: int


@dataclass(frozen=True, slots=True)
class HumanAnswer(Value):
    """A decision that a person was asked for."""

    escalation: int
    kind: str
    outcome: str
    by: str | None
    at: str | None
    answer_hash: str | None


@dataclass(frozen=True, slots=True)
class Materials(Value):
    """What a flow rests on, as far as it was recorded; the same record gives the same `hash`."""

    flow_id: str
    ns: str
    agent_id: str
    status: str
    code: CodeUse
    models: tuple[ModelUse, ...]
    tools: tuple[ToolUse, ...]
    skills: tuple[SkillUse, ...]
    memory: tuple[MemoryUse, ...]
    policies: tuple[PolicyUse, ...]
    answers: tuple[HumanAnswer, ...]
    result_hash: str | None
    """The SHA-256 of the canonical JSON of what the flow returned; None where it returned nothing yet."""
    unreadable: int
    """How many calls are not shown because their person was erased."""
    hash: str


@dataclass(frozen=True, slots=True)
class MaterialsDocument(Value):
    """The materials of a flow in a format of others."""

    flow_id: str
    format: str
    text: str


@dataclass(frozen=True, slots=True)
class MaterialsCheck(Value):
    """What a signed statement about materials is worth here: who signed it, and whether the record still says so."""

    flow_id: str
    keyid: str
    hash: str
    unchanged: bool
