"""Finders: scans of the matrix, confirmed by the database rows.

A search scans an up-to-date matrix for the rows that can be among the nearest and reads just those from the database,
which its results come from. A row that changed in between has another stamp; then the search is repeated. If rows
change faster than that, the results are from their latest versions.
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
from holdproof.storage.vectors.matrix import View
from holdproof.storage.vectors.replica import MatrixReplica
from holdproof.storage.vectors.signs import SignIndex
from holdproof.storage.vectors.vector_rows import VectorRow
from holdproof.storage.vectors.vector_validation import matches

_INLINE_NUMBERS = 1 << 20
"""Up to here a scan is shorter than the way to another thread."""
_TRIES = 8

Unit = NDArray[np.float64]


class Finder(Protocol):
    """A way to find the nearest vectors."""

    def search(self, unit: Unit, k: int, conditions: dict[str, str]) -> Work[list[SearchResult]]:
        """Return the k nearest whose metadata meet the conditions, nearest first, equals by id."""
        ...

    def index(self) -> Work[int]:
        """Build or update the index, if this finder has one; return how many vectors it holds."""
        ...

    def close(self) -> None:
        """Release memory and files; may be called twice."""
        ...


class ScanFinder:
    """Scans every row: exactly, or quantised."""

    def __init__(self, replica: MatrixReplica) -> None:
        self.replica = replica
        self._facets = Facets()
        self._signs = SignIndex() if replica.matrix.signs else None

    def search(self, unit: Unit, k: int, conditions: dict[str, str]) -> Work[list[SearchResult]]:
        """See Finder."""
        for _ in range(_TRIES):
            rows, changed = yield from self._candidates(unit, k, conditions)
            if not changed:
                return ranking.rank(rows, unit, k)
        # They change faster than we scan: these are the latest versions, of which some may not match any more.
        return ranking.rank([row for row in rows if matches(row.metadata, conditions)], unit, k)

    def _candidates(self, unit: Unit, k: int, conditions: dict[str, str]) -> Work[tuple[list[VectorRow], bool]]:
        """Read the rows that can be nearest; also return whether any changed after the scan."""
        view = yield from self.replica.current()
        direction = unit.astype(np.float32)
        if not view.alive:
            return [], False
        allowed = yield from self._facets.allowed(view, conditions)
        near = yield from _run_scan(view, lambda: self.scan(view, direction, k, allowed))
        ids = [view.ids[row] for row in near.tolist()]
        # The stamps tell later whether the database rows are still those that were scanned.
        stamps = dict(zip(ids, view.arrays["stamps"][near].tolist(), strict=True))
        rows = yield from ask(Read(lambda tx: vector_rows.fetch(tx, ids)))
        return rows, {row.id: row.stamp for row in rows} != stamps

    def scan(self, view: View, direction: Floats, k: int, allowed: scan.Allowed) -> Rows:
        """The numbers of the rows that can be among the nearest."""
        codec = self.replica.matrix.codec
        if self._signs is not None:
            return scan.quantised(view, codec, direction, k, allowed, signs=self._signs)
        return scan.exact(view, codec, direction, k, allowed)

    def index(self) -> Work[int]:
        """See Finder: a scan needs none."""
        yield from ()
        return 0

    def close(self) -> None:
        """See Finder."""
        self.replica.close()


def _run_scan(view: View, run: Callable[[], Rows]) -> Work[Rows]:
    """Run a long scan in another thread, so that an event loop goes on; a short one in this."""
    if view.count * (view.arrays["values"].shape[1]) <= _INLINE_NUMBERS:
        return run()
    return (yield from ask(Call(run)))
