"""The context of one open store: what operations need beside their transaction."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Any

from holdproof.config import Paths, Settings
from holdproof.db import Database

if TYPE_CHECKING:  # evidence imports Context, so at run time the arrow points the other way
    from holdproof.evidence.heads import HeadFile
    from holdproof.evidence.key_files import Keys
    from holdproof.evidence.log import Log

Embedder = Callable[[str], Any]
"""From the text of a task to its vector: any callable; in the async client a coroutine function too."""


@dataclass(frozen=True, slots=True)
class Context:
    """One open store, for work that spans transactions: where its files are, its database, and who signs for it."""

    paths: Paths
    settings: Settings
    database: Database
    keys: "Keys"
    log: "Log"
    head_file: "HeadFile | None"
    """The file that keeps signed heads outside the database; None for a store in memory, which has no files."""
    embedder: Embedder | None = None
    dimensions: int | None = None
    """The required length of intent vectors; None accepts any."""
    services: dict[Any, Any] = field(default_factory=dict)
    """The application stores that are open over the same home, by executor class."""
    threads: list[Thread] = field(default_factory=list)
    """What the opening left to threads; closing waits for them a little."""
