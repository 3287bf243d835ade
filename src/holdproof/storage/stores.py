"""The four stores as protocols; each also has the seed's name with an `I`."""

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

from holdproof.model.page import Page
from holdproof.model.storage import SearchResult, TelemetryEvent

# Structural types: any object with these methods is a store, nothing has to be inherited.
Params = Mapping[str, Any]
Record = dict[str, Any]


@runtime_checkable
class RelationalStore(Protocol):
    """Application tables, in SQL with `:name` parameters."""

    def execute(self, query: str, params: Params | None = None) -> Awaitable[int]:
        """Run a statement, or a script of several; return how many rows it changed."""
        ...

    def executemany(self, query: str, rows: Sequence[Params]) -> Awaitable[int]:
        """Run one statement for each set of parameters; return how many rows that changed."""
        ...

    def fetch_all(self, query: str, params: Params | None = None) -> Awaitable[list[Record]]:
        """Return every row of a query, by column name."""
        ...

    def fetch_one(self, query: str, params: Params | None = None) -> Awaitable[Record | None]:
        """Return the first row of a query, or None."""
        ...

    def transaction(self) -> "AbstractAsyncContextManager[RelationalStore]":
        """Run several calls as one transaction: committed at the end, rolled back by an exception."""
        ...

    def close(self) -> Awaitable[None]:
        """Close it; may be called twice."""
        ...


@runtime_checkable
class VectorStore(Protocol):
    """Vectors by id, searched by similarity."""

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        ...

    def add(self, id: str, vector: Sequence[float], metadata: Mapping[str, Any] | None = None) -> Awaitable[None]:
        """Store a vector under an id, replacing the one that was there; the next search sees it."""
        ...

    def upsert(self, id: str, vector: Sequence[float], metadata: Mapping[str, Any] | None = None) -> Awaitable[None]:
        """The same as `add`."""
        ...

    def search(
        self,
        query: Sequence[float],
        k: int = 10,
        *,
        limit: int | None = None,
        filter: Mapping[str, Any] | None = None,
    ) -> Awaitable[list[SearchResult]]:
        """Return the nearest whose metadata match the filter, nearest first; `limit` is another name for `k`."""
        ...

    def delete(self, id: str) -> Awaitable[bool]:
        """Delete a vector; return whether it existed."""
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
        """Store bytes under a key, replacing what was there; return where they are."""
        ...

    def get(self, key: str) -> Awaitable[bytes | None]:
        """Return the verified bytes of a key, or None."""
        ...

    def delete(self, key: str) -> Awaitable[bool]:
        """Delete a key; return whether it existed."""
        ...

    def exists(self, key: str) -> Awaitable[bool]:
        """Whether there is such a key."""
        ...

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> Awaitable[Page[str]]:
        """List the keys that begin with a text, in code point order, a page at a time."""
        ...

    def open_read(self, key: str) -> AsyncIterator[bytes]:
        """Stream the bytes of a key in bounded memory; raises NotFoundError where there is none."""
        ...

    def open_write(self, key: str, chunks: AsyncIterator[bytes], content_type: str | None = None) -> Awaitable[str]:
        """Store a stream, all of it or nothing; return where it is."""
        ...

    def close(self) -> Awaitable[None]:
        """Close it; may be called twice."""
        ...


@runtime_checkable
class TelemetryStore(Protocol):
    """Events in the order they happened."""

    def append(self, events: Sequence[TelemetryEvent]) -> Awaitable[None]:
        """Store events, all of them or none."""
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
        """Return events that match all arguments, newest first."""
        ...

    def count(self) -> Awaitable[int]:
        """How many there are."""
        ...

    def prune(self, older_than_days: float) -> Awaitable[int]:
        """Remove older events; return how many."""
        ...

    def close(self) -> Awaitable[None]:
        """Close it; may be called twice."""
        ...


IRelationalStore = RelationalStore
IVectorStore = VectorStore
IBlobStore = BlobStore
ITelemetryStore = TelemetryStore
