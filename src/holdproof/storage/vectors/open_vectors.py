"""Opening a store of vectors: what holds for it, and how it finds."""

from pathlib import Path
from typing import Final

from holdproof.db import Work, Write, ask
from holdproof.errors import ConfigError
from holdproof.storage.vectors import codecs, embedding, pgvector, vector_rows, vector_validation
from holdproof.storage.vectors.finding import Finder, ScanFinder
from holdproof.storage.vectors.following import Following
from holdproof.storage.vectors.hnsw import THRESHOLD, GraphFinder
from holdproof.storage.vectors.matrix import Matrix
from holdproof.storage.vectors.operations import Opened
from holdproof.storage.vectors.vector_rows import Facts
from holdproof.storage.vectors.vector_state import Embedder

KINDS: Final = ("numpy", "numpy-cosine", "memory", "quantised", "hnsw", "pgvector")


def opening(
    kind: str = "numpy",
    *,
    dimensions: int | None = None,
    model: str | None = None,
    embedder: Embedder | None = None,
    reembed: bool = False,
    cache: Path | None = None,
    threshold: int = THRESHOLD,
) -> Work[Opened]:
    """Open what is there, or begin; vectors of another length or another model are refused, or re-embedded if so asked.

    `cache` is the folder for sidecars (none without it), `threshold` how many vectors a graph pays for.
    """
    if kind not in KINDS:
        raise ConfigError(f"no kind of vector store {kind!r}; there are {', '.join(KINDS)}", kind=kind)
    if dimensions is not None:
        vector_validation.length(dimensions)
    facts = yield from ask(Write(lambda tx: vector_rows.begin(tx, dimensions=dimensions, model=model)))
    if reembed and model is not None and _other(facts, dimensions, model):
        facts = yield from embedding.move(model, dimensions or facts.dimensions, embedder)
    vector_rows.fits(facts, dimensions=dimensions, model=model)
    opened = Opened(facts, cache, embedder)
    opened.build = lambda it: _finder(it, kind, threshold)
    opened.finder = yield from opened.build(opened)
    return opened


def _other(facts: Facts, dimensions: int | None, model: str) -> bool:
    return facts.model != model or dimensions not in (None, facts.dimensions)


def _finder(opened: Opened, kind: str, threshold: int) -> Work[Finder]:
    if kind == "pgvector":
        schema = yield from ask(Write(pgvector.extended))
        server = pgvector.ServerFinder(opened, schema)
        yield Write(server.prepare)
        return server
    following = Following(opened, Matrix(codecs.best(), opened.facts.dimensions, signs=kind == "quantised"))
    return GraphFinder(following, threshold=threshold) if kind == "hnsw" else ScanFinder(following)
