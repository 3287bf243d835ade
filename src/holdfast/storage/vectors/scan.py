"""Which rows of a matrix can be among the nearest: intervals in, row numbers out.

Exact: every row whose best case is no worse than the k-th best worst case. So none of the k nearest is ever left out.
Quantised: the rows whose signs differ least go on, a hundred a result; only they are looked at more closely.
"""

import numpy as np
from numpy.typing import NDArray

from holdfast.storage.vectors.codecs import Codec, Floats, Rows
from holdfast.storage.vectors.matrix import View
from holdfast.storage.vectors.signs import SignIndex

_BLOCK = 32
_SHORTLIST, _SHARE = 1000, 100

Allowed = NDArray[np.bool_] | None


def exact(view: View, codec: Codec, unit: Floats, k: int, allowed: Allowed) -> Rows:
    """Rows among which the k nearest are for certain."""
    near, off = codec.scan(view.kept, unit)
    _forbid(near, view, allowed)
    return closer(view, codec, unit, k, _candidates(near, off, k))


def quantised(view: View, codec: Codec, signs: SignIndex, unit: Floats, k: int, allowed: Allowed) -> Rows:
    """Rows among which the k nearest are most probably."""
    differing = signs.differing(view, unit)
    if allowed is not None:
        differing[~allowed] = 2 * len(unit)
    differing[view.dead] = 2 * len(unit)
    few = np.bincount(differing.astype(np.intp), minlength=len(unit) + 1)[: len(unit) + 1].cumsum()
    wanted = min(max(_SHORTLIST, k * _SHORTLIST // 10, view.count // _SHARE), few[-1])
    return closer(view, codec, unit, k, np.flatnonzero(differing <= np.searchsorted(few, wanted)))


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
