"""The four stores that services ask for, as protocols; each is also known under the seed's name with an `I`."""

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

from holdproof.model.storage import SearchResult, TelemetryEvent

Params = Mapping[str, Any]
Record = dict[str, Any]


@runtime_checkable
class RelationalStore(Protocol):
    """Tables of the membrane, in SQL with `:name` parameters."""

    def execute(self, query: str, params: Params | None = None) -> Awaitable[int]:
        """Run a statement, or a script of several; how many rows it touched."""
        ...

    def executemany(self, query: str, rows: Sequence[Params]) -> Awaitable[int]:
        """Run one statement for each set of parameters; how many rows that touched."""
        ...

    def fetch_all(self, query: str, params: Params | None = None) -> Awaitable[list[Record]]:
        """Every row of a query, by column name."""
        ...

    def fetch_one(self, query: str, params: Params | None = None) -> Awaitable[Record | None]:
        """The first row of a query, or None."""
        ...

    def transaction(self) -> "AbstractAsyncContextManager[RelationalStore]":
        """Several calls as one: committed at the end, rolled back by an exception."""
        ...

    def close(self) -> Awaitable[None]:
        """Close it; may be called twice."""
        ...


@runtime_checkable
class VectorStore(Protocol):
    """Vectors by id, found by nearness."""

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        ...

    def add(self, id: str, vector: Sequence[float], metadata: Mapping[str, Any] | None = None) -> Awaitable[None]:
        """Keep a vector under an id, in the place of the one that was there; seen by the next search."""
        ...

    def upsert(self, id: str, vector: Sequence[float], metadata: Mapping[str, Any] | None = None) -> Awaitable[None]:
        """The same."""
        ...

    def search(
        self,
        query: Sequence[float],
        k: int = 10,
        *,
        limit: int | None = None,
        filter: Mapping[str, Any] | None = None,
    ) -> Awaitable[list[SearchResult]]:
        """The nearest ones whose metadata match the filter, nearest first; `limit` is another name for `k`."""
        ...

    def delete(self, id: str) -> Awaitable[bool]:
        """Remove one; whether it was there."""
        ...

    def count(self) -> Awaitable[int]:
        """How many there are."""
        ...

    def close(self) -> Awaitable[None]:
        """Close it; may be called twice."""
        ...


@runtime_checkable
class BlobStore(Protocol):
    """Bytes by key; a key is a name like `backups/today.bak`, never a path."""

    def put(self, key: str, data: bytes, content_type: str | None = None) -> Awaitable[str]:
        """Keep bytes under a key, in the place of what was there; where they lie."""
        ...

    def get(self, key: str) -> Awaitable[bytes | None]:
        """The bytes of a key, verified, or None."""
        ...

    def delete(self, key: str) -> Awaitable[bool]:
        """Remove a key; whether it was there."""
        ...

    def exists(self, key: str) -> Awaitable[bool]:
        """Whether there is such a key."""
        ...

    def list(self, prefix: str = "") -> Awaitable[list[str]]:
        """The keys that begin with a text, sorted."""
        ...

    def open_read(self, key: str) -> AsyncIterator[bytes]:
        """The bytes of a key in pieces, in bounded memory; NotFoundError where there is none."""
        ...

    def open_write(self, key: str, chunks: AsyncIterator[bytes], content_type: str | None = None) -> Awaitable[str]:
        """Keep what arrives in pieces, all of it or nothing; where it lies."""
        ...

    def close(self) -> Awaitable[None]:
        """Close it; may be called twice."""
        ...


@runtime_checkable
class TelemetryStore(Protocol):
    """Events in the order they happened."""

    def append(self, events: Sequence[TelemetryEvent]) -> Awaitable[None]:
        """Keep events, all of them or none."""
        ...

    def query(
        self,
        span_id: str | None = None,
        limit: int = 100,
        *,
        event_type: str | None = None,
        trace_id: str | None = None,
        instance_id: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> Awaitable[list[TelemetryEvent]]:
        """Events that match everything said, newest first."""
        ...

    def count(self) -> Awaitable[int]:
        """How many there are."""
        ...

    def prune(self, older_than_days: float) -> Awaitable[int]:
        """Remove what is older; how many events that were."""
        ...

    def close(self) -> Awaitable[None]:
        """Close it; may be called twice."""
        ...


IRelationalStore, IVectorStore, IBlobStore, ITelemetryStore = RelationalStore, VectorStore, BlobStore, TelemetryStore
