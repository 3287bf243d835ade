"""How vectors are found: scans of the matrix, confirmed by the rows.

A search looks at a matrix that is up to date, learns which rows can be among the nearest, and reads just those: what it
answers is what the rows say. What changed in between has another stamp; then it is looked for again. Where rows change
faster than that, it answers with what they have become.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from holdproof.db import Call, Read, Work, ask
from holdproof.model.storage import SearchResult
from holdproof.storage.vectors import ranking, scan, vector_rows
from holdproof.storage.vectors.codecs import Floats, Rows
from holdproof.storage.vectors.facets import Facets
from holdproof.storage.vectors.following import Following
from holdproof.storage.vectors.matrix import View
from holdproof.storage.vectors.signs import SignIndex
from holdproof.storage.vectors.vector_rows import Kept
from holdproof.storage.vectors.vector_validation import matches

_HERE = 1 << 20
_TRIES = 8

Unit = NDArray[np.float64]


class Finder(Protocol):
    """A way to find the nearest vectors."""

    def search(self, unit: Unit, k: int, wanted: dict[str, str]) -> Work[list[SearchResult]]:
        """The k nearest whose metadata have what is wanted, nearest first, equals by id."""
        ...

    def index(self) -> Work[int]:
        """Build what makes it faster, where there is such a thing; how many vectors that holds."""
        ...

    def close(self) -> None:
        """Give back what it holds; may be called twice."""
        ...


class ScanFinder:
    """Finds by scanning every row: for certain, or quantised."""

    def __init__(self, following: Following) -> None:
        self.following, self._facets = following, Facets()
        self._signs = SignIndex() if following.matrix.signs else None

    def search(self, unit: Unit, k: int, wanted: dict[str, str]) -> Work[list[SearchResult]]:
        """See Finder."""
        for left in reversed(range(_TRIES)):
            found, changed = yield from self._look(unit, k, wanted)
            if not changed or not left:
                break
        return ranking.rank([row for row in found if not changed or matches(row.metadata, wanted)], unit, k)

    def _look(self, unit: Unit, k: int, wanted: dict[str, str]) -> Work[tuple[list[Kept], bool]]:
        """The rows that can be nearest as they are now, and whether any changed while it was looked for them."""
        view, direction = (yield from self.following.current()), unit.astype(np.float32)
        if not view.alive:
            return [], False
        allowed = yield from self._facets.allowed(view, wanted)
        near = yield from _away(view, lambda: self.scan(view, direction, k, allowed))
        ids = [view.ids[row] for row in near.tolist()]
        stamps = dict(zip(ids, view.kept["stamps"][near].tolist(), strict=True))
        found = yield from ask(Read(lambda tx: vector_rows.fetch(tx, ids)))
        return found, {row.id: row.stamp for row in found} != stamps

    def scan(self, view: View, direction: Floats, k: int, allowed: scan.Allowed) -> Rows:
        """The rows that can be among the nearest."""
        codec = self.following.matrix.codec
        if self._signs is not None:
            return scan.quantised(view, codec, direction, k, allowed, signs=self._signs)
        return scan.exact(view, codec, direction, k, allowed)

    def index(self) -> Work[int]:
        """See Finder: a scan needs none."""
        yield from ()
        return 0

    def close(self) -> None:
        """See Finder."""
        self.following.close()


def _away(view: View, look: Callable[[], Rows]) -> Work[Rows]:
    """A long look is taken beside the event loop, a short one where the caller stands."""
    if view.count * (view.kept["values"].shape[1]) <= _HERE:
        return look()
    return (yield from ask(Call(look)))
