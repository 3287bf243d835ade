"""The executors of a storage, async and sync: they record what is running and refuse calls while the storage is busy.

Rules:
- Each operation is one state machine (`STORAGE_POLYNOMIAL`), so reads and writes run side by side.
- Migrating and recovering concern the whole storage: one at a time, and everything else is refused meanwhile.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from holdproof.db import Database, Refused, Tx
from holdproof.errors import ClosedError, StorageBusyError
from holdproof.executors import AsyncExecutor, SyncExecutor
from holdproof.model.storage import STORAGE_POLYNOMIAL, StorageOp, StorageState

T = TypeVar("T")
F = TypeVar("F", bound="Future[Any] | asyncio.Future[Any]")

_EXCLUSIVE = frozenset({StorageState.MIGRATING, StorageState.RECOVERING})


class OperationTracker:
    """Counts the operations of one storage by state. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[StorageState] = Counter()

    def begin(self, op: StorageOp) -> StorageState:
        """Start an operation; its state, which `end` takes. Raises StorageBusyError during an exclusive one."""
        state = STORAGE_POLYNOMIAL.transition(StorageState.IDLE, op)
        with self._lock:
            # Checked and counted under one lock: of several callers that want to migrate, one gets through.
            exclusive = next((each for each in _EXCLUSIVE if self._running[each]), None)
            if exclusive is not None:
                raise StorageBusyError(f"the storage is {exclusive.value}; try again later", state=exclusive.value)
            self._running[state] += 1
        return state

    def end(self, state: StorageState) -> None:
        """Finish an operation that is in this state."""
        # Every state but IDLE has exactly one way out, whatever the operation was.
        [op] = STORAGE_POLYNOMIAL.directions(state)
        assert STORAGE_POLYNOMIAL.transition(state, op) is StorageState.IDLE
        with self._lock:
            self._running[state] -= 1

    @contextmanager
    def operation(self, op: StorageOp) -> Iterator[None]:
        """One operation, from the beginning of the block to its end."""
        state = self.begin(op)
        try:
            yield
        finally:
            self.end(state)

    def start(self, op: StorageOp, submit: Callable[[], F]) -> F:
        """Begin an operation that ends with the future which `submit` returns."""
        state = self.begin(op)
        try:
            future = submit()
        except BaseException:
            self.end(state)
            raise
        if future.done():
            # An asyncio future calls back in a later turn of the loop, after its awaiter went on: end it here.
            self.end(state)
        else:
            future.add_done_callback(lambda _: self.end(state))
        return future

    def counts(self) -> dict[str, int]:
        """How many operations are in which state; idle ones are not counted."""
        with self._lock:
            return {state.value: number for state, number in self._running.items() if number}


class AsyncStorageExecutor(AsyncExecutor):
    """Runs the operations of one store; refuses them while the storage is busy, and after closing."""

    def __init__(self, database: Database, tracker: OperationTracker) -> None:
        super().__init__(database)
        self._tracker = tracker

    def write(self, fn: Callable[[Tx], T | Refused], *, serializable: bool = False) -> "asyncio.Future[T]":
        """See AsyncExecutor."""
        _require_open(self.database)
        submit = super().write
        return self._tracker.start(StorageOp.WRITE, lambda: submit(fn, serializable=serializable))

    def read(self, fn: Callable[[Tx], T]) -> "asyncio.Future[T]":
        """See AsyncExecutor."""
        _require_open(self.database)
        submit = super().read
        return self._tracker.start(StorageOp.READ, lambda: submit(fn))

    def start_once(self, fn: Callable[[Tx], T]) -> "Future[T]":
        """See AsyncExecutor."""
        _require_open(self.database)
        submit = super().start_once
        return self._tracker.start(StorageOp.WRITE, lambda: submit(fn))


class SyncStorageExecutor(SyncExecutor):
    """The same for threads."""

    def __init__(self, database: Database, tracker: OperationTracker) -> None:
        super().__init__(database)
        self._tracker = tracker

    def write(self, fn: Callable[[Tx], T | Refused], *, serializable: bool = False) -> T:
        """See SyncExecutor."""
        with self._operation(StorageOp.WRITE):
            return super().write(fn, serializable=serializable)

    def read(self, fn: Callable[[Tx], T]) -> T:
        """See SyncExecutor."""
        with self._operation(StorageOp.READ):
            return super().read(fn)

    def start_once(self, fn: Callable[[Tx], T]) -> "Future[T]":
        """See SyncExecutor."""
        submit = super().start_once
        return self._tracker.start(StorageOp.WRITE, lambda: submit(fn))

    def _operation(self, op: StorageOp) -> AbstractContextManager[None]:
        _require_open(self.database)
        return self._tracker.operation(op)


StorageExecutor = type[AsyncStorageExecutor] | type[SyncStorageExecutor]


def _require_open(database: Database) -> None:
    if database.closed:
        raise ClosedError("the store is closed")
