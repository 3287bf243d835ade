"""A rough order of all rows in one pass over a thirty-second of the data: signs of the rows, the query in two bits.

A row is encoded as the signs of its numbers; a query is split into planes of signs, of which the second counts twice.
The number of differing signs, plane by plane, orders the rows nearly as their cosines do. If numkong is installed the
rows are packed for it, which is four times as fast; later rows are compared one by one, and packed with the others once
they are a fifth.
"""

import threading
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from holdproof.storage.vectors.codecs import Floats, Signs
from holdproof.storage.vectors.matrix import View

PLANES: Final = 2
_LEVELS: Final = 2**PLANES - 1
_REACH: Final = 0.6  # of the largest number of a query: larger ones are clipped to that

Counts = NDArray[np.uint32]


class SignIndex:
    """Counts differing signs; caches the packed rows of the epoch."""

    def __init__(self) -> None:
        self._signs = Signs()
        self._fast = find_spec("numkong") is not None
        self._lock = threading.Lock()
        self._packed: tuple[int, int, Any] = (-1, 0, None)

    def differing(self, view: View, unit: Floats) -> Counts:
        """For every row of the view, how many signs differ; at most `_LEVELS` a number."""
        planes = self._signs.encode(_planes(unit))[Signs.name]
        rows = view.arrays[Signs.name]
        packed, count = self._pack(view) if self._fast else (None, 0)
        total = _plain(rows[count:], planes)
        return total if packed is None else np.concatenate([_weigh(_fast(packed, planes)), total])

    def _pack(self, view: View) -> tuple[Any, int]:
        """The packed rows and how many they are."""
        # Read once: another thread may replace it meanwhile.
        epoch, count, packed = self._packed
        if epoch == view.epoch and view.count * 4 <= count * 5 and count <= view.count:
            return packed, count
        from numkong import hammings_pack  # noqa: PLC0415 (an optional extra)

        with self._lock:
            packed = hammings_pack(view.arrays[Signs.name].view(np.uint8), dtype="uint1")
            self._packed = view.epoch, view.count, packed
        return packed, view.count


def most(dimensions: int) -> int:
    """How many signs can differ at most."""
    return _LEVELS * dimensions


def _planes(unit: Floats) -> Floats:
    """The query in two bits a number, each bit a plane of signs."""
    step = np.abs(unit).max() * _REACH / _LEVELS
    level = np.clip(np.rint((unit / step + _LEVELS) / 2), 0, _LEVELS).astype(np.intp)
    return np.stack([((level >> bit) & 1) - 0.5 for bit in range(PLANES)]).astype(np.float32)


def _fast(packed: Any, planes: NDArray[Any]) -> NDArray[Any]:
    from numkong import hammings_packed  # noqa: PLC0415 (an optional extra)

    return np.asarray(hammings_packed(planes.view(np.uint8), packed))


def _plain(rows: NDArray[Any], planes: NDArray[Any]) -> Counts:
    return _weigh(np.stack([np.bitwise_count(rows ^ plane).sum(axis=1, dtype=np.uint32) for plane in planes]))


def _weigh(differing: NDArray[Any]) -> Counts:
    total: Counts = differing[0].astype(np.uint32)
    for bit in range(1, len(differing)):
        total += differing[bit] << np.uint32(bit)
    return total
