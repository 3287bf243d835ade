"""The base of the storage suites: a store of your backend, opened for each test."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any


class StoreSuite(ABC):
    """Opens the store of a backend for each test."""

    @abstractmethod
    async def open(self) -> Any:
        """Open the store of the test; may be called several times, always for the same data."""

    def use(self, test: Callable[[Any], Awaitable[None]]) -> None:
        """Run a test with an open store."""

        async def run() -> None:
            store = await self.open()
            try:
                await test(store)
            finally:
                await store.close()

        asyncio.run(run())
