"""What copying a store did."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Copied:
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
