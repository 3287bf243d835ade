"""The faces of a storage: the async and the sync face, with a machine for each operation."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from holdproof.db import Database, Refused, Tx
from holdproof.errors import ClosedError
from holdproof.executors import AsyncExecutor, SyncExecutor
from holdproof.model.storage import StorageOp
from holdproof.storage.operation_tracker import OperationTracker

T = TypeVar("T")
F = TypeVar("F", bound="Future[Any] | asyncio.Future[Any]")


class AsyncStorageExecutor(AsyncExecutor):
    """Runs the operations of one store; refuses them while the whole storage is busy, and after closing."""

    def __init__(self, database: Database, doings: OperationTracker) -> None:
        super().__init__(database)
        self._doings = doings

    def write(self, fn: Callable[[Tx], T | Refused], *, serializable: bool = False) -> "asyncio.Future[T]":
        """See AsyncExecutor."""
        return self._watched(
            StorageOp.WRITE, lambda: super(AsyncStorageExecutor, self).write(fn, serializable=serializable)
        )

    def read(self, fn: Callable[[Tx], T]) -> "asyncio.Future[T]":
        """See AsyncExecutor."""
        return self._watched(StorageOp.READ, lambda: super(AsyncStorageExecutor, self).read(fn))

    def start_once(self, fn: Callable[[Tx], T]) -> "Future[T]":
        """See AsyncExecutor."""
        return self._watched(StorageOp.WRITE, lambda: super(AsyncStorageExecutor, self).start_once(fn))

    def _watched(self, op: StorageOp, start: Callable[[], F]) -> F:
        if self.database.closed:
            raise ClosedError("the store is closed")
        state = self._doings.begin(op)
        try:
            future = start()
        except BaseException:
            self._doings.end(state)
            raise
        if future.done():  # its callbacks would come later than whoever awaits it
            self._doings.end(state)
        else:
            future.add_done_callback(lambda _: self._doings.end(state))
        return future


class SyncStorageExecutor(SyncExecutor):
    """The same for threads."""

    def __init__(self, database: Database, doings: OperationTracker) -> None:
        super().__init__(database)
        self._doings = doings

    def write(self, fn: Callable[[Tx], T | Refused], *, serializable: bool = False) -> T:
        """See SyncExecutor."""
        with self._doing(StorageOp.WRITE):
            return super().write(fn, serializable=serializable)

    def read(self, fn: Callable[[Tx], T]) -> T:
        """See SyncExecutor."""
        with self._doing(StorageOp.READ):
            return super().read(fn)

    def start_once(self, fn: Callable[[Tx], T]) -> "Future[T]":
        """See SyncExecutor."""
        state = self._doings.begin(StorageOp.WRITE)
        try:
            future = super().start_once(fn)
        except BaseException:
            self._doings.end(state)
            raise
        future.add_done_callback(lambda _: self._doings.end(state))
        return future

    def _doing(self, op: StorageOp) -> AbstractContextManager[None]:
        if self.database.closed:
            raise ClosedError("the store is closed")
        return self._doings.doing(op)
