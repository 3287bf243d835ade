"""How near notes are to a vector: every vector is compared, in 64 bits; needs numpy."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from holdproof.db import Row
from holdproof.errors import InvalidInputError
from holdproof.storage.vectors import vector_validation


def packed(vector: Any) -> bytes | None:
    """A vector as it is kept, None for one of zeros, which has no direction and is not found."""
    numbers = _numbers(vector)
    return vector_validation.vector(numbers, len(numbers)) if numbers.any() else None


def _numbers(vector: Any) -> Any:
    try:
        numbers = np.asarray(vector)
    except ValueError as error:
        raise InvalidInputError(f"a vector is a sequence of numbers: {error}", field="vector") from error
    if numbers.ndim != 1 or not 1 <= len(numbers) <= vector_validation.LONGEST or numbers.dtype.kind not in "iuf":
        raise InvalidInputError(f"a vector is a sequence of 1 to {vector_validation.LONGEST:,} numbers", field="vector")
    return numbers


def scores(pages: Iterable[Sequence[Row]], vector: Any) -> list[tuple[int, float]]:
    """Notes by the cosine of their nearest vector, the nearest first; pages hold numbers of notes and vectors."""
    asked = _numbers(vector)
    unit = vector_validation.query(asked, len(asked))
    best: dict[int, float] = {}
    if unit is None:
        return []
    for page in pages:
        vectors = np.frombuffer(b"".join(row[1] for row in page), "<f4").reshape(len(page), -1).astype(np.float64)
        cosines = (vectors @ unit) / np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        for (note, _), score in zip(page, np.clip(cosines, -1, 1).tolist(), strict=True):
            if score > best.get(note, -2.0):
                best[note] = score
    return sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))
