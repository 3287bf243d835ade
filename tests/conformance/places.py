"""The places every suite over a whole store runs in."""

import time
from pathlib import Path
from typing import Any

import pytest

from holdproof import sync
from holdproof.db.sql import sql_postgres
from holdproof.model.verify import Report

_PENDING = sql_postgres("SELECT 1 FROM log_pending LIMIT 1")


class StoreOnSqlite:
    """A home of its own for each test."""

    disk = True

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.home: Path = tmp_path / "home"
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


def settled(store: sync.Holdproof) -> None:
    """Wait until every leaf is under a signed head."""
    if store.database.dialect == "postgres":
        for _ in range(200):
            if not store.read(lambda tx: tx.all(_PENDING)):
                return
            time.sleep(0.02)
        pytest.fail("the sequencer stands still")


def sound(store: sync.Holdproof) -> Report:
    """The whole store verifies, in full."""
    settled(store)
    report = store.verify.run(full=True, lock=False)
    assert report.findings == [], report.to_dict()
    return report
