"""Values of the storage layer: what its stores answer with, and the states an operation passes through.

IDLE → READING | WRITING | MIGRATING | RECOVERING → IDLE. Each operation has a machine of its own, so reads and writes
run side by side; MIGRATING and RECOVERING concern the whole store and refuse other work.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from holdproof.errors import IllegalTransitionError
from holdproof.model.value import Value


class StorageState(Enum):
    """Where an operation stands."""

    IDLE = "idle"
    READING = "reading"
    WRITING = "writing"
    MIGRATING = "migrating"
    RECOVERING = "recovering"


class StorageOp(Enum):
    """What moves it on."""

    READ = "read"
    WRITE = "write"
    MIGRATE = "migrate"
    ERROR = "error"
    DONE = "done"
    RECOVERED = "recovered"


_EDGES: Final[Mapping[StorageState, Mapping[StorageOp, StorageState]]] = {
    StorageState.IDLE: {
        StorageOp.READ: StorageState.READING,
        StorageOp.WRITE: StorageState.WRITING,
        StorageOp.MIGRATE: StorageState.MIGRATING,
        StorageOp.ERROR: StorageState.RECOVERING,
    },
    StorageState.READING: {StorageOp.DONE: StorageState.IDLE},
    StorageState.WRITING: {StorageOp.DONE: StorageState.IDLE},
    StorageState.MIGRATING: {StorageOp.DONE: StorageState.IDLE},
    StorageState.RECOVERING: {StorageOp.RECOVERED: StorageState.IDLE},
}


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A state machine as a value: its positions, what may happen in each, and where that leads."""

    positions: frozenset[StorageState]

    def directions(self, state: StorageState) -> frozenset[StorageOp]:
        """What may happen in a state."""
        return frozenset(_EDGES[state])

    def transition(self, state: StorageState, op: StorageOp) -> StorageState:
        """Where an operation leads; IllegalTransitionError where it may not happen."""
        after = _EDGES[state].get(op)
        if after is None:
            raise IllegalTransitionError(
                f"{op.value} is no move of a store that is {state.value}", state=state.value, op=op.value
            )
        return after


STORAGE_POLYNOMIAL: Final = Polynomial(frozenset(StorageState))


@dataclass(frozen=True, slots=True)
class SearchResult(Value):
    """A vector that was found; `distance` is one minus the cosine."""

    id: str
    distance: float
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredVector(Value):
    """A vector as it is kept."""

    id: str
    vector: list[float]
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VectorFacts(Value):
    """A vector without its numbers; `model` and `embedded_at` are known of one that was made of a text here."""

    id: str
    metadata: dict[str, Any]
    model: str | None
    embedded_at: str | None


@dataclass(frozen=True, slots=True)
class TelemetryEvent(Value):
    """Something that happened, at a moment (ISO-8601)."""

    event_type: str
    timestamp: str
    data: dict[str, Any] = field(default_factory=dict)
    instance_id: str | None = None
    project_hash: str | None = None
    span_id: str | None = None
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class StoreStatus(Value):
    """One of the four stores: what it runs on, where, and why that is not what was asked for, if it is not.

    `holds` is how much is in it, where that was asked.
    """

    type: str
    where: str
    degraded: str | None = None
    holds: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StorageStatus(Value):
    """What a storage runs on, how many operations are in which state, and what is wrong with it."""

    stores: dict[str, StoreStatus]
    under_way: dict[str, int]
    degraded: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
