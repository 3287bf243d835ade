"""Which rows of a matrix can be among the nearest: intervals in, row numbers out.

Exact: every row whose best case is no worse than the k-th best worst case. So none of the k nearest is ever left out.
Quantised: the thousand rows whose signs differ least are looked at more closely. If the nearest are among the first
quarter of them, there are hardly any beyond; else signs say little about these vectors, and all rows are scanned.
"""

import numpy as np
from numpy.typing import NDArray

from holdproof.storage.vectors.codecs import Codec, Floats, Rows
from holdproof.storage.vectors.matrix import View
from holdproof.storage.vectors.signs import Counts, SignIndex
from holdproof.storage.vectors.signs import most as signs_differ_at_most

_BLOCK = 32
_SHORTLIST, _FOR_EACH = 1000, 20

Allowed = NDArray[np.bool_] | None


def exact(view: View, codec: Codec, unit: Floats, k: int, allowed: Allowed) -> Rows:
    """Rows among which the k nearest are for certain."""
    near, off = codec.scan(view.kept, unit)
    _forbid(near, view, allowed)
    return closer(view, codec, unit, k, _candidates(near, off, k))


def quantised(view: View, codec: Codec, unit: Floats, k: int, allowed: Allowed, *, signs: SignIndex) -> Rows:
    """Rows among which the k nearest are most probably."""
    differing, most = signs.differing(view, unit), signs_differ_at_most(len(unit))
    differing[view.dead] = most + 1
    if allowed is not None:
        differing[~allowed] = most + 1
    upto = np.bincount(differing, minlength=most + 2)[: most + 1].cumsum()
    wanted = min(max(_SHORTLIST, k * _FOR_EACH), upto[-1])
    rows = np.flatnonzero(differing <= np.searchsorted(upto, wanted))
    if not len(rows):
        return rows
    near, off = codec.scan({name: view.kept[name][rows] for name in codec.layout(len(unit))}, unit)
    if wanted < upto[-1] and _deep(near, differing[rows], k) > np.searchsorted(upto, wanted // 4):
        return exact(view, codec, unit, k, allowed)
    return closer(view, codec, unit, k, rows[_candidates(near, off, k)])


def _deep(near: Floats, differing: Counts, k: int) -> int:
    """The largest number of differing signs among the k nearest."""
    nearest = np.argpartition(near, len(near) - k)[len(near) - k :] if len(near) > k else slice(None)
    return int(differing[nearest].max(initial=0))


def closer(view: View, codec: Codec, unit: Floats, k: int, rows: Rows) -> Rows:
    """Of these rows, those that can be among the k nearest of them."""
    near, off = codec.look(view.kept, unit, rows)
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
    """A number that at least k values reach, close to the largest such; minus infinity where there are not so many."""
    blocks = len(values) // _BLOCK
    if blocks >= 4 * k:  # the best of each block: the k-th of those is reached by k values at least
        values = values[: blocks * _BLOCK].reshape(blocks, _BLOCK).max(axis=1)
    return float(np.partition(values, len(values) - k)[len(values) - k]) if len(values) > k else -np.inf
