"""What operations need beside their transaction: where things lie, and who signs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdproof.config import Paths, Settings
from holdproof.db import Database

if TYPE_CHECKING:  # evidence takes a Context, so at run time the arrow points the other way
    from holdproof.evidence.heads import HeadFile
    from holdproof.evidence.key_files import Keys
    from holdproof.evidence.log import Log

Embedder = Callable[[str], Any]
"""From the text of a task to its vector: any callable, on the async face a coroutine function too."""


@dataclass(frozen=True, slots=True)
class Context:
    """One open store, as seen by work that spans transactions; `None` where a store in memory has no such place."""

    paths: Paths
    settings: Settings
    database: Database
    keys: "Keys"
    log: "Log"
    marks: "HeadFile | None"
    embedder: Embedder | None = None
    dimensions: int | None = None
    """How many numbers an intent vector has, where that was said."""
    services: dict[Any, Any] = field(default_factory=dict)
    """What services have open over the same home, by face."""
