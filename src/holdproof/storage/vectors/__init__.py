"""The vector store: rows in the membrane database are the truth, search is a scan over a matrix that follows them.

vectors = await face.run(open_vectors(face, dimensions=384))
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

F = TypeVar("F", AsyncExecutor, SyncExecutor)


def open_vectors(face: F, kind: str = "numpy", **options: Any) -> "Work[Vectors[F]]":
    """Open the vectors of a membrane database, on the face it was opened with; see `opening.opening` for options."""
    try:
        from holdproof.storage.vectors import open_vectors as vector_opening  # noqa: PLC0415 (an optional extra)
        from holdproof.storage.vectors import store  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("vectors need numpy: pip install 'holdproof[vectors]'") from error
    opened = yield from vector_opening.opening(kind, **options)
    return store.Vectors(face, opened)
