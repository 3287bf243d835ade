"""Opening a store of vectors: what holds for it, and how it finds."""

from pathlib import Path
from typing import Final

from holdfast.db import Work, Write, ask
from holdfast.errors import ConfigError
from holdfast.storage.vectors import codecs, rows
from holdfast.storage.vectors.finding import Finder, ScanFinder
from holdfast.storage.vectors.matrix import Matrix
from holdfast.storage.vectors.shelf import Embedder, Following
from holdfast.storage.vectors.store import Opened

KINDS: Final = ("numpy", "numpy-cosine", "memory", "quantised")


def opening(
    kind: str = "numpy",
    *,
    dimensions: int | None = None,
    model: str | None = None,
    embedder: Embedder | None = None,
    cache: Path | None = None,
) -> Work[Opened]:
    """Open what is there, or begin; refuses vectors of another length or another model."""
    if kind not in KINDS:
        raise ConfigError(f"no kind of vector store {kind!r}; there are {', '.join(KINDS)}", kind=kind)
    facts = yield from ask(Write(lambda tx: rows.begin(tx, dimensions=dimensions, model=model)))
    rows.fits(facts, dimensions=dimensions, model=model)
    opened = Opened(facts, cache, embedder)
    opened.finder = _finder(opened, kind)
    return opened


def _finder(opened: Opened, kind: str) -> Finder:
    matrix = Matrix(codecs.best(), opened.facts.dimensions, signs=kind == "quantised")
    return ScanFinder(Following(opened, matrix))
