"""`Vectors`: the methods of a vector store, the same on both clients; and how one is opened."""

from pathlib import Path
from typing import Final

from holdproof.db import Work, Write, ask
from holdproof.errors import ConfigError
from holdproof.executors import Executor, Resource, RunsWith, StreamsWith, WritesWith
from holdproof.executors.exit_codes import exit_absent
from holdproof.storage.vectors import codecs, embedding, operations, pgvector, vector_rows, vector_validation
from holdproof.storage.vectors.embedding import Embedder
from holdproof.storage.vectors.finders import Finder, ScanFinder
from holdproof.storage.vectors.hnsw import THRESHOLD, GraphFinder
from holdproof.storage.vectors.matrix import Matrix
from holdproof.storage.vectors.operations import OpenVectors
from holdproof.storage.vectors.replica import MatrixReplica
from holdproof.storage.vectors.vector_rows import Facts

KINDS: Final = ("numpy", "numpy-cosine", "memory", "quantised", "hnsw", "pgvector")


class Vectors(Resource[Executor]):
    """Vectors by id, searched by similarity."""

    add = WritesWith(operations.add, example="note-1 '[0.1, 0.9]' --metadata '{\"kind\": \"note\"}'", creates=True)
    add_many = RunsWith(operations.add_many, creates=True)
    upsert = WritesWith(operations.add, creates=True)
    search = RunsWith(
        operations.search,
        reads=True,
        columns=("id", "distance", "metadata"),
        example="'[0.1, 0.9]' --k 5 --filter '{\"kind\": \"note\"}'",
    )
    delete = RunsWith(operations.delete, example="note-1", exit_code=exit_absent)
    count = RunsWith(operations.count, reads=True)
    list = RunsWith(
        operations.list,
        reads=True,
        columns=("id", "metadata", "model", "embedded_at"),
        parameters={"prefix": "Only vectors whose ids begin with this."},
        example="--limit 20",
    )
    export = StreamsWith(
        operations.export, reads=True, alias="export vectors", draw="lines", example="--out vectors.jsonl"
    )
    close = RunsWith(operations.close, internal=True, local=True)
    embed = RunsWith(operations.embed)
    find = RunsWith(operations.find, reads=True, columns=("id", "distance", "metadata"))
    reembed = RunsWith(operations.reembed, local=True)
    index = RunsWith(operations.index)

    def __init__(self, executor: Executor, vectors: OpenVectors) -> None:
        super().__init__(executor)
        self._vectors = vectors

    @property
    def held(self) -> OpenVectors:
        """The open store."""
        return self._vectors

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        return self._vectors.facts.dimensions

    @property
    def model(self) -> str | None:
        """Which model made the vectors; None if nobody named it."""
        return self._vectors.facts.model


def open_kind(
    kind: str = "numpy",
    *,
    dimensions: int | None = None,
    model: str | None = None,
    embedder: Embedder | None = None,
    reembed: bool = False,
    cache: Path | None = None,
    threshold: int = THRESHOLD,
) -> Work[OpenVectors]:
    """Open the vectors of a database, or begin with none.

    Vectors of another length or another model raise EmbeddingMismatchError, or are embedded anew with `reembed`.
    `cache` is the folder for sidecars (none without it), `threshold` the number of vectors from which a graph is used.
    """
    if kind not in KINDS:
        raise ConfigError(f"there is no vector store of the type {kind!r}; use one of {', '.join(KINDS)}", kind=kind)
    if dimensions is not None:
        vector_validation.length(dimensions)
    # Read back what is recorded: another process may have been the first.
    facts = yield from ask(Write(lambda tx: vector_rows.begin(tx, dimensions=dimensions, model=model)))
    if reembed and model is not None and _is_other_model(facts, dimensions, model):
        facts = yield from embedding.move(model, dimensions or facts.dimensions, embedder)
    vector_rows.require_fit(facts, dimensions=dimensions, model=model)
    vectors = OpenVectors(facts, cache, embedder)
    # `reembed` replaces all vectors, and then a finder for the new ones is built the same way.
    vectors.build = lambda opened: _build_finder(opened, kind, threshold)
    vectors.finder = yield from vectors.build(vectors)
    return vectors


def _is_other_model(facts: Facts, dimensions: int | None, model: str) -> bool:
    return facts.model != model or dimensions not in (None, facts.dimensions)


def _build_finder(vectors: OpenVectors, kind: str, threshold: int) -> Work[Finder]:
    if kind == "pgvector":
        schema = yield from ask(Write(pgvector.ensure_extension))
        server = pgvector.ServerFinder(vectors, schema)
        yield Write(server.prepare)
        return server
    replica = MatrixReplica(vectors, Matrix(codecs.best(), vectors.facts.dimensions, signs=kind == "quantised"))
    return GraphFinder(replica, threshold=threshold) if kind == "hnsw" else ScanFinder(replica)
