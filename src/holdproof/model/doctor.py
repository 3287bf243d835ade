"""What the doctor finds."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Health = Literal["well", "note", "ill"]


@dataclass(frozen=True, slots=True)
class Symptom:
    """One thing the doctor looked at: `well`, worth a `note`, or `ill`, and then what to do."""

    health: Health
    about: str
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Examined:
    """Everything the doctor looked at."""

    symptoms: list[Symptom] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is ill."""
        return all(each.health != "ill" for each in self.symptoms)

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every face prints it."""
        return {"ok": self.ok, "symptoms": [asdict(each) for each in self.symptoms]}
