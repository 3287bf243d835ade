"""`VectorLink`: how resources on application tables use the vector store, on both clients.

Vectors may be in another database than the rows they belong to, so that they are called from outside a transaction.
They are opened by the first call that needs them: opening fixes their dimensions for good.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from holdproof.db import Call
from holdproof.executors import AsyncExecutor, SyncExecutor


class VectorLink:
    """The vector store of a storage, opened at its first use."""

    def __init__(self, executor: AsyncExecutor | SyncExecutor, opening: Callable[[], Any]) -> None:
        self._opening = opening
        self._executor = executor

    def call(self, method: str, *args: Any, **kwargs: Any) -> Call[Any]:
        """Return the effect that calls a method of the vector store."""
        perform = self._call_async if isinstance(self._executor, AsyncExecutor) else self._call
        return Call(partial(perform, method, *args, **kwargs))

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._opening(), method)(*args, **kwargs)

    async def _call_async(self, method: str, *args: Any, **kwargs: Any) -> Any:
        assert isinstance(self._executor, AsyncExecutor), "the sync client calls without awaiting"
        # Opening may wait for a disk or a server: not on the loop.
        store = await self._executor.call_in_thread(self._opening)
        return await getattr(store, method)(*args, **kwargs)
