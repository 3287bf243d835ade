"""A matrix that follows the rows.

Rules:
- Every search first brings the matrix up to date, whoever wrote, in this process or another: what was acknowledged
  before the search began is found by it.
- A sidecar is believed only if, brought up to date, it has as many rows as the database and the same sum of stamps.
- A long catch-up is read page by page, so that nobody waits for a lock longer than a page takes.
"""

from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from holdproof.db import Call, Read, Row, Tx, Work, ask
from holdproof.storage.vectors import sidecar, vector_rows
from holdproof.storage.vectors.matrix import Matrix, View
from holdproof.storage.vectors.vector_state import VectorStoreState

_PAGE = 1000
_WORTH_A_FILE = 5_000


@dataclass
class Following:
    """A matrix that follows the rows."""

    shelf: VectorStoreState
    matrix: Matrix
    unsaved: int = 0
    """How many changes the sidecar does not have."""
    _loading: Lock = field(default_factory=Lock)
    _moment: tuple[int, int] = (0, 0)
    _swept: int | None = None

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
                self._forget()
                if not (path := self.path) or not sidecar.load(path, matrix, key=key):
                    matrix.key = key

    def _advance(self, tx: Tx) -> bool:
        """Follow the rows, on SQLite by a page; True when there is nothing more to follow."""
        facts = vector_rows.known(tx, self.shelf.facts.key)
        with self.matrix.lock:
            if self._swept is not None and self._swept != facts.swept and self.matrix.mark < facts.swept:
                self._forget()
            self._swept = facts.swept
            return (self._by_page(tx) if tx.dialect == "sqlite" else self._by_moment(tx)) and self._fits(tx)

    def _by_page(self, tx: Tx) -> bool:
        """Numbers are given in the order of commits: whoever comes next goes on after the last that was read."""
        page = vector_rows.changes(tx, self.matrix.mark + 1, "", limit=_PAGE)
        if page:
            self._apply(page)
            self.matrix.mark = page[-1][0]
        return len(page) < _PAGE

    def _by_moment(self, tx: Tx) -> bool:
        """Numbers are those of transactions, which end in any order: all since the oldest that was under way."""
        moment = vector_rows.moment(tx)
        if moment.order <= self._moment:  # a look at an older snapshot would take back what is known already
            return True
        change, id = self.matrix.mark + 1, ""
        while page := vector_rows.changes(tx, change, id, limit=_PAGE):
            self._apply(page)
            change, id = page[-1][:2]
        self.matrix.mark, self._moment = moment.horizon, moment.order
        return True

    def _apply(self, page: list[Row]) -> None:
        self.matrix.apply([change[1:] for change in page])
        self.unsaved += len(page)

    def _fits(self, tx: Tx) -> bool:
        """Whether a matrix that came from a file has what the rows have; else it is forgotten."""
        matrix = self.matrix
        if not matrix.proven and (matrix.alive, matrix.total) != vector_rows.totals(tx):
            self._forget()
            return False
        matrix.proven = True
        return True

    @property
    def path(self) -> Path | None:
        """Where the sidecar lies; None where nothing is kept."""
        shelf = self.shelf
        return None if shelf.cache is None else shelf.cache / f"vectors-{shelf.facts.key}-{self.matrix.name}.bin"

    def _outgrown(self) -> bool:
        """Whether so much changed since the file was written that it pays to write it anew."""
        return self.unsaved > max(4 * _WORTH_A_FILE, self.matrix.alive) and self.path is not None

    def save(self) -> None:
        """Write the sidecar."""
        if path := self.path:
            self.unsaved = 0
            sidecar.save(path, self.matrix)

    def close(self) -> None:
        """Write the sidecar if it is worth it, and give the memory back."""
        matrix = self.matrix
        if matrix.proven and matrix.alive >= _WORTH_A_FILE and self.unsaved * 8 > matrix.alive:
            self.save()
        with matrix.lock:
            self._forget()
            matrix.key = ""

    def _forget(self) -> None:
        self.matrix.reset()
        self._moment, self.unsaved = (0, 0), 0
