"""What `doctor` reports."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """One thing that was examined: its level, what it is about, what was seen, and what to do unless it is ok."""

    level: Level
    about: str
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """Everything that was examined."""

    checks: list[HealthCheck] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is at level error; warnings do not count."""
        return all(each.level != "error" for each in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {"ok": self.ok, "checks": [asdict(each) for each in self.checks]}
