"""What stands for the vector store where its optional part is not installed: every call says what to install."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from holdproof.errors import MissingExtraError
from holdproof.model.storage import SearchResult


class AbsentVectors:
    """A VectorStore that refuses everything but closing."""

    def __init__(self, dimensions: int, reason: MissingExtraError) -> None:
        self.dimensions, self._reason = dimensions, reason

    def _refuse(self, *given: object) -> NoReturn:
        del given
        raise MissingExtraError(self._reason.message) from self._reason

    async def add(self, id: str, vector: Sequence[float], metadata: Mapping[str, Any] | None = None) -> None:
        """Refused."""
        self._refuse(id, vector, metadata)

    async def upsert(self, id: str, vector: Sequence[float], metadata: Mapping[str, Any] | None = None) -> None:
        """Refused."""
        self._refuse(id, vector, metadata)

    async def search(
        self,
        query: Sequence[float],
        k: int = 10,
        *,
        limit: int | None = None,
        filter: Mapping[str, Any] | None = None,
    ) -> list[SearchResult]:
        """Refused."""
        self._refuse(query, k, limit, filter)

    async def delete(self, id: str) -> bool:
        """Refused."""
        self._refuse(id)

    async def count(self) -> int:
        """Refused."""
        self._refuse()

    async def close(self) -> None:
        """Nothing is open."""
