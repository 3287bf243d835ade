"""The change feed: transitions of flows, new escalations and their resolutions."""

from dataclasses import dataclass
from typing import Any

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a consumer has read: the last transition, the last escalation, the last resolution."""

    # Rows are numbered, resolutions are not: those are followed by time and number.
    transition: int = 0
    escalation: int = 0
    resolved_at: str = ""
    resolution: int = 0
    resolved_up_to: int = 0
    """Escalations up to this number are all resolved, and their resolutions delivered."""

    def __str__(self) -> str:
        """The cursor as text, for `parse`."""
        return f"{self.transition}.{self.escalation}.{self.resolution}.{self.resolved_up_to}.{self.resolved_at}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Read a cursor from text; ValueError where it is none."""
        transition, escalation, resolution, resolved_up_to, at = text.split(".", 4)
        return cls(int(transition), int(escalation), at, int(resolution), int(resolved_up_to))


@dataclass(frozen=True, slots=True)
class Change(Value):
    """One change: `kind` is flow, escalation or resolution."""

    kind: str
    id: int
    at: str
    about: dict[str, Any]
