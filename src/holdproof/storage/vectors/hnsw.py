"""An HNSW graph over the matrix (usearch, half precision): for stores so large that a scan takes too long.

Rules:
- It only proposes rows. Rows that were added after it was built are scanned, dead ones are left out, and distances are
  computed from the database rows: added vectors are found at once, deleted ones never.
- It is built when `index` is called, not by adding or searching: that takes minutes where a scan takes milliseconds.
- It is used from `threshold` vectors on, without a filter, and while at most a quarter of the rows are newer.
  Otherwise all rows are scanned.
- It is in the cache beside the matrix. A file that is torn, or belongs to other rows, is not used.
"""

import hashlib
import json
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from holdproof.content import disk
from holdproof.db import Call, Work, ask
from holdproof.errors import MissingExtraError
from holdproof.storage.vectors import scan, sidecar
from holdproof.storage.vectors.codecs import Floats, Rows
from holdproof.storage.vectors.finders import ScanFinder
from holdproof.storage.vectors.matrix import View
from holdproof.storage.vectors.replica import MatrixReplica

THRESHOLD = 300_000
_PAGE = 1000
_FAR = 64


class _Graph(NamedTuple):
    """A graph over the first rows of an epoch."""

    epoch: int
    size: int
    index: Any


class GraphFinder(ScanFinder):
    """Searches the graph if it is usable, else scans."""

    def __init__(self, replica: MatrixReplica, *, threshold: int = THRESHOLD) -> None:
        super().__init__(replica)
        self._threshold = threshold
        self._lock = Lock()
        self._graph = _Graph(-1, 0, None)
        self._loaded_epoch = -1
        _new(1)  # raises at once if usearch is not installed

    def scan(self, view: View, direction: Floats, k: int, allowed: scan.Allowed) -> Rows:
        """See ScanFinder."""
        # A graph cannot filter, and for few vectors an exact scan is as fast.
        if allowed is not None or view.alive < self._threshold:
            return super().scan(view, direction, k, allowed)
        graph = self._usable(view)
        if graph is None:
            return super().scan(view, direction, k, allowed)
        # More than k: usearch is approximate, and dead rows among the proposals are dropped.
        proposed = graph.index.search(direction, min(graph.size, 2 * k + _FAR + len(view.dead))).keys.astype(np.intp)
        rows = np.setdiff1d(np.concatenate([proposed, np.arange(graph.size, view.count)]), view.dead)
        return scan.closer(view, self.replica.matrix.codec, direction, k, rows)

    def index(self) -> Work[int]:
        """Build the graph over all rows and save it in the cache; return how many vectors it holds."""
        view = yield from self.replica.current()
        yield from ask(Call(lambda: self._build(view)))
        return view.alive

    def _usable(self, view: View) -> _Graph | None:
        if view.epoch not in (self._graph.epoch, self._loaded_epoch):
            self._load(view)
        graph = self._graph
        current = graph.epoch == view.epoch and graph.size <= view.count and graph.size * 4 >= view.count * 3
        return graph if current else None

    def _build(self, view: View) -> None:
        with self._lock:
            graph = self._graph if self._graph.epoch == view.epoch else _Graph(view.epoch, 0, _new(view_width(view)))
            for start in range(graph.size, view.count, _PAGE):
                rows = np.arange(start, min(start + _PAGE, view.count))
                graph.index.add(rows, self.replica.matrix.codec.decode(view.arrays, rows), threads=1)
            self._graph = graph._replace(size=view.count)
            self._save(view)

    def _save(self, view: View) -> None:
        path = self.replica.path
        if path is None:
            return
        self.replica.save()
        with suppress(OSError), tempfile.TemporaryDirectory(prefix=".graph-", dir=path.parent) as folder:
            temporary = Path(folder, "graph")
            self._graph.index.save(temporary)
            # The hash of the ids ties the graph to the rows of this matrix: row numbers mean nothing elsewhere.
            head = {"count": view.count, "ids": _ids(view, view.count), "sum": sidecar.file_sum(temporary)}
            temporary.chmod(0o600)
            temporary.replace(path.with_suffix(".hnsw"))
            disk.write(path.with_suffix(".hnsw.json"), json.dumps(head).encode())

    def _load(self, view: View) -> None:
        """Load the graph from the cache if it belongs to the rows of this epoch; tried once an epoch."""
        path = self.replica.path
        with self._lock, suppress(OSError, ValueError, KeyError, TypeError):
            self._loaded_epoch = view.epoch
            if path is None:
                return
            head = json.loads(path.with_suffix(".hnsw.json").read_text())
            file = path.with_suffix(".hnsw")
            count = head["count"]
            if count <= view.count and head["ids"] == _ids(view, count) and head["sum"] == sidecar.file_sum(file):
                self._graph = _Graph(view.epoch, count, _restored(file))


def view_width(view: View) -> int:
    """How many numbers a row has."""
    return int(view.arrays["values"].shape[1])


def _ids(view: View, count: int) -> str:
    return hashlib.sha256("\n".join(view.ids[:count]).encode()).hexdigest()


def _new(dimensions: int) -> Any:
    try:
        from usearch.index import Index  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("a graph needs usearch: pip install 'holdproof[hnsw]'") from error
    return Index(ndim=dimensions, metric="ip", dtype="f16", expansion_search=128)


def _restored(file: Path) -> Any:
    from usearch.index import Index  # noqa: PLC0415 (an optional extra)

    return Index.restore(file)
