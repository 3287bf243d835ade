"""The nearest of many vectors, seen a page at a time; needs numpy."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdproof.db import Row
from holdproof.errors import InvalidInputError
from holdproof.storage.vectors import ranking, vector_validation
from holdproof.storage.vectors.vector_rows import VectorRow


class Best:
    """What is looked for: the nearest to a direction."""

    def __init__(self, unit: NDArray[np.float64], limit: int) -> None:
        self.unit, self.limit, self.dimensions = unit, limit, len(unit)

    def of(self, pages: Iterable[Sequence[Row]]) -> list[tuple[str, float]]:
        """Keys and distances, nearest first, equals by key; what is near is compared once more in 64 bits."""
        found: list[VectorRow] = []
        for page in pages:
            known = {row.id: row for row in (*found, *(VectorRow(key, 0, vector, "{}") for key, vector in page))}
            found = [known[each.id] for each in ranking.rank([*known.values()], self.unit, self.limit)]
        return [(each.id, each.distance) for each in ranking.rank(found, self.unit, self.limit)]


def best(asked: Any, limit: int) -> Best | None:
    """A search for the nearest to a vector; None for one of zeros, which has no direction."""
    try:
        numbers = np.asarray(asked)
    except ValueError as error:
        raise InvalidInputError(f"a vector is a sequence of numbers: {error}") from error
    if numbers.ndim != 1 or not 1 <= len(numbers) <= vector_validation.LONGEST:
        raise InvalidInputError(f"a vector is a sequence of 1 to {vector_validation.LONGEST:,} numbers")
    unit = vector_validation.query(numbers, len(numbers))
    return None if unit is None else Best(unit, limit)
