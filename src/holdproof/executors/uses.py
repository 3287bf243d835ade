"""Uses: what a step of a flow reads and writes in memory is noted of that flow (upkeep/material_notes.py).

Rules:
- Functions of a transaction say what they use (`tx.note(USED, Use(…))`), and know nothing of flows. Here the caller's
  side adds which flows' steps it is in, whatever client, method or adapter called.
- A write is noted in its own transaction, a read before its answer is given: what nobody recorded was not seen.
- Outside of steps, and in a replay, nothing is noted.
"""

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Final, TypeVar

from holdproof.db import USED, Database, Flows, Tx, Use
from holdproof.db.offline import REFUSAL

T = TypeVar("T")

IN_STEPS_OF: Final[ContextVar[Flows]] = ContextVar("holdproof_steps", default=frozenset())
"""The flows, by namespace and id, inside one of whose steps the caller is."""


def noting(database: Database, fn: Callable[[Tx], T]) -> Callable[[Tx], T]:
    """Return a writing function that notes what it uses, where its caller is inside a step."""
    flows = IN_STEPS_OF.get()
    recorder = database.hooks.uses
    if not flows or recorder is None:
        return fn

    def run(tx: Tx) -> T:
        # What an operation before this one used.
        tx.take(USED)
        value = fn(tx)
        if used := tx.take(USED):
            recorder(tx, flows, used)
        return value

    return run


class ReadUses:
    """What one read of a step used, until it is noted."""

    def __init__(self, database: Database, flows: Flows) -> None:
        self._database = database
        self._flows = flows
        self._used: frozenset[Use] = frozenset()

    def collecting(self, fn: Callable[[Tx], T]) -> Callable[[Tx], T]:
        """Return a reading function that collects what it uses."""

        def run(tx: Tx) -> T:
            tx.take(USED)
            value = fn(tx)
            self._used = tx.take(USED)
            return value

        return run

    def pending(self) -> Callable[[Tx], None] | None:
        """Return the write that notes what was used; None where nothing was."""
        recorder = self._database.hooks.uses
        if not self._used or recorder is None:
            return None
        return partial(recorder, flows=self._flows, used=self._used)


def of_read(database: Database) -> ReadUses | None:
    """Return what collects the uses of a read; None outside of steps, and where nothing can be recorded."""
    flows = IN_STEPS_OF.get()
    if not flows or database.hooks.uses is None or REFUSAL.get() is not None:
        return None
    return ReadUses(database, flows)
