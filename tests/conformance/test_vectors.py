"""The shipped suite for vector stores, on every backend of ours."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from holdproof.db import MEMORY, Database, open_database
from holdproof.executors import AsyncExecutor
from holdproof.storage.stores import VectorStore
from holdproof.storage.vectors import codecs, open_vectors
from holdproof.testing.vectors import VectorSuite


class _OnDatabase(VectorSuite):
    """Stores on a database that is opened for each, and closed at the end of the test."""

    kind = "numpy"
    options: dict[str, Any] = {}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def _place(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
        self.target = self.find(request, tmp_path)
        self.cache: Path | None = tmp_path / "cache"
        self._databases: list[Database] = []
        yield
        for database in self._databases:
            database.close()

    def find(self, request: pytest.FixtureRequest, tmp_path: Path) -> str:
        return str(tmp_path / "membrane.db")

    async def open(self, dimensions: int) -> VectorStore:
        if not self._databases or self.shared:
            self._databases.append(open_database(self.target, space="membrane"))
        face = AsyncExecutor(self._databases[-1])
        made = await face.run(open_vectors(face, self.kind, dimensions=dimensions, cache=self.cache, **self.options))
        return cast(VectorStore, made)


class TestSqlite(_OnDatabase):
    pass


class TestPlain(_OnDatabase):
    """Without the optional part that scans faster."""

    @pytest.fixture(autouse=True)
    def _without(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(codecs, "best", codecs.PlainCodec)


class TestMemory(_OnDatabase):
    shared = False

    def find(self, request: pytest.FixtureRequest, tmp_path: Path) -> str:
        return MEMORY


class TestQuantised(_OnDatabase):
    kind = "quantised"


class TestGraph(_OnDatabase):
    kind, options = "hnsw", {"threshold": 1}


class TestPostgres(_OnDatabase):
    def find(self, request: pytest.FixtureRequest, tmp_path: Path) -> str:
        return str(request.getfixturevalue("postgres_url"))


class TestServer(_OnDatabase):
    kind = "pgvector"

    def find(self, request: pytest.FixtureRequest, tmp_path: Path) -> str:
        return str(request.getfixturevalue("pgvector_url"))
