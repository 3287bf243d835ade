"""What an import found and did."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.model.battles import ImportVerdict


@dataclass(frozen=True, slots=True)
class ImportedRow:
    """One row of the source: what it is, and what was done with it."""

    source_id: str
    battle_id: str
    verdict: ImportVerdict
    done: str
    """`imported`, `known` (it was there), `completed` (its DBOM was added), or empty in a dry run."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Imported:
    """The outcome of an import; nothing of the source is dropped."""

    source: str
    schema: str
    rows: list[ImportedRow] = field(default_factory=list)
    dboms_unmatched: list[str] = field(default_factory=list)
    """DBOM files that belong to no row of the source."""
    signatures: dict[str, int] = field(default_factory=dict)
    """How the DBOMs that were taken over are signed."""
    dry_run: bool = False

    @property
    def verdicts(self) -> dict[str, int]:
        """How many rows have each verdict."""
        return dict(sorted(Counter(row.verdict for row in self.rows).items()))

    @property
    def done(self) -> dict[str, int]:
        """How many rows were imported, known before or completed."""
        return dict(sorted(Counter(row.done for row in self.rows if row.done).items()))

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every face prints it."""
        counted = {"total": len(self.rows), "verdicts": self.verdicts, "done": self.done}
        return {**asdict(self), **counted, "rows": [asdict(row) for row in self.rows]}
