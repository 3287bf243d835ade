"""What taking over legacy data found and did."""

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Final

from holdproof.model.value import Value

LEFT_OUT: Final = 8
"""The exit code where a source was moved, but something in it has no place here."""


class Outcome(Enum):
    """What became of a source."""

    MOVED = "moved"
    WOULD_MOVE = "would move"
    MOVED_BEFORE = "moved before"
    DAMAGED = "damaged"
    CONFLICT = "conflict"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LegacySource(Value):
    """One legacy file or folder: how much was found in it, what was new here and what was known, what has no place."""

    source: str
    kind: str
    outcome: Outcome
    counts: dict[str, int] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    why: str = ""
    code: str = ""
    exit_code: int = 0
    renamed: str = ""
    """What it is called now."""

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        return {**asdict(self), "outcome": self.outcome.value}


@dataclass(frozen=True, slots=True)
class LegacyReport(Value):
    """What became of every source, in the order they were looked at."""

    roots: list[str]
    sources: list[LegacySource] = field(default_factory=list)
    dry_run: bool = False

    @property
    def exit_code(self) -> int:
        """The gravest of what was left where it is; 0 if nothing was."""
        # A source that was moved in part has no error of its own, but must not end as a success.
        incomplete = [LEFT_OUT for each in self.sources if each.skipped]
        return max([*incomplete, *(each.exit_code for each in self.sources)], default=0)

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        return {
            "roots": self.roots,
            "dry_run": self.dry_run,
            "sources": [each.to_dict() for each in self.sources],
        }
