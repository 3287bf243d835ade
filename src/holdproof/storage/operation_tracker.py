"""What is under way in a storage.

Rules:
- Each operation has a machine of its own (`STORAGE_POLYNOMIAL`), so reads and writes run side by side.
- Migrating and recovering concern the whole storage: one at a time, and while it lasts everything else is refused.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from holdproof.errors import StorageBusyError
from holdproof.model.storage import STORAGE_POLYNOMIAL, StorageOp, StorageState

_WHOLE = frozenset({StorageState.MIGRATING, StorageState.RECOVERING})


class OperationTracker:
    """The machines of one storage."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: Counter[StorageState] = Counter()

    def begin(self, op: StorageOp) -> StorageState:
        """A new machine takes its first step; where it stands now."""
        state = STORAGE_POLYNOMIAL.transition(StorageState.IDLE, op)
        with self._lock:
            whole = next((each for each in _WHOLE if self._under_way[each]), None)
            if whole is not None:
                raise StorageBusyError(f"the storage is {whole.value}", state=whole.value)
            self._under_way[state] += 1
        return state

    def end(self, state: StorageState) -> None:
        """A machine comes to rest."""
        [op] = STORAGE_POLYNOMIAL.directions(state)
        assert STORAGE_POLYNOMIAL.transition(state, op) is StorageState.IDLE
        with self._lock:
            self._under_way[state] -= 1

    @contextmanager
    def doing(self, op: StorageOp) -> Iterator[None]:
        """One operation from its beginning to its end."""
        state = self.begin(op)
        try:
            yield
        finally:
            self.end(state)

    def counts(self) -> dict[str, int]:
        """How many machines stand in which state; those at rest are not counted."""
        with self._lock:
            return {state.value: number for state, number in self._under_way.items() if number}
