"""How many signs differ between a query and every row: one pass over a thirty-second of the numbers.

Where numkong is installed the rows are packed for it, which is four times as fast; rows that came since are compared
one by one, and packed with the others once they are a quarter.
"""

import threading
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.storage.vectors.codecs import Floats, Signs
from holdfast.storage.vectors.matrix import View

Counts = NDArray[np.unsignedinteger[Any]]


class SignIndex:
    """Counts differing signs; remembers the packed rows of the epoch."""

    def __init__(self) -> None:
        self._signs, self._fast = Signs(), find_spec("numkong") is not None
        self._lock = threading.Lock()
        self._packed: tuple[int, int, Any] = (-1, 0, None)

    def differing(self, view: View, unit: Floats) -> Counts:
        """For every row of the view, how many signs differ."""
        mine, rows = self._signs.encode(unit[None])[Signs.name], view.kept[Signs.name]
        if not self._fast or not view.count:
            return _plain(rows, mine)
        count, packed = self._pack(view)
        from numkong import hammings_packed  # noqa: PLC0415 (an optional extra)

        most = np.asarray(hammings_packed(mine.view(np.uint8), packed))[0]
        return most if count == view.count else np.concatenate([most, _plain(rows[count:], mine).astype(most.dtype)])

    def _pack(self, view: View) -> tuple[int, Any]:
        epoch, count, packed = self._packed
        if epoch == view.epoch and count * 5 >= view.count * 4 and count <= view.count:
            return count, packed
        from numkong import hammings_pack  # noqa: PLC0415 (an optional extra)

        with self._lock:
            packed = hammings_pack(view.kept[Signs.name].view(np.uint8), dtype="uint1")
            self._packed = view.epoch, view.count, packed
        return view.count, packed


def _plain(rows: NDArray[Any], mine: NDArray[Any]) -> Counts:
    return np.bitwise_count(rows ^ mine).sum(axis=1, dtype=np.uint32)
