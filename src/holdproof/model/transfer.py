"""What copying or moving a store did."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Copied:
    """A second store with everything of the first, or with `dry_run` what it could be made of.

    `origin` is the new name of its log, empty in a dry run; `home` has its keys, heads and files.
    """

    source: str
    target: str
    home: str
    store_id: str
    origin: str
    size: int
    verdict: str
    dry_run: bool
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Moved:
    """A store that goes on in another database, or with `dry_run` could."""

    source: str
    target: str
    store_id: str
    origin: str
    size: int
    root: str
    rows: dict[str, int]
    verdict: str
    dry_run: bool
    stays: list[str] = field(default_factory=list)
    next: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        return asdict(self)
