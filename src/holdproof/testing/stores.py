"""What the suites of the storage layer share: a store of a backend of your own, opened for each test."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any


class StoreSuite(ABC):
    """One claim a test."""

    @abstractmethod
    async def open(self) -> Any:
        """Open the test's store; any number of times, always the same."""

    def use(self, test: Callable[[Any], Awaitable[None]]) -> None:
        """Run a test with an open store."""

        async def run() -> None:
            store = await self.open()
            try:
                await test(store)
            finally:
                await store.close()

        asyncio.run(run())
