"""Distances as they are answered: from the rows, in 64 bits, one minus the cosine."""

import json
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from holdproof.model.storage import SearchResult
from holdproof.storage.vectors.vector_rows import Kept

_DIGITS = 12


def rank(found: list[Kept], unit: NDArray[np.float64], k: int) -> list[SearchResult]:
    """The nearest k rows, nearest first, equals by id."""
    if not found:
        return []
    vectors = np.frombuffer(b"".join(row.vector for row in found), "<f4").reshape(len(found), -1).astype(np.float64)
    cosines = np.einsum("ij,j->i", vectors, unit) / np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    distances: Iterable[float] = np.clip(np.round(1 - cosines, _DIGITS), 0, 2).tolist()
    nearest = sorted(zip(distances, found, strict=True), key=lambda pair: (pair[0], pair[1].id))[:k]
    return [SearchResult(row.id, distance, json.loads(row.metadata)) for distance, row in nearest]
