"""The databases of services that the storage suites run on."""

from pathlib import Path
from typing import Any

import pytest

from holdproof.db import MEMORY, Database, open_database


class Place:
    """Where the test's database is; in memory one database is handed out again and again."""

    target: str | Path = MEMORY

    def database(self, space: str, **options: Any) -> Database:
        if self.target == MEMORY:
            kept: dict[str, Database] = self.__dict__.setdefault("_kept", {})
            if space not in kept:
                kept[space] = open_database(MEMORY, space=space, **options)
            return kept[space].share()
        return open_database(self.target, space=space, **options)


class InMemory(Place):
    pass


class OnSqlite(Place):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.target = tmp_path / "services.db"


class OnPostgres(Place):
    @pytest.fixture(autouse=True)
    def _place(self, postgres_url: str) -> None:
        self.target = postgres_url  # with the tables of a kernel beside it, not to be reached
