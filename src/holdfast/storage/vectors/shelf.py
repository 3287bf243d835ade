"""An open store of vectors: what its verbs share, and how its matrix follows the rows.

Rules:
- Every search first brings the matrix up to date, whoever wrote, in this process or another: what was acknowledged
  before the search began is found by it.
- A sidecar is believed only if, brought up to date, it has as many rows as the database and the same sum of stamps.
- A long catch-up is read page by page, so that nobody waits for a lock longer than a page takes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from holdfast.db import Call, Read, Tx, Work, ask
from holdfast.errors import ClosedError, EmbeddingMismatchError
from holdfast.storage.vectors import rows, sidecar
from holdfast.storage.vectors.matrix import Matrix, View
from holdfast.storage.vectors.rows import Facts

_PAGE = 1000
_WORTH_A_FILE = 5_000

Embedder = Callable[[str], Any]
"""From a text to its vector: any callable, on the async face a coroutine function too."""


@dataclass
class Shelf:
    """One open store of vectors."""

    facts: Facts
    cache: Path | None = None
    embedder: Embedder | None = None
    closed: bool = False

    def check_open(self) -> None:
        """Refuse to go on after closing."""
        if self.closed:
            raise ClosedError("the vectors are closed")


@dataclass
class Following:
    """A matrix that follows the rows."""

    shelf: Shelf
    matrix: Matrix
    saved: int = 0
    """How many rows the sidecar had when it was read or written."""
    _loading: Lock = field(default_factory=Lock)

    def current(self) -> Work[View]:
        """The matrix with everything that was acknowledged before now."""
        if self.matrix.key != self.shelf.facts.key:
            yield from ask(Call(self._load))
        while not (yield from ask(Read(self._advance))):
            pass
        if self._outgrown():
            yield from ask(Call(self.save))
        return self.matrix.view()

    def _load(self) -> None:
        with self._loading:
            key, matrix = self.shelf.facts.key, self.matrix
            if matrix.key == key:
                return
            with matrix.lock:
                matrix.reset()
                if not (path := self._path()) or not sidecar.load(path, matrix, key=key):
                    matrix.key = key
                self.saved = matrix.alive

    def _advance(self, tx: Tx) -> bool:
        """Follow the rows by a page; True when there is nothing more to follow."""
        matrix = self.matrix
        facts = rows.facts(tx)
        if facts.key != self.shelf.facts.key:
            raise EmbeddingMismatchError("all vectors were replaced by those of another model; open the store again")
        with matrix.lock:
            if matrix.mark < facts.swept:
                matrix.reset()
            change, id = matrix.mark + 1, ""
            while page := rows.changes(tx, change, id, limit=_PAGE):
                matrix.apply([(id, stamp, vector) for _, id, stamp, vector in page])
                change, id = page[-1][:2]
                if tx.dialect == "sqlite":  # the order of commits is the order of numbers: go on from here next time
                    matrix.mark = change
                if len(page) < _PAGE:
                    break
                if tx.dialect == "sqlite":
                    return False
            matrix.mark = rows.horizon(tx, matrix.mark)
            return self._fits(tx)

    def _fits(self, tx: Tx) -> bool:
        """Whether a matrix that came from a file has what the rows have; else it is forgotten."""
        matrix = self.matrix
        if not matrix.proven and (matrix.alive, matrix.total) != rows.totals(tx):
            matrix.reset()
            return False
        matrix.proven = True
        return True

    def _path(self) -> Path | None:
        return None if self.shelf.cache is None else self.shelf.cache / f"vectors-{self.shelf.facts.key}.bin"

    def _outgrown(self) -> bool:
        """Whether so much changed since the file was written that it pays to write it anew."""
        return self._path() is not None and self.matrix.alive - self.saved > max(4 * _WORTH_A_FILE, self.saved)

    def save(self) -> None:
        """Write the sidecar."""
        if path := self._path():
            sidecar.save(path, self.matrix)
            self.saved = self.matrix.alive

    def close(self) -> None:
        """Write the sidecar if it is worth it, and give the memory back."""
        matrix = self.matrix
        if matrix.proven and matrix.alive >= _WORTH_A_FILE and abs(matrix.alive - self.saved) * 8 > self.saved:
            self.save()
        with matrix.lock:
            matrix.reset()
            matrix.key = ""
