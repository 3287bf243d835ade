"""What an import found and did."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from holdproof.model.evaluations import ImportVerdict
from holdproof.model.value import Value


class _Counted:
    """Rows with a verdict and what was done, counted."""

    __slots__ = ()
    rows: list[Any]

    @property
    def verdicts(self) -> dict[str, int]:
        """How many rows have each verdict."""
        return dict(sorted(Counter(row.verdict for row in self.rows).items()))

    @property
    def done(self) -> dict[str, int]:
        """How many rows were imported, known before or completed."""
        return dict(sorted(Counter(row.done for row in self.rows if row.done).items()))

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        counted = {"total": len(self.rows), "verdicts": self.verdicts, "done": self.done}
        return {**asdict(self), **counted}  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True)
class ImportedRow:
    """One row of the source: what it is, and what was done with it."""

    source_id: str
    evaluation_id: str
    verdict: ImportVerdict
    done: str
    """`imported`, `known` (it was there), `completed` (its DBOM was added), or empty in a dry run."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Imported(_Counted):
    """The outcome of an import; nothing of the source is dropped."""

    source: str
    schema: str
    rows: list[ImportedRow] = field(default_factory=list)
    dboms_unmatched: list[str] = field(default_factory=list)
    """DBOM files that belong to no row of the source."""
    signatures: dict[str, int] = field(default_factory=dict)
    """How the DBOMs that were taken over are signed."""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class TakenRow(Value):
    """One row of DIR's: TAKEN as it is, ADAPTED with a note of what is different, or KEPT aside with the reason."""

    table: str
    source_id: str
    verdict: str
    done: str
    """`imported`, `known` (it was there), or empty in a dry run."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Takeover(_Counted):
    """The outcome of taking over a DIR database; nothing of its tables is dropped."""

    source: str
    rows: list[TakenRow] = field(default_factory=list)
    tables_left: dict[str, int] = field(default_factory=dict)
    """Tables that are not DIR's, and how many rows they have: they were not touched."""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ImportRecord(Value):
    """What an import found of one row, with every value that the row here does not hold as it was."""

    id: int
    importer: str
    source: str
    source_table: str
    source_id: str
    row_key: str
    verdict: str
    note: str
    beside: Any
    imported_at: str
    ns: str
