"""A graph over the matrix (usearch, half precision): for stores so large that a scan takes too long.

Rules:
- It only proposes. Rows that came after it was built are scanned beside it, dead ones are left out, and every distance
  is reckoned from the rows: what was added is found at once, what was deleted is not.
- It is built when `index` is called, not by adding or searching: that takes minutes where a scan takes milliseconds.
- It is used from `threshold` vectors on, without a filter, and while at most a quarter of the rows came after it.
  Otherwise all rows are scanned.
- It lies in the cache beside the matrix. A file that is torn, or belongs to other rows, is not used.
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
from holdproof.storage.vectors.finding import ScanFinder
from holdproof.storage.vectors.following import Following
from holdproof.storage.vectors.matrix import View

THRESHOLD = 300_000
_PAGE = 1000
_FAR = 64


class _Graph(NamedTuple):
    """A graph over the first rows of an epoch."""

    epoch: int
    held: int
    index: Any


class GraphFinder(ScanFinder):
    """Finds through the graph where there is one that pays, else by scanning."""

    def __init__(self, following: Following, *, threshold: int = THRESHOLD) -> None:
        super().__init__(following)
        self._threshold, self._lock = threshold, Lock()
        self._graph, self._asked = _Graph(-1, 0, None), -1
        _new(1)  # says at once if the part is missing

    def scan(self, view: View, direction: Floats, k: int, allowed: scan.Allowed) -> Rows:
        """See ScanFinder."""
        if allowed is not None or view.alive < self._threshold:
            return super().scan(view, direction, k, allowed)
        graph = self._usable(view)
        if graph is None:
            return super().scan(view, direction, k, allowed)
        proposed = graph.index.search(direction, min(graph.held, 2 * k + _FAR + len(view.dead))).keys.astype(np.intp)
        rows = np.setdiff1d(np.concatenate([proposed, np.arange(graph.held, view.count)]), view.dead)
        return scan.closer(view, self.following.matrix.codec, direction, k, rows)

    def index(self) -> Work[int]:
        """Build the graph over everything there is, and keep it in the cache; how many vectors it holds."""
        view = yield from self.following.current()
        yield from ask(Call(lambda: self._build(view)))
        return view.alive

    def _usable(self, view: View) -> _Graph | None:
        if view.epoch not in (self._graph.epoch, self._asked):
            self._load(view)
        graph = self._graph
        fresh = graph.epoch == view.epoch and graph.held <= view.count and graph.held * 4 >= view.count * 3
        return graph if fresh else None

    def _build(self, view: View) -> None:
        with self._lock:
            graph = self._graph if self._graph.epoch == view.epoch else _Graph(view.epoch, 0, _new(view_width(view)))
            for start in range(graph.held, view.count, _PAGE):
                rows = np.arange(start, min(start + _PAGE, view.count))
                graph.index.add(rows, self.following.matrix.codec.decode(view.kept, rows), threads=1)
            self._graph = graph._replace(held=view.count)
            self._save(view)

    def _save(self, view: View) -> None:
        path = self.following.path
        if path is None:
            return
        self.following.save()
        with suppress(OSError), tempfile.TemporaryDirectory(prefix=".graph-", dir=path.parent) as folder:
            aside = Path(folder, "graph")
            self._graph.index.save(aside)
            head = {"count": view.count, "ids": _ids(view, view.count), "sum": sidecar.file_sum(aside)}
            aside.chmod(0o600)
            aside.replace(path.with_suffix(".hnsw"))
            disk.write(path.with_suffix(".hnsw.json"), json.dumps(head).encode())

    def _load(self, view: View) -> None:
        """Take the graph from the cache if it belongs to the rows of this epoch; asked once an epoch."""
        path = self.following.path
        with self._lock, suppress(OSError, ValueError, KeyError, TypeError):
            self._asked = view.epoch
            if path is None:
                return
            head = json.loads(path.with_suffix(".hnsw.json").read_text())
            file = path.with_suffix(".hnsw")
            count = head["count"]
            if count <= view.count and head["ids"] == _ids(view, count) and head["sum"] == sidecar.file_sum(file):
                self._graph = _Graph(view.epoch, count, _restored(file))


def view_width(view: View) -> int:
    """How many numbers a row has."""
    return int(view.kept["values"].shape[1])


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
