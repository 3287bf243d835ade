"""Exact comparison of vectors by cosine: how they are packed, and how near they lie. Needs numpy.

Every search that must be exact goes through here: notes and objects of memory compare all of their vectors, and stores
of vectors rank the candidates that an approximate index has proposed.

Rules:
- Vectors are stored as little-endian float32 and compared in float64.
- A vector of zeros has no direction: it is not stored, and as a query it finds nothing.
- A score does not depend on which other vectors share its page: `einsum` sums each row by itself, where a matrix
  product may pick another order of summation for another shape.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from holdproof.errors import InvalidInputError

LONGEST: Final = 16_384
FLOAT32: Final = np.dtype("<f4")
_DIGITS: Final = 12
"""Distances are rounded to so many digits: beyond them is only the noise of the summation."""

K = TypeVar("K", int, str)


def as_numbers(vector: Any) -> NDArray[Any]:
    """Return a vector as an array; InvalidInputError where it is no sequence of 1 to 16,384 numbers."""
    try:
        numbers = np.asarray(vector)
    except ValueError as error:
        raise InvalidInputError(f"a vector is a sequence of numbers: {error}", field="vector") from error
    if numbers.ndim != 1 or not 1 <= len(numbers) <= LONGEST or numbers.dtype.kind not in "iuf":
        raise InvalidInputError(f"a vector is a sequence of 1 to {LONGEST:,} numbers", field="vector")
    return numbers


def pack(numbers: NDArray[Any]) -> bytes:
    """Return a vector as it is stored; InvalidInputError where 32 bits do not hold it, or nothing but zeros is left."""
    if numbers.dtype == FLOAT32 and 0 < np.dot(numbers, numbers) < np.inf:  # the usual case, in one pass
        return numbers.tobytes()
    if numbers.dtype != FLOAT32:
        # Overflow becomes infinity and underflow zero; both are refused below with a message that names the field.
        with np.errstate(over="ignore", under="ignore"):
            numbers = numbers.astype(FLOAT32)
    if not np.isfinite(numbers).all():
        raise InvalidInputError("a vector holds finite numbers that fit 32 bits", field="vector")
    if not numbers.any():
        raise InvalidInputError("a vector of zeros has no direction", field="vector")
    return numbers.tobytes()


def unpack(data: bytes) -> list[float]:
    """Return the numbers of a stored vector."""
    numbers: list[float] = np.frombuffer(data, FLOAT32).tolist()
    return numbers


def direction(numbers: NDArray[Any]) -> NDArray[np.float64] | None:
    """Return the unit vector of a query; None for one of zeros. InvalidInputError where a number is not finite."""
    unit = numbers.astype(np.float64)
    largest = np.abs(unit).max()
    if not np.isfinite(largest):
        raise InvalidInputError("a query holds finite numbers only", field="query")
    if largest == 0:
        return None
    unit /= largest  # or the squares of very large and very small numbers would be lost
    unit /= np.linalg.norm(unit)
    return unit


def cosines(vectors: Sequence[bytes], unit: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cosine of each stored vector with a unit vector of the same length."""
    matrix = np.frombuffer(b"".join(vectors), FLOAT32).reshape(len(vectors), -1).astype(np.float64)
    scores: NDArray[np.float64] = np.einsum("ij,j->i", matrix, unit) / np.sqrt(np.einsum("ij,ij->i", matrix, matrix))
    return scores


def distances(vectors: Sequence[bytes], unit: NDArray[np.float64]) -> list[float]:
    """Return one minus the cosine for each stored vector, from 0 to 2."""
    if not vectors:
        return []
    rounded: list[float] = np.clip(np.round(1 - cosines(vectors, unit), _DIGITS), 0, 2).tolist()
    return rounded


def nearest(pages: Iterable[Sequence[tuple[K, bytes]]], unit: NDArray[np.float64], limit: int) -> list[tuple[K, float]]:
    """Return keys and distances of the nearest vectors, nearest first, equals by key.

    Pages hold keys and stored vectors; memory is bounded by one page and the result.
    """
    best: list[tuple[float, K]] = []
    for page in pages:
        measured = distances([vector for _, vector in page], unit)
        best += [(distance, key) for distance, (key, _) in zip(measured, page, strict=True)]
        best = sorted(best)[:limit]
    return [(key, distance) for distance, key in best]


def best_scores(pages: Iterable[Sequence[tuple[K, bytes]]], unit: NDArray[np.float64]) -> list[tuple[K, float]]:
    """Return each key with the highest cosine of its vectors, the highest first, equals by key.

    A key may have several vectors, one for each field that was embedded.
    """
    best: dict[K, float] = {}
    for page in pages:
        scores = np.clip(cosines([vector for _, vector in page], unit), -1, 1).tolist()
        for (key, _), score in zip(page, scores, strict=True):
            if score > best.get(key, -2.0):
                best[key] = score
    return sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))
