"""An open store of vectors, as all its parts know it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdproof.errors import ClosedError
from holdproof.storage.vectors.vector_rows import Facts

Embedder = Callable[[str], Any]
"""From a text to its vector: any callable, on the async face a coroutine function too."""


@dataclass
class VectorStoreState:
    """One open store of vectors."""

    facts: Facts
    cache: Path | None = None
    embedder: Embedder | None = None
    closed: bool = False

    def check_open(self) -> None:
        """Refuse to go on after closing."""
        if self.closed:
            raise ClosedError("the vectors are closed")
