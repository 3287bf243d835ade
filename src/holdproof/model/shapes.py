"""Shapes that were observed, and dreams they were consolidated into."""

from dataclasses import dataclass
from enum import StrEnum

from holdproof.model.value import Value


class EmbeddingStatus(StrEnum):
    """Whether a shape can be found by a vector; PENDING is one whose vector is not kept yet."""

    NONE = "none"
    PENDING = "pending"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class Shape(Value):
    """An observed pattern."""

    id: str
    shape_type: str
    intensity: float
    persistence: float
    interpretation: str | None
    project_hash: str | None
    instance_id: str | None
    observed_at: str
    embedding_status: str


@dataclass(frozen=True, slots=True)
class Dream(Value):
    """An insight, with the ids of the shapes it was consolidated from."""

    id: str
    content: str
    source_shapes: tuple[str, ...]
    confidence: float
    dreamed_at: str


@dataclass(frozen=True, slots=True)
class FoundShape(Value):
    """A shape near to a vector; `distance` is one minus the cosine."""

    shape: Shape
    distance: float


@dataclass(frozen=True, slots=True)
class FoundDream(Value):
    """A dream near to a vector; `distance` is one minus the cosine."""

    dream: Dream
    distance: float
