"""Whole storages on every backend, with a clock that stands still, for services that need more than one store."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdproof.storage import StorageProvider
from holdproof.testing import FrozenClock

SMALL: dict[str, Any] = {"vector": {"dimensions": 3}}


class OnStorage:
    """A storage of its own for each test; its settings say where."""

    kept = True

    @pytest.fixture(autouse=True)
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        for variable in [each for each in os.environ if each.startswith(("HOLDPROOF_", "XDG_"))]:
            monkeypatch.delenv(variable)
        (tmp_path / "work").mkdir()
        monkeypatch.chdir(tmp_path / "work")
        monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
        return tmp_path / "home"

    @pytest.fixture
    def clock(self) -> FrozenClock:
        return FrozenClock()

    def providers(self) -> dict[str, Any]:
        return SMALL

    async def open(self, clock: FrozenClock, **more: Any) -> StorageProvider:
        return await StorageProvider.from_config_dict({"providers": self.providers() | more}, clock=clock)

    def use(self, clock: FrozenClock, test: Callable[[StorageProvider], Awaitable[None]], **more: Any) -> None:
        """Run a test with a storage."""

        async def run() -> None:
            async with await self.open(clock, **more) as storage:
                await test(storage)

        asyncio.run(run())


class OnSqlite(OnStorage):
    pass


class InMemory(OnStorage):
    kept = False

    def providers(self) -> dict[str, Any]:
        memory = {kind: {"type": "memory"} for kind in ("relational", "blob", "telemetry")}
        return {**memory, "vector": {"type": "memory", "dimensions": 3}}


class OnPostgres(OnStorage):
    @pytest.fixture(autouse=True)
    def _place(self, postgres_url: str) -> None:
        self.url = postgres_url

    def providers(self) -> dict[str, Any]:
        postgres = {"type": "postgres", "connection": self.url}
        return {**SMALL, "relational": postgres, "telemetry": postgres}
