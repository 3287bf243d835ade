"""The backends every conformance suite runs on."""

from pathlib import Path
from typing import Any

import pytest

from holdproof.db import MEMORY, Database, open_database


class OnSqlite:
    """A file of its own for each test."""

    shared = True

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.target: Path | str = tmp_path / "kernel.db"

    def open(self, *, single: bool = False, **options: Any) -> Database:
        del single  # SQLite has one writer anyway
        return open_database(self.target, **options)


class InMemory:
    """Nothing on disk, the same behaviour."""

    shared = False

    def open(self, *, single: bool = False, **options: Any) -> Database:
        del single
        return open_database(MEMORY, **options)


class OnPostgres:
    """A database of its own for each test, on a real server."""

    shared = True

    @pytest.fixture(autouse=True)
    def _place(self, empty_postgres_url: str) -> None:
        self.target = empty_postgres_url

    def open(self, *, single: bool = False, **options: Any) -> Database:
        return open_database(self.target, **{"workers": 1 if single else 4, **options})
