"""What the log says of itself: its level, and the outcome of an audit."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from holdproof.model.value import Value
from holdproof.model.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing wrong with the log: at which leaf, if it can be said, and what."""

    index: int | None
    what: str
    verdict: Verdict = Verdict.TAMPERED

    def to_dict(self) -> dict[str, Any]:
        """The flaw as every client prints it."""
        return {"index": self.index, "what": self.what, "verdict": self.verdict.word}


@dataclass(frozen=True, slots=True)
class Audited:
    """The outcome of an audit: the worst verdict, the flaws up to a bound, and how far it looked."""

    verdict: Verdict
    full: bool
    size: int
    pending: int = 0
    heads: int = 0
    """How many heads of the state folder it was compared with."""
    findings: list[Flaw] = field(default_factory=list)
    left_off: int = 0
    root: str = ""
    """The root of the tree at that size, as the signed head has it; empty where there is no head to read."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.verdict.sound

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        # Field by field: verdicts and findings have a form of their own.
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {**plain, "verdict": self.verdict.word, "findings": [flaw.to_dict() for flaw in self.findings]}


@dataclass(frozen=True, slots=True)
class Level:
    """Who else could tell if the log were rewritten: nobody (LOCAL), the state folder (KEPT), witnesses.

    A witness that contradicts the log makes it DISPUTED, whatever the others say.
    """

    name: str
    size: int
    stored_size: int = 0
    """The size of the log in the newest head of the state folder."""
    witnessed: int = 0
    witnesses: int = 0
    witnessed_size: int = 0
    disputed: int = 0
    """How many witnesses say that this log is rolled back or forked."""

    @property
    def text(self) -> str:
        """The level on one line: `WITNESSED 2/3`, `DISPUTED 1/3`."""
        if self.disputed:
            return f"DISPUTED {self.disputed}/{self.witnesses}"
        return f"{self.name} {self.witnessed}/{self.witnesses}" if self.witnesses else self.name

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """The level as every client prints it."""
        return {"level": self.text, **asdict(self)}


@dataclass(frozen=True, slots=True)
class KnownHead(Value):
    """A head of the log that somebody vouched for, and when: `signed` is the newest of the log itself."""

    at: str
    size: int
    kind: Literal["signed", "verified", "stamped", "anchored", "cosigned"]
    by: str = ""
    """Who verified, which time authority, which other log, which witness."""
    verdict: str = ""
    """Of a verification."""
    entry: str = ""
    """The handle of the entry that says so; empty where it is the head's own signature."""


@dataclass(frozen=True, slots=True)
class RangeProof(Value):
    """That these entries of a stream are all from one number to another (evidence/range_proof.py)."""

    proof: str
    """The proof, a JSON document: whose stream, which numbers, where in the log, under which signed head."""
    entries: list[str]
    """The entries, as they stand in the log."""

    @property
    def text(self) -> str:
        """Both in one document, for a file."""
        return json.dumps({"proof": self.proof, "entries": self.entries})


@dataclass(frozen=True, slots=True)
class VerifiedRange(Value):
    """What a range proof proves: all entries of a kind by an agent, from one number to another."""

    agent_id: str
    kind: str
    ns: str
    first: int
    last: int
    since: str
    """The time of the first of them."""
    until: str
    """The time of the last of them."""
    origin: str
    size: int
    """How many entries the log had, under whose signed head they stand."""


@dataclass(frozen=True, slots=True)
class StoreSize(Value):
    """How large a store was at a moment."""

    at: str
    entries: int
    """Entries of the log, pending ones too."""
    bytes: int
    """What the tables and indexes of the database take."""
