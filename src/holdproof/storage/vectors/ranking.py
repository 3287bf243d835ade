"""The distances of results: one minus the cosine, computed from the rows in 64 bits."""

import json
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from holdproof.model.storage import SearchResult
from holdproof.storage.vectors.vector_rows import VectorRow

_DIGITS = 12
"""Rounding: the same vectors must have the same distance, in whatever order a CPU adds."""


def rank(rows: list[VectorRow], unit: NDArray[np.float64], k: int) -> list[SearchResult]:
    """Sort rows by distance, equals by id; return the first k."""
    if not rows:
        return []
    vectors = np.frombuffer(b"".join(row.vector for row in rows), "<f4").reshape(len(rows), -1).astype(np.float64)
    cosines = np.einsum("ij,j->i", vectors, unit) / np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    distances: Iterable[float] = np.clip(np.round(1 - cosines, _DIGITS), 0, 2).tolist()
    nearest = sorted(zip(distances, rows, strict=True), key=lambda pair: (pair[0], pair[1].id))[:k]
    return [SearchResult(row.id, distance, json.loads(row.metadata)) for distance, row in nearest]
