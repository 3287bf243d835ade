"""What is new: changes of flows and of escalations, for whoever follows them."""

from dataclasses import dataclass
from typing import Any

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far somebody has followed: the last transition, the last question, the last answer."""

    transition: int = 0
    asked: int = 0
    answered_at: str = ""
    answered: int = 0
    open: int = 0
    """Questions up to this one are all answered, and told."""

    def __str__(self) -> str:
        """The place on one line, for `parse`."""
        return f"{self.transition}.{self.asked}.{self.answered}.{self.open}.{self.answered_at}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """A place as it was written; ValueError if it was not."""
        transition, asked, answered, open, at = text.split(".", 4)
        return cls(int(transition), int(asked), at, int(answered), int(open))


@dataclass(frozen=True, slots=True)
class Change(Value):
    """One change: `kind` is flow, escalation or resolution."""

    kind: str
    id: int
    at: str
    about: dict[str, Any]
