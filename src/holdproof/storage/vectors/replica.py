"""`MatrixReplica`: a matrix in memory that follows the rows.

Rules:
- Every search first brings the matrix up to date, whichever process wrote: what was acknowledged before the
  search began is found by it.
- A sidecar is used only if, brought up to date, it has as many rows as the database and the same sum of stamps.
- A long catch-up is read page by page, so that no lock is held longer than a page takes.
"""

from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from holdproof.db import Call, Read, Tx, Work, ask
from holdproof.errors import ClosedError
from holdproof.storage.vectors import sidecar, vector_rows
from holdproof.storage.vectors.embedding import Embedder
from holdproof.storage.vectors.matrix import Matrix, View
from holdproof.storage.vectors.vector_rows import Facts, VectorChange

_PAGE = 1000
_WORTH_A_FILE = 5_000


@dataclass
class VectorStoreState:
    """One open vector store, as all its parts know it."""

    facts: Facts
    cache: Path | None = None
    embedder: Embedder | None = None
    closed: bool = False

    def check_open(self) -> None:
        """Raise ClosedError after closing."""
        if self.closed:
            raise ClosedError("the vectors are closed")


@dataclass
class MatrixReplica:
    """A matrix that follows the rows."""

    state: VectorStoreState
    matrix: Matrix
    unsaved: int = 0
    """How many changes the sidecar does not have."""
    _loading: Lock = field(default_factory=Lock)
    _moment: tuple[int, int] = (0, 0)
    _swept: int | None = None

    def current(self) -> Work[View]:
        """Bring the matrix up to date; return a view with everything that was acknowledged before now."""
        if self.matrix.key != self.state.facts.key:
            yield from ask(Call(self._load))
        while not (yield from ask(Read(self._advance))):
            pass
        if self._outgrown():
            yield from ask(Call(self.save))
        return self.matrix.view()

    def _load(self) -> None:
        # One thread loads the sidecar; the others find the key set and return.
        with self._loading:
            key = self.state.facts.key
            matrix = self.matrix
            if matrix.key == key:
                return
            with matrix.lock:
                self._forget()
                if not (path := self.path) or not sidecar.load(path, matrix, key=key):
                    matrix.key = key

    def _advance(self, tx: Tx) -> bool:
        """Apply changes of the rows, on SQLite one page; True when there are no more."""
        facts = vector_rows.require_key(tx, self.state.facts.key)
        with self.matrix.lock:
            # Tombstones that we have not read were deleted: only a new start can tell what is gone.
            if self._swept is not None and self._swept != facts.swept and self.matrix.mark < facts.swept:
                self._forget()
            self._swept = facts.swept
            return (self._by_page(tx) if tx.dialect == "sqlite" else self._by_moment(tx)) and self._fits(tx)

    def _by_page(self, tx: Tx) -> bool:
        """On SQLite numbers are in commit order: continue after the last one that was read."""
        page = vector_rows.changes(tx, self.matrix.mark + 1, "", limit=_PAGE)
        if page:
            self._apply(page)
            self.matrix.mark = page[-1].number
        return len(page) < _PAGE

    def _by_moment(self, tx: Tx) -> bool:
        """On PostgreSQL numbers are transaction ids, which commit in any order: read all since the oldest open one."""
        moment = vector_rows.moment(tx)
        if moment.order <= self._moment:  # an older snapshot would undo changes that were applied already
            return True
        change = self.matrix.mark + 1
        id = ""
        while page := vector_rows.changes(tx, change, id, limit=_PAGE):
            self._apply(page)
            change = page[-1].number
            id = page[-1].id
        self.matrix.mark = moment.horizon
        self._moment = moment.order
        return True

    def _apply(self, page: list[VectorChange]) -> None:
        self.matrix.apply(page)
        self.unsaved += len(page)

    def _fits(self, tx: Tx) -> bool:
        """Whether a matrix from a sidecar matches the rows; it is discarded if not."""
        matrix = self.matrix
        if not matrix.proven and (matrix.alive, matrix.total) != vector_rows.totals(tx):
            self._forget()
            return False
        matrix.proven = True
        return True

    @property
    def path(self) -> Path | None:
        """The path of the sidecar; None without a cache folder."""
        cache = self.state.cache
        return None if cache is None else cache / f"vectors-{self.state.facts.key}-{self.matrix.name}.bin"

    def _outgrown(self) -> bool:
        """Whether so much changed since the sidecar was written that it is worth writing it again."""
        return self.unsaved > max(4 * _WORTH_A_FILE, self.matrix.alive) and self.path is not None

    def save(self) -> None:
        """Write the sidecar."""
        if path := self.path:
            self.unsaved = 0
            sidecar.save(path, self.matrix)

    def close(self) -> None:
        """Write the sidecar if it is worth it, and release the memory."""
        matrix = self.matrix
        # A small store is read from its rows faster than a file is written.
        if matrix.proven and matrix.alive >= _WORTH_A_FILE and self.unsaved * 8 > matrix.alive:
            self.save()
        with matrix.lock:
            self._forget()
            matrix.key = ""

    def _forget(self) -> None:
        self.matrix.reset()
        self._moment = (0, 0)
        self.unsaved = 0
