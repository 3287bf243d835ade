"""Vectors without any order, stores full of them, and plain arithmetic to compare with."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdproof.db import open_database
from holdproof.executors import SyncExecutor
from holdproof.storage.vectors import open_vectors
from holdproof.storage.vectors.store import Vectors

SIZE = 8


@contextmanager
def opened(
    target: object, cache: Path | None = None, kind: str = "numpy", **options: Any
) -> Iterator[Vectors[SyncExecutor]]:
    """A store on the sync face, closed at the end with its database."""
    with closing(open_database(str(target), space="membrane")) as database:
        face = SyncExecutor(database)
        store = face.run(open_vectors(face, kind, **{"dimensions": SIZE, "cache": cache, **options}))
        yield store
        store.close()


def cloud(count: int, seed: int = 1, size: int = SIZE) -> NDArray[np.float32]:
    """Directions without any order."""
    return np.random.default_rng(seed).standard_normal((count, size), dtype=np.float32)


def fill(store: Vectors[SyncExecutor], vectors: NDArray[np.float32], first: int = 0) -> None:
    store.add_many((f"v{first + at:05}", vector, {"at": first + at}) for at, vector in enumerate(vectors))


def nearest(vectors: NDArray[np.float32], query: NDArray[np.float32], k: int = 10) -> list[str]:
    """The k nearest by plain arithmetic."""
    return [f"v{row:05}" for row in np.argsort(-cosines(vectors, query), kind="stable")[:k]]


def ids(store: Vectors[SyncExecutor], query: Any, k: int = 10, **options: Any) -> list[str]:
    return [found.id for found in store.search(query, k, **options)]


def cosines(vectors: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float64]:
    rows, asked = vectors.astype(np.float64), query.astype(np.float64)
    return np.asarray(rows @ asked / np.linalg.norm(rows, axis=1) / np.linalg.norm(asked))
