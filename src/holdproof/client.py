"""The async face: `async with holdproof.open() as store`."""

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Any

from holdproof.api import Resources
from holdproof.api.awaitable import AwaitableStore
from holdproof.executors import AsyncExecutor
from holdproof.model.backup import Restored
from holdproof.model.copy import Copied
from holdproof.model.legacy import LegacyReport
from holdproof.model.status import Check, Status
from holdproof.store.opening import Store, copy_store, migrate_legacy_store, open_store, restore_store


class Holdproof(AsyncExecutor, Resources[AsyncExecutor]):
    """An open store for coroutines. Close it, or use it as a context manager."""

    def __init__(self, core: Store, ns: str | None = None) -> None:
        AsyncExecutor.__init__(self, core.database, ns)
        Resources.__init__(self, self)
        self.core, self.context = core, core.context

    async def status(self) -> Status:
        """Where everything lives, versions and sizes, and what is degraded."""
        return await asyncio.to_thread(self.core.status)

    async def check(self) -> Check:
        """The database's own integrity check, and its migrations against ours."""
        return await asyncio.to_thread(self.core.check)

    async def close(self) -> None:
        """Finish queued work and close; may be called twice."""
        await asyncio.to_thread(self.core.close)

    async def __aenter__(self) -> "Holdproof":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def open(
    home: str | Path | None = None, url: str | None = None, *, ns: str | None = None, **options: Any
) -> AwaitableStore[Holdproof]:
    """Open the store at `home` or `url` (`postgresql://…`, `:memory:`), or where the environment says.

    A store opened for one namespace (`ns`) sees no other.
    """

    async def opens() -> Holdproof:
        return Holdproof(await asyncio.to_thread(open_store, home, url, **options), ns)

    return AwaitableStore(opens)


async def restore(src: str | Path, home: str | Path | None = None, url: str | None = None, **options: Any) -> Restored:
    """Put a backup in the place of a store that is closed, verified first; options are those of `restore_store`."""
    return await asyncio.to_thread(restore_store, src, home, url, **options)


async def migrate_legacy(
    source: str | Path | None = None, home: str | Path | None = None, url: str | None = None, **options: Any
) -> LegacyReport:
    """Take over data of kgents, from a folder or where it keeps things; options are those of `migrate_legacy_store`."""
    return await asyncio.to_thread(migrate_legacy_store, home, url, source=source, **options)


async def copy(src: str | Path, dst: str | Path, home: str | Path | None = None, **options: Any) -> Copied:
    """Move a store that is closed to another database, verified; options are those of `copy_store`."""
    return await asyncio.to_thread(copy_store, src, dst, home, **options)
