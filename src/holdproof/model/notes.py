"""Notes: what agents keep under a path and a key."""

from dataclasses import dataclass
from typing import Any

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class Note(Value):
    """A note as it is now; `score` says how near it is to the vector that was asked for, 1 at most."""

    path: tuple[str, ...]
    key: str
    value: dict[str, Any]
    created_at: str
    updated_at: str
    ttl_s: float | None = None
    expires_at: str | None = None
    score: float | None = None
    ns: str = "main"
