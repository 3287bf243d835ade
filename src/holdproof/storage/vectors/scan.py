"""Which rows of a matrix can be among the nearest: intervals in, row numbers out.

Exact: every row whose best case is no worse than the k-th best worst case. So none of the k nearest is ever left out.
Quantised: the thousand rows whose signs differ least are compared exactly. If the nearest are in the first quarter of
them, hardly any are beyond; else signs say little about these vectors, and all rows are scanned.
"""

import numpy as np
from numpy.typing import NDArray

from holdproof.storage.vectors.codecs import Codec, Floats, Rows
from holdproof.storage.vectors.matrix import View
from holdproof.storage.vectors.signs import Counts, SignIndex
from holdproof.storage.vectors.signs import most as signs_differ_at_most

_BLOCK = 32
_SHORTLIST = 1000
_PER_RESULT = 20

Allowed = NDArray[np.bool_] | None


def exact(view: View, codec: Codec, unit: Floats, k: int, allowed: Allowed) -> Rows:
    """Rows that certainly include the k nearest."""
    near, off = codec.scan(view.arrays, unit)
    _forbid(near, view, allowed)
    return closer(view, codec, unit, k, _candidates(near, off, k))


def quantised(view: View, codec: Codec, unit: Floats, k: int, allowed: Allowed, *, signs: SignIndex) -> Rows:
    """Rows that most probably include the k nearest."""
    differing = signs.differing(view, unit)
    most = signs_differ_at_most(len(unit))
    # Rows that must not be found get a number that no row can have.
    differing[view.dead] = most + 1
    if allowed is not None:
        differing[~allowed] = most + 1
    upto = np.bincount(differing, minlength=most + 2)[: most + 1].cumsum()
    shortlist = min(max(_SHORTLIST, k * _PER_RESULT), upto[-1])
    rows = np.flatnonzero(differing <= np.searchsorted(upto, shortlist))
    if not len(rows):
        return rows
    near, off = codec.scan({name: view.arrays[name][rows] for name in codec.layout(len(unit))}, unit)
    if shortlist < upto[-1] and _deep(near, differing[rows], k) > np.searchsorted(upto, shortlist // 4):
        return exact(view, codec, unit, k, allowed)
    return closer(view, codec, unit, k, rows[_candidates(near, off, k)])


def _deep(near: Floats, differing: Counts, k: int) -> int:
    """The largest number of differing signs among the k nearest."""
    nearest = np.argpartition(near, len(near) - k)[len(near) - k :] if len(near) > k else slice(None)
    return int(differing[nearest].max(initial=0))


def closer(view: View, codec: Codec, unit: Floats, k: int, rows: Rows) -> Rows:
    """Of these rows, those that can be among the k nearest of them."""
    near, off = codec.scan_rows(view.arrays, unit, rows)
    return rows[_candidates(near, off, k)]


def _forbid(near: Floats, view: View, allowed: Allowed) -> None:
    near[view.dead] = -np.inf
    if allowed is not None:
        near[~allowed] = -np.inf


def _candidates(near: Floats, off: Floats | float, k: int) -> Rows:
    worst = near - off
    bar = max(_at_least(worst, k), -3.0)  # below any cosine, above what is forbidden
    return np.flatnonzero(near + off >= bar)


def _at_least(values: Floats, k: int) -> float:
    """A number that at least k values reach, close to the largest such; minus infinity if there are fewer values."""
    blocks = len(values) // _BLOCK
    if blocks >= 4 * k:  # the best of each block: the k-th of those is reached by k values at least
        values = values[: blocks * _BLOCK].reshape(blocks, _BLOCK).max(axis=1)
    return float(np.partition(values, len(values) - k)[len(values) - k]) if len(values) > k else -np.inf
