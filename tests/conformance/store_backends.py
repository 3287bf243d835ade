"""The places every suite over a whole store runs in."""

from pathlib import Path
from typing import Any

import pytest

from harness.filling import settled
from holdproof import sync
from holdproof.model.verify import Report


class StoreOnSqlite:
    """A home of its own for each test."""

    disk = True

    @pytest.fixture(autouse=True)
    def _place(self, sqlite_home: Path) -> None:
        self.home: Path = sqlite_home
        self.url: str | None = None

    def open(self, **options: Any) -> sync.Holdproof:
        return sync.open(self.home, self.url, **options)


class StoreInMemory(StoreOnSqlite):
    """Nothing on disk, the same behaviour."""

    disk = False

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.home = tmp_path / "home"
        self.url = ":memory:"


class StoreOnPostgres(StoreOnSqlite):
    """A home and a database of its own for each test, on a real server."""

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path, postgres_url: str) -> None:
        self.home = tmp_path / "home"
        self.url = postgres_url


def sound(store: sync.Holdproof) -> Report:
    """The whole store verifies, in full."""
    settled(store)
    report = store.verify.run(full=True, lock=False)
    assert report.findings == [], report.to_dict()
    return report
