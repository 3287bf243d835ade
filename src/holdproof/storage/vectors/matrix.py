"""The matrix in memory: the direction of every vector, with its id and its stamp.

Rules:
- Rows are only ever added; a vector that changed gets a new row, and its old one is dead. So a scan
  of a `View` sees the state when it was taken, without a lock, while others add.
- It grows in place until its capacity is used up, then by half.
- A dead row has the stamp 0: a scan that still sees it notices that it does not match the database row any more.
- Once a quarter of the rows are dead the matrix is compacted: a new `epoch`, in which rows have other numbers.
- It is only a copy: `mark` says up to which change it follows the rows, `total` whether it matches them.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdproof.storage.vectors.codecs import Arrays, Codec, Floats, Rows, Signs
from holdproof.storage.vectors.vector_rows import VectorChange

_ROOM = 1024
_MANY_DEAD = 4


@dataclass(frozen=True, slots=True)
class View:
    """The matrix at one moment."""

    epoch: int
    count: int
    arrays: Arrays
    ids: Sequence[str]
    dead: Rows

    @property
    def alive(self) -> int:
        """How many vectors there are."""
        return self.count - len(self.dead)


class Matrix:
    """Directions, row by row."""

    def __init__(self, codec: Codec, dimensions: int, *, signs: bool = False) -> None:
        self.codec = codec
        self.dimensions = dimensions
        self.signs = Signs() if signs else None
        self.lock = threading.RLock()
        self.epoch = 0
        self.key = ""
        self.reset()

    def reset(self) -> None:
        """Remove everything."""
        self.mark = 0
        self.total = 0
        self.proven = True
        self._begin({name: self._empty(kind, width, 0) for name, (kind, width) in self.layout().items()}, [])

    def _begin(self, arrays: dict[str, NDArray[Any]], ids: list[str]) -> None:
        self.epoch += 1
        self._arrays = arrays
        self._ids = ids
        self._count = len(ids)
        # Row numbers by id are only needed to apply changes; a matrix from a sidecar is searched without them.
        self._rows: dict[str, int] | None = None
        self._dead: Rows = np.empty(0, np.intp)

    def layout(self) -> dict[str, tuple[str, int]]:
        """The arrays of the matrix: type and width by name."""
        signs = self.signs.layout(self.dimensions) if self.signs else {}
        return {"stamps": ("<u4", 0), **self.codec.layout(self.dimensions), **signs}

    @property
    def name(self) -> str:
        """The name of its encoding."""
        return f"{self.codec.name}+signs" if self.signs else self.codec.name

    @property
    def alive(self) -> int:
        """How many vectors there are."""
        return self._count - len(self._dead)

    def view(self) -> View:
        """The present state."""
        with self.lock:
            arrays = {name: array[: self._count] for name, array in self._arrays.items()}
            return View(self.epoch, self._count, arrays, self._ids, self._dead)

    def adopt(self, arrays: dict[str, NDArray[Any]], ids: list[str], *, mark: int, key: str) -> None:
        """Use arrays with spare capacity, whose first rows are those of the ids; not yet proven to match the rows."""
        with self.lock:
            self._begin(arrays, ids)
            stamps = arrays["stamps"][: len(ids)]
            self.mark = mark
            self.key = key
            self.proven = False
            self.total = int(stamps.sum(dtype=np.uint64))
            self._dead = np.flatnonzero(stamps == 0)

    def apply(self, changes: Sequence[VectorChange]) -> None:
        """Apply changes in their order; of several for one id the last counts."""
        last = {change.id: change for change in changes}
        with self.lock:
            if self._rows is None:
                # Built only now: a matrix from a sidecar is searched long before its first change.
                stamps = self._arrays["stamps"][: self._count].tolist()
                self._rows = {id: row for row, (id, stamp) in enumerate(zip(self._ids, stamps, strict=True)) if stamp}
            rows = self._rows
            existing = {id: rows[id] for id in last if id in rows}
            # The same stamp means the same vector: it was read before, and is left where it is.
            same = {id for id, row in existing.items() if self._arrays["stamps"][row] == last[id].stamp}
            self._mark_dead([row for id, row in existing.items() if id not in same])
            for id in existing.keys() - same:
                del rows[id]
            self._append([change for id, change in last.items() if change.stamp and id not in same])
            if len(self._dead) * _MANY_DEAD > self._count:
                self._compact()

    def _mark_dead(self, rows: list[int]) -> None:
        if rows:
            self.total -= int(self._arrays["stamps"][rows].sum(dtype=np.uint64))
            # In place: views that are in use see it, and leave the row out when they compare stamps.
            self._arrays["stamps"][rows] = 0
            self._dead = np.concatenate([self._dead, np.array(rows, np.intp)])

    def _append(self, new: list[VectorChange]) -> None:
        if not new:
            return
        start = self._count
        end = start + len(new)
        self._grow(end)
        units = unit_rows(b"".join(each.vector for each in new if each.vector is not None), self.dimensions)
        stamps = np.array([each.stamp for each in new], np.uint32)
        encoded = {"stamps": stamps, **self.codec.encode(units), **(self.signs.encode(units) if self.signs else {})}
        for name, array in encoded.items():
            self._arrays[name][start:end] = array
        assert self._rows is not None
        self._rows.update((each.id, start + at) for at, each in enumerate(new))
        self._ids.extend(each.id for each in new)
        self.total += int(stamps.sum(dtype=np.uint64))
        # Last: a view that is taken meanwhile ends before the new rows.
        self._count = end

    def _grow(self, rows: int) -> None:
        capacity = len(self._arrays["stamps"])
        if rows <= capacity:
            return
        room = max(rows, capacity + capacity // 2, _ROOM)
        for name, (kind, width) in self.layout().items():
            larger = self._empty(kind, width, room)
            larger[: self._count] = self._arrays[name][: self._count]
            self._arrays = {**self._arrays, name: larger}

    def _compact(self) -> None:
        """Remove dead rows."""
        alive = np.setdiff1d(np.arange(self._count), self._dead, assume_unique=True)
        self._begin({name: array[alive] for name, array in self._arrays.items()}, [self._ids[row] for row in alive])

    @staticmethod
    def _empty(kind: str, width: int, rows: int) -> NDArray[Any]:
        return np.empty((rows, width) if width else rows, kind)


def unit_rows(data: bytes, dimensions: int) -> Floats:
    """Decode stored vectors and scale each to length one."""
    rows = np.frombuffer(data, "<f4").reshape(-1, dimensions).astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)
