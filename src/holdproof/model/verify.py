"""What a verification found, and its outcome."""

from dataclasses import asdict, dataclass, field
from typing import Any

from holdproof.model.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be: where, what, and what to do about it.

    `outside` is what services store or a witness says: it counts like any other, but does not lock the kernel.
    """

    verdict: Verdict
    what: str
    remedy: str
    file: str = ""
    table: str = ""
    row: str = ""
    outside: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The finding as every client prints it."""
        return {**asdict(self), "verdict": self.verdict.word}

    @property
    def place(self) -> str:
        """Where it is, in one line."""
        return " ".join(filter(None, (self.file, self.table and f"table {self.table}", self.row and f"row {self.row}")))


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one verification: the worst verdict, every finding up to a bound, and what was looked at."""

    verdict: Verdict
    mode: str
    findings: list[Finding] = field(default_factory=list)
    left_off: int = 0
    checked: dict[str, int] = field(default_factory=dict)
    head: dict[str, Any] = field(default_factory=dict)
    level: str = ""
    not_checked: list[str] = field(default_factory=list)
    not_covered: list[str] = field(default_factory=list)
    locked: str | None = None
    place: str = ""
    """What was verified: a file, a folder, or a database without its password."""
    since: str = ""
    """The time of the log's first entry: the verdict is about everything since then."""
    trusted_by: list[str] = field(default_factory=list)
    """Whose signatures it rests on: the log keys under the newest head, root, and the witnesses that cosigned it."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.verdict.sound

    @property
    def locks(self) -> bool:
        """Whether something is wrong with the kernel that a store is to be locked for."""
        return any(each.verdict.locks and not each.outside for each in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {**plain, "verdict": self.verdict.word, "findings": [each.to_dict() for each in self.findings]}


@dataclass(frozen=True, slots=True)
class Locked:
    """A lockdown that is in force: its id, why, and since when."""

    id: str
    verdict: str
    reason: str
    locked_at: str

    def to_dict(self) -> dict[str, Any]:
        """The state as every client prints it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class LockedByHand:
    """A lockdown that somebody asked for, and who can end it."""

    id: str
    verdict: str
    reason: str
    locked_at: str
    ended_by: str
    """Which key ends it, whether that is here, and by which command."""

    def to_dict(self) -> dict[str, Any]:
        """The state as every client prints it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class BundleReport:
    """The outcome of checking a bundle offline: what holds, under whose keys."""

    verdict: Verdict
    subject: str
    kind: str
    keys: dict[str, str] = field(default_factory=dict)
    trusted: bool = False
    head: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What the reader must know beside the verdict: what no bundle proves, and a page that is not the usual one."""

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {**plain, "verdict": self.verdict.word, "findings": [each.to_dict() for each in self.findings]}


@dataclass(frozen=True, slots=True)
class BundleEvent:
    """Something that a record of a bundle says happened; `index` is its place in the log."""

    at: str
    kind: str
    what: str
    note: str | None
    person: str | None
    index: int


@dataclass(frozen=True, slots=True)
class BundleStory:
    """What a bundle is about, from its proven records: what was decided, by whom, on what, approved by whom, when."""

    decided: str
    by: str
    inputs: tuple[str, ...]
    approvals: tuple[str, ...]
    begun_at: str
    ended_at: str
    events: tuple[BundleEvent, ...]

    def to_dict(self) -> dict[str, Any]:
        """The story as every client prints it."""
        return asdict(self)
