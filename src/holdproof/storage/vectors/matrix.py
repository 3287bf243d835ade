"""The matrix in memory: the direction of every vector, beside its id and its stamp.

Rules:
- Rows are only ever added; a vector that changed gets a new row, and its old one is dead. So whoever scans a `View`
  scans what stood there when it was taken, without a lock, while others add.
- It grows in place until its room is used up, then moves to half as much again.
- A dead row has the stamp 0: whoever still looks at it sees that it does not fit the rows any more.
- Once a quarter of the rows are dead the living move together: a new `epoch`, in which rows have other numbers.
- It holds no truth: `mark` says up to which change it follows the rows, `total` whether it fits them.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdproof.storage.vectors.codecs import Arrays, Codec, Floats, Rows, Signs

_ROOM = 1024
_MANY_DEAD = 4

Change = tuple[str, int, bytes | None]
"""Id, stamp (0 if it went) and the bytes of the vector."""


@dataclass(frozen=True, slots=True)
class View:
    """The matrix at one moment."""

    epoch: int
    count: int
    kept: Arrays
    ids: Sequence[str]
    dead: Rows

    @property
    def alive(self) -> int:
        """How many vectors there are."""
        return self.count - len(self.dead)


class Matrix:
    """Directions, row by row."""

    def __init__(self, codec: Codec, dimensions: int, *, signs: bool = False) -> None:
        self.codec, self.dimensions, self.signs = codec, dimensions, Signs() if signs else None
        self.lock = threading.RLock()
        self.epoch, self.key = 0, ""
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.mark, self.total = 0, 0
        self.proven = True
        self._begin({name: self._empty(kind, width, 0) for name, (kind, width) in self.layout().items()}, [])

    def _begin(self, kept: dict[str, NDArray[Any]], ids: list[str]) -> None:
        self.epoch += 1
        self._kept, self._ids, self._count = kept, ids, len(ids)
        self._rows: dict[str, int] | None = None
        self._dead: Rows = np.empty(0, np.intp)

    def layout(self) -> dict[str, tuple[str, int]]:
        """The arrays of the matrix: type and width by name."""
        signs = self.signs.layout(self.dimensions) if self.signs else {}
        return {"stamps": ("<u4", 0), **self.codec.layout(self.dimensions), **signs}

    @property
    def name(self) -> str:
        """What its arrays mean."""
        return f"{self.codec.name}+signs" if self.signs else self.codec.name

    @property
    def alive(self) -> int:
        """How many vectors there are."""
        return self._count - len(self._dead)

    def view(self) -> View:
        """What stands there now."""
        with self.lock:
            kept = {name: array[: self._count] for name, array in self._kept.items()}
            return View(self.epoch, self._count, kept, self._ids, self._dead)

    def adopt(self, kept: dict[str, NDArray[Any]], ids: list[str], *, mark: int, key: str) -> None:
        """Take over arrays with room to spare, whose first rows are those of the ids; not yet proven to fit."""
        with self.lock:
            self._begin(kept, ids)
            stamps = kept["stamps"][: len(ids)]
            self.mark, self.key, self.proven = mark, key, False
            self.total, self._dead = int(stamps.sum(dtype=np.uint64)), np.flatnonzero(stamps == 0)

    def apply(self, changes: Sequence[Change]) -> None:
        """Follow changes in their order; of several to one id the last counts."""
        last = {id: (stamp, vector) for id, stamp, vector in changes}
        with self.lock:
            if self._rows is None:
                stamps = self._kept["stamps"][: self._count].tolist()
                self._rows = {id: row for row, (id, stamp) in enumerate(zip(self._ids, stamps, strict=True)) if stamp}
            rows = self._rows
            known = {id: rows[id] for id in last if id in rows}
            same = {id for id, row in known.items() if self._kept["stamps"][row] == last[id][0]}
            self._bury([row for id, row in known.items() if id not in same])
            for id in known.keys() - same:
                del rows[id]
            self._append([(id, *new) for id, new in last.items() if new[0] and id not in same])
            if len(self._dead) * _MANY_DEAD > self._count:
                self._gather()

    def _bury(self, rows: list[int]) -> None:
        if rows:
            self.total -= int(self._kept["stamps"][rows].sum(dtype=np.uint64))
            self._kept["stamps"][rows] = 0
            self._dead = np.concatenate([self._dead, np.array(rows, np.intp)])

    def _append(self, new: list[tuple[str, int, bytes | None]]) -> None:
        if not new:
            return
        start, end = self._count, self._count + len(new)
        self._grow(end)
        units = unit_rows(b"".join(vector for _, _, vector in new if vector is not None), self.dimensions)
        stamps = np.array([stamp for _, stamp, _ in new], np.uint32)
        fresh = {"stamps": stamps, **self.codec.encode(units), **(self.signs.encode(units) if self.signs else {})}
        for name, array in fresh.items():
            self._kept[name][start:end] = array
        assert self._rows is not None
        self._rows.update((id, start + at) for at, (id, _, _) in enumerate(new))
        self._ids.extend(id for id, _, _ in new)
        self.total += int(stamps.sum(dtype=np.uint64))
        self._count = end

    def _grow(self, rows: int) -> None:
        have = len(self._kept["stamps"])
        if rows <= have:
            return
        room = max(rows, have + have // 2, _ROOM)
        for name, (kind, width) in self.layout().items():
            larger = self._empty(kind, width, room)
            larger[: self._count] = self._kept[name][: self._count]
            self._kept = {**self._kept, name: larger}

    def _gather(self) -> None:
        """Move the living together."""
        alive = np.setdiff1d(np.arange(self._count), self._dead, assume_unique=True)
        self._begin({name: array[alive] for name, array in self._kept.items()}, [self._ids[row] for row in alive])

    @staticmethod
    def _empty(kind: str, width: int, rows: int) -> NDArray[Any]:
        return np.empty((rows, width) if width else rows, kind)


def unit_rows(data: bytes, dimensions: int) -> Floats:
    """Vectors as rows of length one."""
    rows = np.frombuffer(data, "<f4").reshape(-1, dimensions).astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)
