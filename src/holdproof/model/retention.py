"""What retention removed, and the space it gave back."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class Cut:
    """Where retention draws the line for one type of flow, or for all: both must agree that something goes."""

    flow_type: str | None
    before: str
    """What is newer stays."""
    # Its type differs by what is pruned: flows by age and id, versions by count, snapshots by rev.
    newest: tuple[str, str] | int | str | None
    """The newest that goes by number, as its age, id or rev (of versions: how many stay); None: that does not count."""
    daily: str | None = None
    """From this moment on the last of each day stays; None where that does not count."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What went, or would go, in one transaction; `after` is where the next one begins, None at the end."""

    count: int
    handles: Mapping[str, tuple[str, ...]]
    after: str | None
    counted: Mapping[str, int] = field(default_factory=dict)
    """Rows that have no leaf of their own, by table."""


@dataclass(frozen=True, slots=True)
class Pruned(Value):
    """What was removed, or would be: how many, and how many records of each table."""

    what: str
    dry_run: bool
    count: int
    records: dict[str, int]
    bytes_before: int | None
    bytes_after: int | None
    ns: str


@dataclass(frozen=True, slots=True)
class Pruning(Value):
    """One batch of what retention removed; the handles by table stay in its row."""

    id: str
    what: str
    rule: str
    who: str
    count: int
    pruned_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class Compacted(Value):
    """The size of the database before and after its free space was given back; None where it has no file."""

    bytes_before: int | None
    bytes_after: int | None


@dataclass(frozen=True, slots=True)
class RetentionRule(Value):
    """A floor (records stay so many days at least) or a legal hold (records stay until root lifts it).

    The scope of a floor is what it is of ("flows", "audit", … or "everything"); that of a hold is "everything", "flow"
    or "subject", and `target` the flow's id or the subject's handle.
    """

    id: str
    kind: str
    scope: str
    target: str
    days: int | None
    reason: str
    set_at: str
    lifted_at: str | None
    lift_reason: str | None
    ns: str


@dataclass(frozen=True, slots=True)
class MonthArchive(Value):
    """A folder with records of a month that retention wrote; `sha256` is the hash of its manifest, `archive.json`."""

    id: str
    what: str
    month: str
    count: int
    place: str
    sha256: str
    who: str
    archived_at: str


@dataclass(frozen=True, slots=True)
class MonthArchived(Value):
    """What was archived of a month and removed, or would be, and what had to stay: records under a legal hold.

    `dropped` says whether the room went back as a whole, as a partition of PostgreSQL.
    """

    what: str
    month: str
    dry_run: bool
    count: int
    under_hold: int
    archives: list[MonthArchive]
    dropped: bool
