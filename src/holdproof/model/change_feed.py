"""The change feed: flows that began, their transitions, new escalations and their resolutions."""

from dataclasses import dataclass
from typing import Any

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a consumer has read: the last transition, escalation, resolution and beginning of a flow."""

    # Rows are numbered, resolutions are not: those are followed by time and number.
    transition: int = 0
    escalation: int = 0
    resolved_at: str = ""
    resolution: int = 0
    resolved_up_to: int = 0
    """Escalations up to this number are all resolved, and their resolutions delivered."""
    begun_at: str = ""
    """The beginnings of flows up to this moment are all delivered."""

    def __str__(self) -> str:
        """The cursor as text, for `parse`."""
        numbers = f"{self.transition}.{self.escalation}.{self.resolution}.{self.resolved_up_to}"
        return f"{numbers}.{self.resolved_at}~{self.begun_at}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Read a cursor from text; ValueError where it is none."""
        transition, escalation, resolution, resolved_up_to, moments = text.split(".", 4)
        resolved_at, begun_at = moments.split("~")
        return cls(int(transition), int(escalation), resolved_at, int(resolution), int(resolved_up_to), begun_at)


@dataclass(frozen=True, slots=True)
class Change(Value):
    """One change: `kind` is flow, escalation or resolution; `id` of a flow that began is the flow's."""

    kind: str
    id: int | str
    at: str
    about: dict[str, Any]
