"""Modes of a flow: what becomes of that which its code reaches and which it has not recorded.

A flow that runs does it (`RunMode`, also the base of the others). A fork does it, simulates it or refuses it
(forks.py). A replay does nothing: what is not recorded is the end of the record (replays.py).

Rules:
- A mode is asked about what is new only; what the flow has recorded is replayed in every mode.
- `offline` says that nothing may be written. A method of an open flow that writes and records nothing of it (locks,
  heartbeats) asks for it; any other write is refused by the database itself (db/offline.py).
"""

from collections.abc import Callable
from typing import Any, ClassVar, Final

from holdproof.db import Tx
from holdproof.model.coordination import Escalation
from holdproof.model.flows import Step
from holdproof.runtime.steps import StepSpec

OwnValue = Callable[[Tx], Any]
"""Computes, in a transaction, what a flow records of itself."""


class RunMode:
    """A flow that runs: what it has not recorded happens now."""

    offline: ClassVar[bool] = False
    """Whether nothing may be written."""

    def step(self, spec: StepSpec, fn: Callable[[], Any]) -> tuple[StepSpec, Callable[[], Any]]:
        """Return how a step is run that has no result yet, and the function that gives it one."""
        return spec, fn

    def own(self, name: str, n: int, value: OwnValue) -> OwnValue:
        """Return how the value is computed that the flow is about to record of itself."""
        del name, n
        return value

    def answer(self, reason: str, n: int, position: int) -> Escalation | None:
        """Return the answer to an approval that need not be requested; None for one that must be."""
        del reason, n, position
        return None

    def waits(self, waits_for: str, until: str | None) -> bool:
        """Return whether to wait; what comes at once is that the time is over."""
        del waits_for, until
        return True

    def conducts(self) -> bool:
        """Return whether the flow runs, in its place, a child that has not ended."""
        return not self.offline

    def undoes(self, step: Step | None) -> bool:
        """Return whether this flow undoes a step if it fails; None is one that it has just run."""
        del step
        return True


LIVE: Final = RunMode()
