"""Evaluations, their DBOMs, and what is found out about them."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from holdproof.model.value import Value
from holdproof.model.verdicts import Verdict

ImportVerdict = Literal["VERIFIED", "DBOM_MISSING", "DBOM_SUPERSEDED", "UNLINKED", "SCHEMA_OLD"]


@dataclass(frozen=True, slots=True)
class Evaluation(Value):
    """One evaluation as it is stored; `raw_result` and `dbom` are the exact texts that hashes cover."""

    id: int
    evaluation_id: str
    timestamp: str
    score: float | None
    breakdown: str | None
    raw_result: str | None
    dbom_hash: str | None
    ns: str
    dbom: str | None
    subject: str | None
    legacy: str | None
    legacy_key: str | None
    leaf_id: str
    leaf_ver: int

    @property
    def result(self) -> Any:
        """The result that was submitted."""
        return None if self.raw_result is None else json.loads(self.raw_result)

    @property
    def facts(self) -> dict[str, Any]:
        """What the import found about a legacy row; empty for our own."""
        facts: dict[str, Any] = json.loads(self.legacy) if self.legacy else {}
        return facts

    def to_dict(self) -> dict[str, Any]:
        """The row as every client prints it."""
        plain = asdict(self)
        # Stored as JSON text, since its leaf covers the exact text; clients get the value.
        plain["legacy"] = self.facts or None
        return plain


@dataclass(frozen=True, slots=True)
class Bom:
    """The DBOM of one evaluation, as its exact text."""

    id: int
    evaluation_id: str
    text: str

    def to_dict(self) -> dict[str, Any]:
        """The DBOM's own seven fields."""
        fields: dict[str, Any] = json.loads(self.text)
        return fields


@dataclass(frozen=True, slots=True)
class DbomChecked:
    """What can be said of a DBOM: one verdict, and why."""

    verdict: Verdict
    why: str
    evaluation_id: str = ""
    h_delta: str = ""
    signer: str = ""
    id: int | None = None
    index: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        return {**asdict(self), "verdict": self.verdict.word}


@dataclass(frozen=True, slots=True)
class Repaired:
    """Which DBOM files were written anew, how many were looked at, and which stand there without a row."""

    looked_at: int
    written: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        return asdict(self)
