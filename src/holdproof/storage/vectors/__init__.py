"""The vector store: rows in the database are authoritative, a search scans a matrix in memory that follows them.

vectors = await executor.run(open_vectors(executor, dimensions=384))
await vectors.add("note-1", embedding, {"kind": "note"})
await vectors.search(question, 5, filter={"kind": "note"})
"""

from typing import TYPE_CHECKING, Any, TypeVar

from holdproof.db import Work
from holdproof.errors import MissingExtraError
from holdproof.executors import AsyncExecutor, SyncExecutor

if TYPE_CHECKING:
    from holdproof.storage.vectors.store import Vectors

__all__ = ["open_vectors"]

E = TypeVar("E", AsyncExecutor, SyncExecutor)


def open_vectors(executor: E, kind: str = "numpy", **options: Any) -> "Work[Vectors[E]]":
    """Open the vectors of a database, for the executor it is run on; see `store.open_kind` for options."""
    try:
        from holdproof.storage.vectors import store  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("vectors need numpy: pip install 'holdproof[vectors]'") from error
    vectors = yield from store.open_kind(kind, **options)
    return store.Vectors(executor, vectors)
